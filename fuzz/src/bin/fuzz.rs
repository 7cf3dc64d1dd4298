//! The fuzzer, for the target that `KEYCLAIM_FUZZ` names: see `.ci/fuzz.sh`.

#![no_main]
#![allow(unsafe_code, reason = "the macro exports a function that the fuzzer's runtime calls by its name")]

use std::sync::OnceLock;
use std::{env, process};

use keyclaim_fuzz::{Target, panics, target};

static TARGET: OnceLock<Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let named = || env::var("KEYCLAIM_FUZZ").ok().and_then(|name| target(&name));
    let target = TARGET.get_or_init(|| named().expect("KEYCLAIM_FUZZ names a target"));
    if let Err(what) = panics::caught(target.run, bytes) {
        eprintln!("VIOLATION {}: {what}", target.name);
        // The fuzzer keeps the input when the process dies.
        process::abort();
    }
});
