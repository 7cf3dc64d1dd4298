//! Every row of the bench runs, so that it cannot rot; how long anything takes is not asserted.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// The rows, by how their names begin, and whether they have a target.
const ROWS: [(&str, bool); 18] = [
    ("lone: a durable claim", true),
    ("group: claims of 64 threads", true),
    ("replay: of a stored outcome", true),
    ("large: a durable claim", true),
    ("large: open after a close", true),
    ("large: open after kill -9", true),
    ("large: file bytes per record", false),
    ("reap: due rows of a pass", false),
    ("reap: claims meanwhile, p99", false),
    ("processes: claims, 1 process of 16 threads, alone", false),
    ("processes: claims, 4 processes of 16 threads, shared", false),
    ("processes: replays, 4 processes of 1 thread, shared", false),
    ("info: claim, 1 thread", false),
    ("info: claim, 8 threads", false),
    ("info: claim, 64 threads", false),
    ("info: complete", false),
    ("info: claim and complete", false),
    ("info: resident memory", false),
];

fn bench(out: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["--tiny", "--out"])
        .arg(out)
        .args(args)
        .env_remove("BENCH_RECORDS")
        .output()
        .expect("the bench starts")
}

fn report(out: &Path) -> Value {
    let text = std::fs::read(out.join("bench.json")).expect("the bench wrote its report");
    serde_json::from_slice(&text).expect("it is JSON")
}

#[test]
fn every_row_is_measured_and_told_in_both_forms() {
    let out = tempfile::tempdir().expect("a folder");
    let output = bench(out.path(), &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (table, report) = (String::from_utf8(output.stdout).expect("ASCII"), report(out.path()));
    let rows = report["rows"].as_array().expect("rows");
    for (name, has_target) in ROWS {
        let is_it = |row: &&Value| row["name"].as_str().is_some_and(|found| found.starts_with(name));
        let row = rows.iter().find(is_it).unwrap_or_else(|| panic!("no row `{name}`"));
        let [median, min, max] =
            ["median", "min", "max"].map(|of| row["ours"][of].as_f64().expect("a figure"));
        assert!(0.0 < min && min <= median && median <= max, "{row}");
        assert_eq!(row["target"].is_string(), has_target, "{row}");
        assert_eq!(row["met"].is_boolean(), has_target, "{row}");
        assert!(table.contains(&format!("| {name}")), "the table has no row `{name}`");
    }
    let machine = &report["machine"];
    assert!(machine["cores"].as_u64().expect("a number") > 0);
    assert!(machine["fdatasync_p50_us"]["before"].as_f64().expect("a figure") > 0.0);
    assert!(table.contains("fdatasync p50"), "{table}");
}

#[test]
fn named_groups_are_measured_alone() {
    let out = tempfile::tempdir().expect("a folder");
    let output = bench(out.path(), &["lone"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(report(out.path())["rows"].as_array().expect("rows").len(), 1);
}

#[test]
fn an_unknown_row_is_refused_with_the_known_ones() {
    let out = tempfile::tempdir().expect("a folder");
    let output = bench(out.path(), &["lonely"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("lone|group|replay|large|reap|processes|info"));
}

#[test]
fn the_page_in_the_docs_has_the_place_where_the_table_goes() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/docs/bench.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let table = page.split_once(keyclaim_tests::bench::TABLE_BEGIN).expect("it begins").1;
    let table = table.split_once(keyclaim_tests::bench::TABLE_END).expect("it ends").0;
    assert!(table.contains("| lone: a durable claim"), "run `make bench ARGS=--write-doc`");
}
