//! How large everything is at one moment.

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use keyclaim::Stats;

/// How large everything was at one moment.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    pub(super) at: Duration,
    pub(super) file_kib: u64,
    pub(super) memory_kib: u64,
    pub(super) descriptors: u64,
    pub(super) threads: u64,
    pub(super) claims: u64,
    pub(super) p99_us: u64,
    pub(super) in_flight: u64,
    pub(super) events: u64,
}

impl Sample {
    /// What stands above samples that are printed.
    pub const HEAD: &str =
        "     s   file KiB  memory KiB  descriptors  threads  claims  p99 us  in flight  events";

    /// Looks at the file and at this process. `claims` are how long those since the last sample took, in us.
    pub(super) fn take(at: Duration, file: &Path, mut claims: Vec<u64>, stats: Option<&Stats>) -> Self {
        claims.sort_unstable();
        let process = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let memory = process.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
        let entries = |folder: &str| fs::read_dir(folder).map_or(0, |entries| entries.count() as u64);
        Self {
            at,
            file_kib: fs::metadata(file).map_or(0, |file| file.len() / 1024),
            memory_kib: memory.and_then(|kib| kib.trim().parse().ok()).unwrap_or_default(),
            descriptors: entries("/proc/self/fd"),
            threads: entries("/proc/self/task"),
            p99_us: claims.get(claims.len() * 99 / 100).copied().unwrap_or_default(),
            claims: claims.len() as u64,
            in_flight: stats.map_or(0, |stats| stats.in_flight_now),
            events: stats.map_or(0, |stats| stats.outbox_events),
        }
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file_kib, memory_kib, descriptors, threads, claims, p99_us, in_flight, events, .. } = self;
        let at = self.at.as_secs();
        write!(
            f,
            "{at:6}  {file_kib:9}  {memory_kib:10}  {descriptors:11}  {threads:7}  {claims:6}  {p99_us:6}  \
             {in_flight:9}  {events:6}"
        )
    }
}
