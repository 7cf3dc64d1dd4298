//! The same with processes: several that share a store's file, killed with SIGKILL at random moments and started
//! again. Each writes what it asks to its standard output before it asks, and what it was told when it was told.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use keyclaim::{Options, Sharing, Store};
use parking_lot::Mutex;

use super::client::{Client, Record};
use super::history::{History, Operation};
use super::search::{OPERATIONS_MAX, linearize};
use super::spec::Rules;
use super::{issued, keep, told};
use crate::kills::process::Process;
use crate::peers::monotonic_ns;
use crate::proofs::{Budget, Report};
use crate::seeded::Draws;

/// The name of this harness.
pub const HARNESS: &str = "processes";
/// A lease is over soon after its owner was killed.
pub const RULES: Rules = Rules { lease_ms: 100, window_ms: 600_000, horizon_ms: 1_200_000 };

/// How many processes there are at a time, and how many threads each has (arbitrary; four is what a small server's
/// master forks).
const PROCESSES: u64 = 4;
const THREADS: u64 = 4;
/// Keys are new after this long, and there are so many at a time: a history must not be too long to be searched.
const KEYS_PER_TURN: u64 = 3;
const TURN_NS: u64 = 40_000_000;
/// As long as a process works before it is killed (arbitrary).
const WORKS_MS: (u64, u64) = (5, 120);
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Kills as many processes as there are cases, while the others go on.
///
/// # Panics
/// If the program cannot be started, or is none whose first argument `sharer` leads to [`child`].
pub fn processes(program: &Path, budget: &Budget) -> Report {
    let mut report = Report::new(HARNESS, budget.seed);
    let mut draws = Draws::new(budget.seed);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let mut started = 0;
    let mut start = || {
        started += 1;
        let arguments =
            ["sharer".to_owned(), path.display().to_string(), budget.seed.to_string(), started.to_string()];
        let process = Process::start(program, &arguments);
        assert!(process.wait_for_ready(READY_WITHIN), "a process that shares the store does not get ready");
        process
    };
    let mut lines: Vec<String> = Vec::new();
    let mut running: Vec<Process> = (0..PROCESSES).map(|_| start()).collect();
    for _ in 0..budget.cases {
        let (least, most) = WORKS_MS;
        thread::sleep(Duration::from_millis(least + draws.below(most - least)));
        let at = usize::try_from(draws.below(PROCESSES)).unwrap_or_default();
        if let Some(process) = running.get_mut(at) {
            lines.extend(process.kill());
            *process = start();
        }
        report.cases += 1;
    }
    for mut process in running {
        lines.extend(process.kill());
    }
    judge(&lines, budget.seed, &mut report);
    report
}

fn judge(lines: &[String], seed: u64, report: &mut Report) {
    let mut keys: BTreeMap<u64, BTreeMap<(u64, u64), Operation>> = BTreeMap::new();
    for line in lines.iter().filter(|line| *line != crate::kills::READY) {
        match read(line) {
            // What was told stands for what was asked.
            Ok((key, operation)) => {
                let operations = keys.entry(key).or_default();
                let place = (operation.called_at, operation.client);
                let is_told = operations.get(&place).is_some_and(|known| known.told_at != u64::MAX);
                if !is_told {
                    operations.insert(place, operation);
                }
            }
            Err(why) => report.violation(format!("{why}: {line}")),
        }
    }
    let mut tokens = Vec::new();
    for (key, operations) in keys {
        let operations: Vec<_> = operations.into_values().flat_map(Operation::and_its_renewal).collect();
        report.add("operations", operations.len() as u64);
        report.add("keys", 1);
        report.add(
            "unknown",
            operations.iter().filter(|operation| operation.told_at == u64::MAX).count() as u64,
        );
        tokens.extend(operations.iter().filter_map(issued));
        let history = History { operations };
        // A part of it would prove nothing: what is left out can be what the rest follows from.
        if history.operations.len() > OPERATIONS_MAX {
            report.add("keys asked too often", 1);
            continue;
        }
        if let Err(wrong) = linearize(&history.operations, RULES) {
            report.violation(told(&wrong, &keep(&history, seed, key)));
        }
    }
    report.add("tokens", tokens.len() as u64);
    tokens.sort_unstable();
    let count = tokens.len();
    tokens.dedup();
    if tokens.len() < count {
        report.violation(format!("{} tokens were given out twice; seed {seed}", count - tokens.len()));
    }
}

/// The same with this program's own children, as one of the harnesses.
///
/// # Panics
/// As [`processes`].
pub fn own_processes(budget: &Budget) -> Report {
    processes(&std::env::current_exe().expect("this program has a path"), budget)
}

/// One process: works until it is killed.
///
/// # Panics
/// If the arguments are not path, seed and number, or the store cannot be opened: the parent reads why.
pub fn child(arguments: &[String]) {
    let [path, seed, number] = arguments else { panic!("three arguments are wanted") };
    let (seed, number): (u64, u64) = (seed.parse().expect("a number"), number.parse().expect("a number"));
    crate::kills::end_with_parent();
    let store =
        Store::open(PathBuf::from(path), options()).unwrap_or_else(|error| panic!("opening: {error:?}"));
    let book = Told { number, count: AtomicU64::new(0), held: Mutex::default() };
    say(crate::kills::READY);
    let never = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, book, never) = (&store, &book, &never);
            let draws = Draws::new(seed ^ (number << 32) ^ (thread << 56));
            scope.spawn(move || {
                Client::new(number * THREADS + thread, store, book, draws).run(u64::MAX, never);
            });
        }
    });
}

/// How the processes open their store.
pub fn options() -> Options {
    Options::with_policy(RULES.policy()).renew_leases_max(0).sharing(Sharing::Processes)
}

/// Writes down to the pipe.
struct Told {
    number: u64,
    count: AtomicU64,
    held: Mutex<BTreeMap<u64, u64>>,
}

impl Record for Told {
    fn stamp(&self) -> u64 {
        monotonic_ns()
    }

    fn number(&self) -> u64 {
        (self.number << 40) + self.count.fetch_add(1, Ordering::Relaxed)
    }

    /// One of this turn's, or of the turns before, whose owners may have been killed.
    fn key(&self, draws: &mut Draws) -> u64 {
        let turn = monotonic_ns() / TURN_NS;
        let back = if draws.below(4) == 0 { 2 + draws.below(4) } else { 0 };
        (turn - back) * KEYS_PER_TURN + draws.below(KEYS_PER_TURN)
    }

    fn begin(&self, key: u64, operation: &Operation) {
        say(&line(key, operation));
    }

    fn end(&self, key: u64, operation: Operation) {
        say(&line(key, &operation));
    }

    fn held(&self) -> &Mutex<BTreeMap<u64, u64>> {
        &self.held
    }
}

fn line(key: u64, operation: &Operation) -> String {
    format!("{key} {}", serde_json::to_string(operation).expect("plain data"))
}

fn read(line: &str) -> Result<(u64, Operation), String> {
    let (key, operation) = line.split_once(' ').ok_or("no line of a process")?;
    let key = key.parse().map_err(|_| "no key")?;
    Ok((key, serde_json::from_str(operation).map_err(|error| error.to_string())?))
}

/// One line is one write.
fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    if stdout.write_all(format!("{line}\n").as_bytes()).and_then(|()| stdout.flush()).is_err() {
        std::process::exit(0);
    }
}
