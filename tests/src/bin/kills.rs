//! Kills real processes and counts: `kills --seed 7 --kills 1000 [--plant ack-first]`. See
//! `keyclaim_tests::kills`.

use std::process::ExitCode;

use keyclaim_tests::kills::{self, Plan, Plant};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("child", rest)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        kills::child_main(rest);
        return ExitCode::SUCCESS;
    }
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)
    };
    let number = |name: &str| value(name).and_then(|text| text.parse().ok());
    let program = std::env::current_exe().expect("this program has a path");
    let plan = Plan {
        program,
        seed: number("--seed").unwrap_or_else(|| keyclaim_tests::seeded::seed("kills")),
        kills: number("--kills").unwrap_or(1_000),
        plant: value("--plant").and_then(|name| Plant::named(name)),
    };
    let start = std::time::Instant::now();
    let report = kills::run(&plan);
    println!("seed {}, {:.1} s: {report:#?}", plan.seed, start.elapsed().as_secs_f64());
    if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
