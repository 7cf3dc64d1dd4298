//! The program, run as `make proofs` runs it, with next to nothing to do.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use keyclaim_tests::proofs::ledger::read;
use keyclaim_tests::proofs::table::{BEGIN, END};
use serde_json::Value;

/// Runs it on files of its own, and returns what it said.
fn proofs(folder: &Path, arguments: &[&str]) -> Output {
    let page = folder.join("page.md");
    if !page.exists() {
        fs::write(&page, format!("text\n{BEGIN}\n{END}\n")).expect("a folder of our own");
    }
    Command::new(env!("CARGO_BIN_EXE_proofs"))
        .args(["--ledger".as_ref(), folder.join("ledger.jsonl").as_os_str()])
        .args(["--out".as_ref(), folder.join("proofs.json").as_os_str()])
        .args(["--page".as_ref(), page.as_os_str()])
        .args(arguments)
        .env("TMPDIR", folder)
        .output()
        .expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_run_prints_its_table_and_writes_json_and_leaves_the_ledger_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = ["--harness", "kills", "--harness", "soak", "--cases", "3", "--seed", "11"];
    let output = proofs(folder.path(), &arguments);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let table = text(&output.stdout);
    assert!(table.contains("| kills | 3 processes killed, "), "{table}");
    assert!(table.contains("| crash-images | not yet | | |"), "{table}");
    let json = fs::read(folder.path().join("proofs.json")).expect("it wrote its report");
    let json: Value = serde_json::from_slice(&json).expect("it is JSON");
    let runs = json["runs"].as_array().expect("a list");
    assert_eq!(runs.len(), 2);
    assert_eq!(
        (&runs[0]["harness"], &runs[0]["cases"], &runs[0]["seed"]),
        (&"kills".into(), &3.into(), &11.into())
    );
    for run in runs {
        assert_eq!(run["violations"], 0, "{run}");
        assert!(run["cases"].as_u64().expect("a count") >= 3, "{run}");
    }
    let counts = &runs[1]["counts"];
    for what in ["claims", "completions", "replays", "published", "abandoned", "reopened", "healed"] {
        assert!(
            counts[what].as_u64().is_some_and(|count| count > 0),
            "the soak has not tried {what}: {counts}"
        );
    }
    assert_eq!(read(&folder.path().join("ledger.jsonl")), Ok(Vec::new()));
}

#[test]
fn a_noted_run_is_a_line_of_the_ledger_and_a_row_of_the_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let noted = proofs(folder.path(), &["--record", "fuzz open_bytes", "--cases", "5000", "--seconds", "60"]);
    assert!(noted.status.success(), "{}", text(&noted.stderr));
    let run = proofs(folder.path(), &["--harness", "kills", "--cases", "2", "--append"]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let ledger = read(&folder.path().join("ledger.jsonl")).expect("a ledger");
    let brief: Vec<_> =
        ledger.iter().map(|line| (line.harness.as_str(), line.cases, line.violations)).collect();
    assert_eq!(brief, [("fuzz open_bytes", 5_000, 0), ("kills", 2, 0)]);
    let page = fs::read_to_string(folder.path().join("page.md")).expect("the page");
    // Of a tree with changes nothing is said.
    let said =
        if ledger[0].place.is_dirty { "No long run" } else { "| fuzz | 5,000 executions | 1 of 1 | 0 |" };
    assert!(page.contains(said), "{page}");
}

#[test]
fn arguments_that_mean_nothing_are_refused_with_the_known_ones() {
    let folder = tempfile::tempdir().expect("a folder");
    for arguments in [
        &["--harness", "kill"][..],
        &["--cases"],
        &["--cases", "many"],
        &["--cases", "1", "--minutes", "1"],
        &["--record", "luck", "--cases", "1"],
        &["--record", "fuzz x"],
        &["--quickly"],
    ] {
        let output = proofs(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains("harnesses: crash-images, "), "{}", text(&output.stderr));
    }
    assert!(!folder.path().join("ledger.jsonl").exists());
}

#[test]
fn a_ledger_that_cannot_be_read_is_found_before_anything_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("ledger.jsonl"), "half a li").expect("a folder of our own");
    let output = proofs(folder.path(), &["--harness", "kills", "--cases", "1", "--append"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("ledger.jsonl: line 1: "), "{}", text(&output.stderr));
    assert!(!folder.path().join("proofs.json").exists());
}
