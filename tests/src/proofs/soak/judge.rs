//! Whether anything has grown.

use super::super::Report;
use super::Sample;

/// Fewer, which is ten minutes, and the first quarter is too short to come to rest in: a machine that is slow for
/// half a minute would be taken for growth.
const SAMPLES_MIN: usize = 120;
/// Fewer, and a quarter of them has less than two.
const CLOSES_MIN: usize = 8;
/// Less than this of the later pace, and the machine was too busy before: more work is not growth.
const PACE_PERCENT_MIN: u64 = 90;
/// Arbitrary: more than samples scatter, and less than what a leak comes to in half a run.
const GROWTH_PERCENT_MAX: u64 = 10;

/// The largest of the second quarter, and of the last half: the first quarter is for coming to rest.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Growth {
    /// In the second quarter.
    pub before: u64,
    /// In the last half.
    pub after: u64,
}

impl Growth {
    /// Whether it is more than a tenth.
    pub fn is_too_much(self) -> bool {
        self.after * 100 > self.before * (100 + GROWTH_PERCENT_MAX)
    }
}

/// How a row of samples has grown.
pub fn growth(samples: &[u64]) -> Growth {
    let (quarter, half) = (samples.len() / 4, samples.len() / 2);
    let max = |samples: &[u64]| samples.iter().copied().max().unwrap_or_default();
    Growth { before: max(&samples[quarter..half]), after: max(&samples[half..]) }
}

/// Notes how large everything was, and what has grown. `used_kib` is of the file, each time it was closed.
pub(super) fn judge(samples: &[Sample], used_kib: &[u64], report: &mut Report) {
    let Some(last) = samples.last() else { return };
    report.add("samples", samples.len() as u64);
    report.add("p99_us", last.p99_us);
    if samples.len() < SAMPLES_MIN {
        return;
    }
    let of = |of: fn(&Sample) -> u64| growth(&samples.iter().map(of).collect::<Vec<_>>());
    note("descriptors", ["descriptors_before", "descriptors"], of(|sample| sample.descriptors), report);
    note("threads", ["threads_before", "threads"], of(|sample| sample.threads), report);
    let pace = mean(samples, |sample| sample.claims);
    if pace.before * 100 < pace.after * PACE_PERCENT_MIN {
        eprintln!("file and memory are not judged: of claims there were {pace:?} in a sample");
    } else if used_kib.len() >= CLOSES_MIN {
        report.add("judged", 1);
        let used = growth(used_kib);
        note("KiB in use of the file", ["used_kib_before", "used_kib"], used, report);
        // The engine doubles a file that is full, so up to twice what is in use it may grow.
        let file = of(|sample| sample.file_kib);
        let file = Growth { before: file.before.max(2 * used.before), ..file };
        note("file KiB", ["file_kib_before", "file_kib"], file, report);
        note("memory KiB", ["memory_kib_before", "memory_kib"], of(|sample| sample.memory_kib), report);
    }
    if !report.violations.is_empty() {
        eprintln!("{}", Sample::HEAD);
        for sample in samples {
            eprintln!("{sample}");
        }
        eprintln!("KiB in use each time the file was closed: {used_kib:?}");
    }
}

fn note(what: &str, [before, after]: [&'static str; 2], growth: Growth, report: &mut Report) {
    report.add(before, growth.before);
    report.add(after, growth.after);
    if growth.is_too_much() {
        report.violation(format!("{what} grew from {} to {}", growth.before, growth.after));
    }
}

fn mean(samples: &[Sample], of: fn(&Sample) -> u64) -> Growth {
    let (quarter, half) = (samples.len() / 4, samples.len() / 2);
    let mean = |samples: &[Sample]| {
        let sum: u64 = samples.iter().map(of).sum();
        sum.checked_div(samples.len() as u64).unwrap_or_default()
    };
    Growth { before: mean(&samples[quarter..half]), after: mean(&samples[half..]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two hundred samples of these figures, and ten closings.
    fn judged(of: impl Fn(u64) -> Sample, used_kib: impl Fn(u64) -> u64) -> Report {
        let samples: Vec<_> = (0..200).map(of).collect();
        let mut report = Report::new("soak", 1);
        judge(&samples, &(0..10).map(used_kib).collect::<Vec<_>>(), &mut report);
        report
    }

    fn flat() -> Sample {
        let (file_kib, memory_kib) = (40_000, 50_000);
        Sample { file_kib, memory_kib, descriptors: 7, threads: 18, claims: 700, ..Sample::default() }
    }

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

    #[test]
    fn what_is_flat_is_not_told_and_each_leak_is() {
        let report = judged(|_| flat(), |_| 20_000);
        assert_eq!((report.violations.len(), report.count("judged")), (0, 1));
        let leaks: [fn(u64) -> Sample; 4] = [
            |at| Sample { file_kib: 40_000 + 500 * at, ..flat() },
            |at| Sample { memory_kib: 50_000 + 200 * at, ..flat() },
            |at| Sample { descriptors: 7 + at / 12, ..flat() },
            |at| Sample { threads: 18 + at / 12, ..flat() },
        ];
        for leak in leaks {
            let report = judged(leak, |_| 20_000);
            assert_eq!(report.violations.len(), 1, "{report:?}");
        }
        let report = judged(|_| flat(), |at| 20_000 + 1_000 * at);
        assert!(
            report.violations[0].starts_with("KiB in use of the file grew from 24000 to 29000"),
            "{report:?}"
        );
    }

    #[test]
    fn a_file_may_double_and_no_more() {
        let doubled = |to: u64| move |at| Sample { file_kib: if at < 150 { 25_000 } else { to }, ..flat() };
        assert_eq!(judged(doubled(44_000), |_| 20_000).violations.len(), 0);
        assert_eq!(judged(doubled(44_001), |_| 20_000).violations.len(), 1);
    }

    #[test]
    fn more_work_is_not_growth_and_says_nothing_of_descriptors() {
        let busier = |at| if at < 100 { 600 } else { 700 };
        let leak = |at| Sample { claims: busier(at), memory_kib: 50_000 + 200 * at, ..flat() };
        let report = judged(leak, |_| 20_000);
        assert_eq!((report.violations.len(), report.count("judged")), (0, 0));
        let leak = |at| Sample { claims: busier(at), descriptors: 7 + at, ..flat() };
        assert_eq!(judged(leak, |_| 20_000).violations.len(), 1);
    }
}
