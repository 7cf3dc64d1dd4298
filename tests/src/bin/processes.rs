//! Processes that share a store, killed while they work: `processes --seed 7 --cases 1000`. See
//! `keyclaim_tests::proofs::linear::processes`.

use std::process::ExitCode;

use keyclaim_tests::peers;
use keyclaim_tests::proofs::Budget;
use keyclaim_tests::proofs::linear::processes;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("sharer", rest)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        processes::child(rest);
        return ExitCode::SUCCESS;
    }
    if let Some(("peer", rest)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        peers::main(rest);
        return ExitCode::SUCCESS;
    }
    if let Some(("race", rest)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        peers::race(rest);
        return ExitCode::SUCCESS;
    }
    let number = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)?.parse().ok()
    };
    let program = std::env::current_exe().expect("this program has a path");
    let seed = number("--seed").unwrap_or_else(|| keyclaim_tests::seeded::seed("processes"));
    let report = processes::processes(&program, &Budget { seed, cases: number("--cases").unwrap_or(100) });
    println!("seed {seed}: {} cases, {:?}\n{}", report.cases, report.counts, report.violations.join("\n"));
    if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
