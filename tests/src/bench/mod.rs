//! The bench: what a store costs, against the same work done on the bare engine in the same run.
//!
//! A rate alone says more about a machine's disk than about a store. So every row with a target is a
//! ratio, and both sides of it are measured in turns, on the same folder, so that whatever else the
//! machine does hits both. `core/docs/bench.md` says what each row does.

#![allow(clippy::cast_precision_loss, reason = "figures of three digits")]

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

mod group;
mod info;
mod kill;
mod large;
mod load;
mod lone;
mod machine;
mod processes;
mod raw;
pub mod reap;
mod replay;
mod report;
mod settings;

use report::{Report, Row};
use settings::Settings;

/// What stands before the table in `core/docs/bench.md`.
pub const TABLE_BEGIN: &str = "<!-- measured: written by `bench --write-doc` -->";
/// What stands behind it.
pub const TABLE_END: &str = "<!-- measured: end -->";

/// One group of rows, and what measures it.
type Group = (&'static str, fn(&Settings) -> Vec<Row>);

const GROUPS: [Group; 7] = [
    ("lone", lone::rows),
    ("group", group::rows),
    ("replay", replay::rows),
    ("large", large::rows),
    ("reap", reap::rows),
    ("processes", processes::rows),
    ("info", info::rows),
];

/// Runs the bench with these arguments; prints its table and writes `bench.json`.
///
/// Fails if the arguments are wrong. A missed target is a finding and no failure: on a busy machine
/// it proves nothing.
pub fn main(mut args: impl Iterator<Item = String>) -> ExitCode {
    let mut names = Vec::new();
    let mut settings = Settings::full();
    let mut write_doc = false;
    while let Some(arg) = args.next() {
        match (arg.as_str(), arg.starts_with('-')) {
            ("--tiny", _) => settings = Settings { out: settings.out, ..Settings::tiny() },
            ("--write-doc", _) => write_doc = true,
            ("--out", _) => match args.next() {
                Some(folder) => settings.out = PathBuf::from(folder),
                None => return usage(),
            },
            (kill::CHILD, _) => return kill::claim_until_killed(args),
            (processes::CHILD, _) => return processes::child(args),
            (name, false) if GROUPS.iter().any(|(known, _)| *known == name) => names.push(arg),
            _ => return usage(),
        }
    }
    if let Ok(records) = env::var("BENCH_RECORDS") {
        match records.parse() {
            Ok(records) if records >= settings.records_small => {
                settings.records_large = records;
                settings.records_reaped = records;
            }
            _ => return usage(),
        }
    }
    if write_doc && !names.is_empty() {
        eprintln!("--write-doc writes the whole table: name no rows");
        return ExitCode::FAILURE;
    }
    let report = measure(&settings, &names);
    println!("{}", report.table());
    report.write_json(&settings.out);
    if write_doc {
        report.write_doc();
    }
    ExitCode::SUCCESS
}

fn measure(settings: &Settings, names: &[String]) -> Report {
    std::fs::create_dir_all(&settings.out).expect("the output folder can be made");
    let before = machine::fdatasync_p50(settings);
    let mut rows = Vec::new();
    for (name, group) in GROUPS {
        if names.is_empty() || names.iter().any(|wanted| wanted == name) {
            eprintln!("measuring {name}");
            rows.extend(group(settings));
        }
    }
    let after = machine::fdatasync_p50(settings);
    Report { machine: machine::Machine::look(before, after), rows }
}

fn usage() -> ExitCode {
    let names: Vec<_> = GROUPS.iter().map(|(name, _)| *name).collect();
    eprintln!("usage: bench [--tiny] [--out FOLDER] [--write-doc] [{}]...", names.join("|"));
    eprintln!("BENCH_RECORDS=N shrinks the large store (10,000 or more)");
    ExitCode::FAILURE
}
