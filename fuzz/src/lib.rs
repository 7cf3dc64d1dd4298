//! Hostile bytes for everything that reads bytes.
//!
//! A target is a plain function of bytes that panics if a promise is broken. A fuzzer feeds it (`make fuzz`), and a
//! test replays what the fuzzer kept (`tests/replay.rs`), on the same stable compiler.

mod crash;
mod events;
mod fingerprints;
mod headers;
mod open;
mod ops;
mod oracle;
pub mod panics;
mod records;
pub mod seeds;

use std::path::PathBuf;

/// What is fuzzed.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name on the command line, and of its corpus.
    pub name: &'static str,
    /// Tries these bytes. Panics if a promise is broken.
    pub run: fn(&[u8]),
    /// The longest input that is of use.
    pub len_max: usize,
    /// The smallest corpus that is worth replaying.
    pub corpus_min: usize,
}

/// Every target.
pub const ALL: [Target; 7] = [
    Target { name: "decode_record", run: records::decode_record, len_max: 2_048, corpus_min: 8 },
    Target { name: "decode_event", run: events::decode_event, len_max: 1_024, corpus_min: 3 },
    Target { name: "headers", run: headers::headers, len_max: 1_024, corpus_min: 20 },
    Target { name: "fingerprints", run: fingerprints::fingerprints, len_max: 512, corpus_min: 20 },
    Target { name: "ops_vs_model", run: ops::ops_vs_model, len_max: 160, corpus_min: 10 },
    Target { name: "open_bytes", run: open::open_bytes, len_max: 4_096, corpus_min: 10 },
    Target { name: "crash_ops", run: crash::crash_ops, len_max: 512, corpus_min: 3 },
];

/// The target of this name.
pub fn target(name: &str) -> Option<Target> {
    ALL.into_iter().find(|target| target.name == name)
}

impl Target {
    /// Where its inputs are kept.
    pub fn corpus(&self) -> PathBuf {
        top().join("fuzz/corpus").join(self.name)
    }
}

fn top() -> PathBuf {
    let fuzz = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    fuzz.parent().map_or(fuzz.clone(), PathBuf::from)
}
