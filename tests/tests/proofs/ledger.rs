//! What is appended can be read, and what cannot be read is named.

use keyclaim_tests::proofs::Report;
use keyclaim_tests::proofs::ledger::{Line, append, parse, read};
use keyclaim_tests::proofs::place::{Place, top};

use super::line;

fn place() -> Place {
    Place {
        commit: "0123456789ab".into(),
        is_dirty: true,
        date: "2026-12-01 05:00".into(),
        cores: 2,
        kernel: "6.1".into(),
        rustc: "1.95.0".into(),
        build: "debug".into(),
    }
}

#[test]
fn what_is_appended_is_read_again_behind_what_was_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ledger.jsonl");
    assert_eq!(read(&path), Ok(Vec::new()), "no ledger has no lines");
    let mut report = Report::new("kills", u64::MAX);
    report.cases = 12;
    report.add("acks", 40);
    report.violation("a \"quoted\" line\nand another; replay: make it again".into());
    let bad = Line::of(&place(), "kills", 3, &report);
    assert_eq!((bad.violations, bad.count("acks"), bad.count("violations")), (1, 40, 0));
    let good = Line::of(&place(), "soak", 1, &Report::new("soak", 0));
    append(&path, &bad).expect("a folder of our own");
    append(&path, &good).expect("a folder of our own");
    assert_eq!(read(&path), Ok(vec![bad, good]));
}

#[test]
fn more_violations_than_were_kept_are_counted() {
    let mut report = Report::new("kills", 1);
    (0..100).for_each(|number| report.violation(format!("number {number}")));
    let line = Line::of(&place(), "kills", 1, &report);
    assert_eq!((line.violations, line.replays.len()), (100, 5));
    // A report that was filled by hand says less, and no less than it holds.
    let report = Report { violations: vec!["one".into()], ..Report::new("kills", 1) };
    assert_eq!(Line::of(&place(), "kills", 1, &report).violations, 1);
}

#[test]
fn a_line_that_is_not_whole_is_named_by_its_number() {
    let good = line("aaa", "kills", 5, 0);
    for (bad, why) in [
        (good.replace(r#""violations":0,"#, ""), "line 2: has no `violations`"),
        (good.replace(r#""cases":5"#, r#""cases":-5"#), "line 2: `cases` is no count"),
        (good.replace(r#""cases":5"#, r#""cases":"5""#), "line 2: `cases` is no count"),
        (good.replace(r#""dirty":false"#, r#""dirty":0"#), "line 2: `dirty` is neither"),
        (good.replace(r#""acks":3"#, r#""acks":null"#), "line 2: `counts` holds"),
        (good.replace(r#""replays":[]"#, r#""replays":[1]"#), "line 2: `replays` holds"),
        (good[..good.len() / 2].to_owned(), "line 2: EOF"),
        (String::new(), "line 2: EOF"),
        ("<<<<<<< HEAD".to_owned(), "line 2: expected value"),
    ] {
        let told = parse(&format!("{good}\n{bad}\n{good}\n")).expect_err(&bad);
        assert!(told.starts_with(why), "{told}, expected {why}");
    }
}

#[test]
fn the_committed_ledger_can_be_read_and_names_harnesses_that_there_are() {
    use keyclaim_tests::proofs::registry::{ALL, RECORDED};
    for line in read(&top().join("tests/proofs.jsonl")).expect("the committed ledger") {
        let first = line.harness.split(' ').next();
        let is_known = ALL.iter().any(|harness| harness.name == line.harness)
            || RECORDED.iter().any(|(name, _)| Some(*name) == first);
        assert!(is_known, "no row of the table is of {}: its runs would be forgotten", line.harness);
    }
}
