//! The ledger of long runs, the table that is its sum, and the program that writes both.

#[path = "proofs/ledger.rs"]
mod ledger;
#[path = "proofs/program.rs"]
mod program;
#[path = "proofs/soak.rs"]
mod soak;
#[path = "proofs/table.rs"]
mod table;

use keyclaim_tests::proofs::ledger::{Line, parse};

/// A run of this harness, as a line of the ledger.
fn line(commit: &str, harness: &str, cases: u64, violations: u64) -> String {
    format!(
        r#"{{"commit":"{commit}","dirty":false,"date":"2026-12-01 05:00","harness":"{harness}","seed":7,"seconds":90,"cases":{cases},"counts":{{"acks":3}},"violations":{violations},"replays":[],"cores":2,"kernel":"6.1","rustc":"1.95.0","build":"debug"}}"#
    )
}

fn lines(text: &[String]) -> Vec<Line> {
    parse(&text.join("\n")).expect("a ledger")
}
