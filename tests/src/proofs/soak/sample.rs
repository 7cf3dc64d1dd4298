//! How large everything is at one moment, and whether it has grown.

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use keyclaim::Stats;

/// How large everything was at one moment.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    at: Duration,
    file_kib: u64,
    memory_kib: u64,
    descriptors: u64,
    threads: u64,
    claims: u64,
    pub(super) p99_us: u64,
    in_flight: u64,
    events: u64,
}

/// One of the things that must not grow, and the names under which a report counts it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Judged {
    pub(super) name: &'static str,
    pub(super) before: &'static str,
    pub(super) after: &'static str,
}

/// The largest of the second quarter, and of the last half: the first quarter is for coming to rest.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Growth {
    /// In the second quarter.
    pub before: u64,
    /// In the last half.
    pub after: u64,
}

/// Arbitrary: more than samples scatter, and less than what a leak comes to in half a run.
const PERCENT_MAX: u64 = 10;

impl Judged {
    /// What is in use of a closed file.
    pub(super) const USED: Self =
        Self { name: "KiB in use of the file", before: "used_kib_before", after: "used_kib" };
    /// How long the file is.
    pub(super) const FILE: Self = Self { name: "file KiB", before: "file_kib_before", after: "file_kib" };
}

impl Growth {
    /// Whether it is more than a tenth.
    pub fn is_too_much(self) -> bool {
        self.after * 100 > self.before * (100 + PERCENT_MAX)
    }
}

/// How a row of samples has grown.
pub fn growth(samples: &[u64]) -> Growth {
    let (quarter, half) = (samples.len() / 4, samples.len() / 2);
    let max = |samples: &[u64]| samples.iter().copied().max().unwrap_or_default();
    Growth { before: max(&samples[quarter..half]), after: max(&samples[half..]) }
}

/// A figure of a sample.
pub(super) type Of = fn(&Sample) -> u64;

impl Sample {
    /// What stands above samples that are printed.
    pub const HEAD: &str =
        "     s   file KiB  memory KiB  descriptors  threads  claims  p99 us  in flight  events";

    /// All that must not grow.
    pub(super) const JUDGED: [(Judged, Of); 4] = [
        (Judged::FILE, |s| s.file_kib),
        (Judged { name: "memory KiB", before: "memory_kib_before", after: "memory_kib" }, |s| s.memory_kib),
        (Judged { name: "descriptors", before: "descriptors_before", after: "descriptors" }, |s| {
            s.descriptors
        }),
        (Judged { name: "threads", before: "threads_before", after: "threads" }, |s| s.threads),
    ];

    /// How many claims there were in a sample, on average: in the second quarter, and in the last half.
    pub(super) fn claims_of(samples: &[Self]) -> (u64, u64) {
        let (quarter, half) = (samples.len() / 4, samples.len() / 2);
        let mean = |samples: &[Self]| {
            let sum: u64 = samples.iter().map(|sample| sample.claims).sum();
            sum.checked_div(samples.len() as u64).unwrap_or_default()
        };
        (mean(&samples[quarter..half]), mean(&samples[half..]))
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_the_last_half_against_the_second_quarter() {
        let told = |samples: &[u64]| growth(samples).is_too_much();
        // Coming to rest is not growth, nor is to scatter.
        assert!(!told(&[10, 90, 100, 100, 100, 95, 110, 100]));
        // A peak before the second quarter hides nothing.
        assert!(told(&[500, 100, 100, 100, 100, 100, 111, 100]));
        // One more with each sample.
        assert!(told(&(1..=240).collect::<Vec<_>>()));
        assert_eq!(growth(&[1, 2, 3, 4, 5, 6, 7, 8]), Growth { before: 4, after: 8 });
        assert!(!growth(&[]).is_too_much());
    }
}
