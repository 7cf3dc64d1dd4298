//! Where and when something ran, without which no figure means anything.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

/// Where and when something ran.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Place {
    /// The commit that was checked out.
    pub commit: String,
    /// Whether a tracked file differed from it: then the run proves nothing about the commit.
    pub is_dirty: bool,
    /// When it began, in UTC.
    pub date: String,
    /// How many cores there were.
    pub cores: u64,
    /// The release of Linux.
    pub kernel: String,
    /// The compiler.
    pub rustc: String,
    /// `debug`, with debug assertions, or `release`, without.
    pub build: String,
}

impl Place {
    /// Looks around.
    pub fn look() -> Self {
        let commit = git(&["rev-parse", "--short=12", "HEAD"]);
        // The ledger and what is computed from it change with every run, and change nothing that is run.
        let changes = git(&[
            "status",
            "--porcelain",
            "--untracked-files=no",
            "--",
            ".",
            ":!tests/proofs.jsonl",
            ":!README.md",
        ]);
        let unknown = || "unknown".to_owned();
        Self {
            is_dirty: commit.is_none() || changes.is_none_or(|changes| !changes.is_empty()),
            commit: commit.unwrap_or_else(unknown),
            date: output("date", &["-u", "+%Y-%m-%d %H:%M"]).unwrap_or_else(unknown),
            cores: thread::available_parallelism().map_or(0, |cores| cores.get() as u64),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .map_or_else(|_| unknown(), |release| release.trim().to_owned()),
            rustc: output("rustc", &["--version"])
                .and_then(|version| Some(version.split(' ').nth(1)?.to_owned()))
                .unwrap_or_else(unknown),
            build: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
        }
    }
}

/// The folder of the repository.
pub fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_path_buf)
}

/// The folder of what is built.
pub fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| top().join("target"), PathBuf::from)
}

fn git(args: &[&str]) -> Option<String> {
    let top = top().display().to_string();
    output("git", &[&["-C", &top], args].concat())
}

/// What a program prints, if it ends well.
fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
