//! Every input that was ever kept, on the stable compiler and without the fuzzer.
//!
//! `KEYCLAIM_INPUT` names one file, of the corpus or of a crash, or a folder of them, in place of a whole corpus.

use std::path::{Path, PathBuf};
use std::{env, fs};

use keyclaim_fuzz::{ALL, Target, panics, target};

fn replay(name: &str) {
    let target = target(name).expect("a target");
    let picked = env::var_os("KEYCLAIM_INPUT").map(PathBuf::from);
    let inputs_min = if picked.is_some() { 1 } else { target.corpus_min };
    let files = inputs(&picked.unwrap_or_else(|| target.corpus()));
    assert!(files.len() >= inputs_min, "{} inputs are no corpus", files.len());
    let failed: Vec<String> = files.iter().filter_map(|file| failure(&target, file)).collect();
    assert!(failed.is_empty(), "{} of {} inputs\n{}", failed.len(), files.len(), failed.join("\n"));
    eprintln!("{name}: {} inputs", files.len());
}

fn inputs(place: &Path) -> Vec<PathBuf> {
    if place.is_file() {
        return vec![place.to_owned()];
    }
    let folder = fs::read_dir(place).unwrap_or_else(|error| panic!("{}: {error}", place.display()));
    let mut files: Vec<PathBuf> = folder.map(|entry| entry.expect("readable").path()).collect();
    files.sort();
    files
}

fn failure(target: &Target, file: &Path) -> Option<String> {
    let bytes = fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let what = panics::caught(target.run, &bytes).err()?;
    Some(format!(
        "{what}; replay: KEYCLAIM_INPUT={} cargo test --manifest-path fuzz/Cargo.toml --test replay {}",
        file.display(),
        target.name
    ))
}

macro_rules! replayed {
    ($($name:ident),*) => {
        $(#[test]
        fn $name() {
            replay(stringify!($name));
        })*

        #[test]
        fn no_target_is_left_out() {
            assert_eq!(ALL.map(|target| target.name), [$(stringify!($name)),*]);
        }
    };
}

replayed!(decode_record, decode_event, headers, fingerprints, ops_vs_model, open_bytes, crash_ops);
