//! The machine, without which no figure means anything.

use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::load::{self, micros, timed};
use super::settings::Settings;

/// Where and when it was measured.
pub(super) struct Machine {
    pub(super) date: String,
    pub(super) commit: String,
    pub(super) cores: usize,
    pub(super) cpu: String,
    pub(super) kernel: String,
    /// Others that ran at the same time, as the load average of the last minute; ours included.
    pub(super) load: String,
    /// A bare sync, before and after everything else, in us.
    pub(super) fdatasync: [f64; 2],
}

impl Machine {
    pub(super) fn look(before: Duration, after: Duration) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpu = read("/proc/cpuinfo");
        let cpu =
            cpu.lines().find_map(|line| Some(line.strip_prefix("model name")?.split_once(':')?.1.trim()));
        Self {
            date: output("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
            commit: output("git", &["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty"]),
            cores: thread::available_parallelism().map_or(0, usize::from),
            cpu: cpu.unwrap_or("unknown").into(),
            kernel: read("/proc/sys/kernel/osrelease").trim().into(),
            load: read("/proc/loadavg").split(' ').next().unwrap_or_default().into(),
            fdatasync: [micros(before), micros(after)],
        }
    }

    pub(super) fn line(&self) -> String {
        let Self { date, commit, cores, cpu, kernel, load, fdatasync: [before, after] } = self;
        format!(
            "{date}, commit {commit}; {cores} cores ({cpu}), Linux {kernel}, load {load}; \
             4 KiB write and fdatasync p50 {before:.0} us before, {after:.0} us after"
        )
    }
}

/// What a write of 4 KiB and its sync take on the folder that is measured.
pub(super) fn fdatasync_p50(settings: &Settings) -> Duration {
    let folder = settings.folder();
    let mut file = OpenOptions::new()
        .create_new(true)
        .write(true)
        .open(folder.path().join("sync"))
        .expect("a new file in the bench's own folder");
    let block = [7; 4096];
    let took: Vec<_> = (0..settings.syncs)
        .map(|turn| {
            // Over the same few blocks, as a store's file rarely grows.
            let offset = turn % 16 * block.len();
            timed(|| {
                file.seek(SeekFrom::Start(offset as u64)).expect("a seek");
                file.write_all(&block).expect("a write");
                file.sync_data().expect("a sync");
            })
            .0
        })
        .collect();
    load::median(&took)
}

/// What a program prints; a figure without it is still a figure.
fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    let text = output
        .map_or_else(|_| "unknown".into(), |output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.trim().into()
}
