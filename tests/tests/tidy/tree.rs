//! The files of the repository, and which of its Rust sources a target reaches.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// One file that is text.
pub(crate) struct Source {
    /// Relative to the top of the repository, with `/` between the parts.
    pub(crate) path: String,
    pub(crate) text: String,
}

pub(crate) fn top() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the tests crate lies in the repository").to_path_buf()
}

/// Every text file that git tracks or would track, sorted by path. What is not UTF-8 is no text, unless its name says
/// that it is Rust.
pub(crate) fn sources() -> Vec<Source> {
    let top = top();
    let paths = git_files(&["--cached", "--others", "--exclude-standard"]);
    let sources: Vec<Source> = paths.iter().filter_map(|path| read(&top, path)).collect();
    assert!(sources.len() > 20, "git lists next to nothing: {paths:?}");
    sources
}

/// Files that are here, and will not be in a clone.
pub(crate) fn ignored() -> BTreeSet<String> {
    git_files(&["--others", "--ignored", "--exclude-standard"])
}

fn git_files(arguments: &[&str]) -> BTreeSet<String> {
    let list = Command::new("git")
        .args(["-c", "safe.directory=*", "ls-files", "-z"])
        .args(arguments)
        .current_dir(top())
        .output()
        .expect("git can be started: the tidy test looks at what it tracks");
    assert!(list.status.success(), "git ls-files: {}", String::from_utf8_lossy(&list.stderr));
    let list = String::from_utf8(list.stdout).expect("file names are UTF-8");
    list.split('\0').filter(|path| !path.is_empty()).map(Into::into).collect()
}

/// What cargo knows of one workspace.
pub(crate) fn metadata(manifest: &Path, arguments: &[&str]) -> serde_json::Value {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let run = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--manifest-path"])
        .arg(manifest)
        .args(arguments)
        .output()
        .expect("cargo can be started");
    assert!(run.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&run.stderr));
    serde_json::from_slice(&run.stdout).expect("cargo prints JSON")
}

/// The sources that a target of any workspace in the repository is made of.
pub(crate) fn reached_sources(sources: &[Source]) -> BTreeSet<String> {
    let top = top();
    let workspaces = sources.iter().filter(|source| {
        source.path.ends_with("Cargo.toml") && source.text.lines().any(|line| line.trim() == "[workspace]")
    });
    let mut reached = BTreeSet::new();
    let mut open = Vec::new();
    for workspace in workspaces {
        let metadata = metadata(&top.join(&workspace.path), &["--no-deps", "--offline"]);
        for package in metadata["packages"].as_array().expect("packages are a list") {
            for target in package["targets"].as_array().expect("targets are a list") {
                let root = target["src_path"].as_str().expect("a target has a source");
                open.push((PathBuf::from(root), true));
            }
        }
    }
    while let Some((file, is_root)) = open.pop() {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        if !reached.insert(relative(&top, &file)) {
            continue;
        }
        open.extend(
            crate::rules::modules_named(&text, &file, is_root)
                .into_iter()
                .filter(|path| path.is_file())
                .map(|path| (path, false)),
        );
    }
    reached
}

/// Nothing for what is not text, for links, and for what is deleted but still in git's index.
fn read(top: &Path, path: &str) -> Option<Source> {
    let file = top.join(path);
    if file.is_symlink() {
        return None;
    }
    let is_rust = file.extension().is_some_and(|extension| extension == "rs");
    let text = match String::from_utf8(fs::read(file).ok()?) {
        Ok(text) => text,
        Err(bytes) if is_rust => String::from_utf8_lossy(bytes.as_bytes()).into_owned(),
        Err(_) => return None,
    };
    Some(Source { path: path.to_owned(), text })
}

fn relative(top: &Path, path: &Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let top = top.canonicalize().unwrap_or_else(|_| top.to_path_buf());
    path.strip_prefix(&top).unwrap_or(&path).to_string_lossy().replace('\\', "/")
}
