//! How much is measured.

use std::env;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// Sizes of every row. The full ones take some minutes, the tiny ones about a second.
pub(super) struct Settings {
    /// Repetitions of every row; the table shows their median and their range.
    pub(super) reps: usize,
    /// Lone claims, and raw commits between them, per repetition.
    pub(super) lone: usize,
    /// Claims of all threads together per repetition, with 8 threads or more.
    pub(super) grouped: usize,
    /// Raw commits of all threads together per repetition.
    pub(super) raw_grouped: usize,
    /// Replays, and raw reads between them, per repetition.
    pub(super) replays: usize,
    /// Records of the small and the large store.
    pub(super) records_small: u64,
    pub(super) records_large: u64,
    /// Records of the store that is reaped, a tenth of which is due.
    pub(super) records_reaped: u64,
    /// Claims that a child is let make before it is killed.
    pub(super) acks_before_kill: usize,
    /// Syncs measured of the bare disk.
    pub(super) syncs: usize,
    /// Where the results go, and where the stores are while they are measured.
    pub(super) out: PathBuf,
}

impl Settings {
    pub(super) fn full() -> Self {
        Self {
            reps: 5,
            lone: 200,
            grouped: 6_400,
            raw_grouped: 640,
            replays: 40_000,
            records_small: 10_000,
            records_large: 1_000_000,
            records_reaped: 1_000_000,
            acks_before_kill: 2_000,
            syncs: 400,
            out: default_out(),
        }
    }

    /// So small that every row is done in no time: shows that the bench runs, measures nothing.
    pub(super) fn tiny() -> Self {
        Self {
            reps: 3,
            lone: 4,
            grouped: 128,
            raw_grouped: 64,
            replays: 20,
            records_small: 50,
            records_large: 200,
            records_reaped: 1_000,
            acks_before_kill: 20,
            syncs: 4,
            out: default_out(),
        }
    }

    /// A folder for one row's stores, on the disk that is being measured; removed when dropped.
    pub(super) fn folder(&self) -> TempDir {
        tempfile::tempdir_in(&self.out).expect("the output folder takes another folder")
    }
}

fn default_out() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"), PathBuf::from);
    target.join("bench")
}
