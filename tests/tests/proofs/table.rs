//! What a ledger comes to.

use std::fs;

use keyclaim_tests::proofs::ledger::read;
use keyclaim_tests::proofs::place::top;
use keyclaim_tests::proofs::registry::ALL;
use keyclaim_tests::proofs::table::{BEGIN, END, placed, readme, table};

use super::{line, lines};

/// The row of this harness.
fn row(table: &str, name: &str) -> String {
    let begin = format!("| {name} |");
    table
        .lines()
        .find(|line| line.starts_with(&begin))
        .unwrap_or_else(|| panic!("no {name} in {table}"))
        .into()
}

#[test]
fn runs_add_up_and_a_commit_counts_once() {
    let ledger = [
        line("aaa", "kills", 600, 0),
        line("aaa", "kills", 400, 0),
        line("bbb", "kills", 1_234_000, 0),
        line("bbb", "soak", 60, 0),
    ];
    let table = table(&lines(&ledger));
    assert_eq!(
        row(&table, "kills"),
        "| kills | 1,235,000 processes killed, 9 acknowledgements checked | 3 of 2 | 0 |"
    );
    assert!(row(&table, "soak").contains("| 60 seconds,"), "{table}");
    assert!(row(&table, "soak").contains("| 1 of 1 | 0 |"), "{table}");
}

#[test]
fn what_was_never_run_is_said_and_not_left_out() {
    let table = table(&[]);
    for harness in ALL {
        assert_eq!(row(&table, harness.name), format!("| {} | not yet | | |", harness.name));
    }
    assert_eq!(row(&table, "fuzz"), "| fuzz | not yet | | |");
}

#[test]
fn a_violation_is_never_forgotten_and_what_was_tried_since_is_told() {
    let mut ledger =
        vec![line("aaa", "kills", 100, 2), line("bbb", "kills", 10, 1), line("bbb", "soak", 9, 0)];
    let told = |ledger: &[String]| row(&table(&lines(ledger)), "kills");
    assert!(told(&ledger).ends_with("| 2 of 2 | 3, the last at bbb; since then 0 in 0 cases |"));
    ledger.push(line("ccc", "kills", 5_000, 0));
    assert!(told(&ledger).ends_with("| 3 of 3 | 3, the last at bbb; since then 0 in 5,000 cases |"));
    let soak = row(&table(&lines(&ledger)), "soak");
    assert!(soak.ends_with("| 1 of 1 | 0 |"), "another harness's: {soak}");
}

#[test]
fn targets_of_one_tool_are_one_row() {
    let ledger = [line("aaa", "fuzz open_bytes", 1_000, 0), line("aaa", "fuzz decode_record", 500, 0)];
    assert_eq!(row(&table(&lines(&ledger)), "fuzz"), "| fuzz | 1,500 executions | 2 of 1 | 0 |");
}

#[test]
fn the_readme_counts_runs_of_commits_and_of_nothing_else() {
    let dirty = line("aaa", "kills", 77, 1).replace(r#""dirty":false"#, r#""dirty":true"#);
    assert_eq!(readme(&lines(std::slice::from_ref(&dirty))), "No long run is in the ledger yet.\n");
    let later = line("bbb", "soak", 60, 0).replace("2026-12-01 05:00", "2027-01-02 03:04");
    let text = readme(&lines(&[later, dirty, line("aaa", "kills", 100, 0)]));
    assert!(
        text.starts_with(
            "Summed over 2 runs of 2 commits, 3 minutes in all, the last on 2027-01-02:\n\n| harness"
        ),
        "{text}"
    );
    assert!(row(&text, "kills").starts_with("| kills | 100 "), "{text}");
    assert!(row(&text, "kills").ends_with("| 1 of 1 | 0 |"), "{text}");
}

#[test]
fn only_what_is_between_the_marks_is_replaced() {
    let page = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
    let new = placed(&page, "new\n").expect("it has a place");
    assert_eq!(new, format!("before\n{BEGIN}\nnew\n{END}\nafter\n"));
    assert_eq!(placed(&new, "new\n"), Some(new.clone()), "again is the same");
    assert_eq!(placed("no marks", "new"), None);
    assert_eq!(placed(&format!("{END}{BEGIN}"), "new"), None);
}

#[test]
fn the_table_in_the_readme_is_what_the_ledger_comes_to() {
    let page = fs::read_to_string(top().join("README.md")).expect("the README");
    let ledger = read(&top().join("tests/proofs.jsonl")).expect("the committed ledger");
    let right = placed(&page, &readme(&ledger)).expect("the README has the marks");
    assert!(page == right, "run `make proofs ARGS=--readme`: the README's table is not the ledger's sum");
}
