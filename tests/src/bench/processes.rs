//! Several processes on one store (`Sharing::Processes`), against one.

use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use keyclaim::{Abandoned, Options, Sharing, Store};

use super::load::{self, Keys, Took, micros, on_threads};
use super::report::{Row, Spread};
use super::settings::Settings;
use crate::peers::monotonic_ns;

/// The argument that makes this program one of the processes.
pub(super) const CHILD: &str = "one-of-the-processes";

/// Time for all processes to start and open before any begins (arbitrary; whoever is late says so and fails).
const START_NS: u64 = 400_000_000;
/// Keys of one process and one repetition, so that none is used twice (arbitrary).
const KEYS_EACH: u64 = 1 << 32;

/// What every process does.
#[derive(Clone, Copy)]
struct Load {
    does: &'static str,
    processes: u64,
    threads: usize,
    sharing: &'static str,
}

/// Rates of one process alone, one that shares, and four that share.
pub(super) fn rows(settings: &Settings) -> Vec<Row> {
    let mut rows = Vec::new();
    for (does, threads) in [("claims", 1), ("claims", 16), ("replays", 1)] {
        let load = |processes, sharing| Load { does, processes, threads, sharing };
        rows.extend(compared(settings, &[load(1, "alone"), load(1, "shared"), load(4, "shared")]));
    }
    rows
}

/// Measured in turns; each against the first.
fn compared(settings: &Settings, loads: &[Load]) -> Vec<Row> {
    let folder = settings.folder();
    let path = folder.path().join("processes.keyclaim");
    let store = load::open(&path);
    load::win(&store, &load::request(load::id(0))).complete(&load::outcome()).expect("the claim is ours");
    store.close().expect("the store closes");
    let mut turn = 0;
    let mut rates: Vec<(Vec<f64>, Vec<f64>)> = vec![Default::default(); loads.len()];
    for _ in 0..settings.reps {
        for (load, (per_second, p99)) in loads.iter().zip(&mut rates) {
            let took = run(settings, *load, &path, &mut turn);
            per_second.push(took.per_second());
            p99.push(micros(took.quantile(0.99)));
        }
    }
    let first = rates.first().map(|(rates, _)| rates.clone()).unwrap_or_default();
    loads
        .iter()
        .zip(rates)
        .map(|(load, (rates, p99))| {
            let ratios = rates.iter().zip(&first).map(|(ours, alone)| ours / alone).collect();
            let is_first = load.sharing == "alone";
            let counted =
                |count: u64, what| if count == 1 { format!("1 {what}") } else { format!("{count} {what}") };
            Row {
                name: format!(
                    "processes: {}, {} of {}, {}",
                    load.does,
                    counted(load.processes, if load.processes == 1 { "process" } else { "processes" }),
                    counted(load.threads as u64, if load.threads == 1 { "thread" } else { "threads" }),
                    load.sharing
                ),
                unit: "1/s",
                ours: Spread::of(rates),
                raw: (!is_first).then(|| Spread::of(first.clone())),
                ratio: (!is_first).then(|| Spread::of(ratios)),
                target: None,
                note: format!("p99 {:.0} us", Spread::of(p99).median),
            }
        })
        .collect()
}

/// One repetition of one load.
fn run(settings: &Settings, load: Load, path: &Path, turn: &mut u64) -> Took {
    let each = match (load.does, load.threads) {
        ("replays", _) => settings.replays / 4,
        (_, 1) => settings.lone,
        _ => settings.grouped / 4,
    };
    let begin_ns = monotonic_ns() + START_NS;
    let children: Vec<Child> = (0..load.processes)
        .map(|_| {
            *turn += 1;
            start(load, path, *turn * KEYS_EACH, each, begin_ns)
        })
        .collect();
    let (mut steps, mut ends) = (Vec::new(), Vec::new());
    for mut child in children {
        for line in BufReader::new(child.stdout.take().expect("piped")).lines() {
            let line = line.expect("a line");
            let (what, number) = line.split_once(' ').expect("a word and a number");
            let number: u64 = number.parse().expect("a number");
            if what == "end" { ends.push(number) } else { steps.push(Duration::from_nanos(number)) }
        }
        assert!(child.wait().expect("ours").success(), "a process of the bench failed");
    }
    let end_ns = ends.into_iter().max().expect("each says when it ended");
    Took { whole: Duration::from_nanos(end_ns - begin_ns), steps }
}

fn start(load: Load, path: &Path, from: u64, each: usize, begin_ns: u64) -> Child {
    Command::new(env::current_exe().expect("the bench knows its own file"))
        .args([CHILD, load.does, load.sharing])
        .args([load.threads.to_string(), from.to_string(), each.to_string(), begin_ns.to_string()])
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the process starts")
}

/// One of the processes. Tells how long each step took, and when it ended.
pub(super) fn child(args: impl Iterator<Item = String>) -> ExitCode {
    let args: Vec<String> = args.collect();
    let [does, sharing, threads, from, each, begin_ns, path] = &args[..] else { return ExitCode::FAILURE };
    let number = |text: &String| text.parse::<u64>().expect("a number");
    let (keys, begin_ns) = (Keys::from(number(from)), number(begin_ns));
    let store = open(Path::new(path), sharing);
    let step = || match does.as_str() {
        "replays" => drop(load::replay(&store, &load::request(load::id(0)))),
        _ => drop(load::win(&store, &load::request(keys.next()))),
    };
    let late = monotonic_ns().saturating_sub(begin_ns);
    assert!(late == 0, "it was open {late} ns too late; the machine is too busy to measure this");
    std::thread::sleep(Duration::from_nanos(begin_ns.saturating_sub(monotonic_ns())));
    let threads = usize::try_from(number(threads)).expect("few");
    let each = usize::try_from(number(each)).expect("few");
    let took = on_threads(threads, each, || (), |()| step());
    println!("end {}", monotonic_ns());
    for step in &took.steps {
        println!("step {}", step.as_nanos());
    }
    ExitCode::SUCCESS
}

fn open(path: &Path, sharing: &str) -> Store {
    let sharing = if sharing == "shared" { Sharing::Processes } else { Sharing::OneProcess };
    Store::open(path, Options::new(Abandoned::Rerun).sharing(sharing)).expect("the bench's own store opens")
}
