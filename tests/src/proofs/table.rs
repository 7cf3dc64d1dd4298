//! What runs come to, as a table: of the runs just made, or of all in the ledger.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::ledger::Line;
use super::registry::{ALL, RECORDED};

/// What stands before the table in the README.
pub const BEGIN: &str = "<!-- proofs: written by `proofs --readme` -->";
/// What stands behind it.
pub const END: &str = "<!-- proofs: end -->";

/// One row for each harness, those that have not been run included.
pub fn table(lines: &[Line]) -> String {
    let mut text = "| harness | tried | runs of commits | violations |\n|---|---|---|---|\n".to_owned();
    for harness in ALL {
        let lines: Vec<&Line> = lines.iter().filter(|line| line.harness == harness.name).collect();
        let mut tried = counted(sum(&lines, |line| line.cases), harness.case);
        for (what, words) in harness.also {
            _ = write!(tried, ", {}", counted(sum(&lines, |line| line.count(what)), words));
        }
        row(&mut text, harness.name, &tried, &lines);
    }
    for (name, words) in RECORDED {
        let is_of = |line: &&Line| line.harness.split(' ').next() == Some(name);
        let lines: Vec<&Line> = lines.iter().filter(is_of).collect();
        let tried = counted(sum(&lines, |line| line.cases), words);
        row(&mut text, name, &tried, &lines);
    }
    text
}

/// What the README says: of the ledger's lines, those whose run was of a commit and of nothing else.
pub fn readme(ledger: &[Line]) -> String {
    let lines: Vec<Line> = ledger.iter().filter(|line| !line.place.is_dirty).cloned().collect();
    let all: Vec<&Line> = lines.iter().collect();
    let Some(date) = lines.iter().map(|line| line.place.date.as_str()).max() else {
        return "No long run is in the ledger yet.\n".into();
    };
    let day = date.split(' ').next().unwrap_or(date);
    let minutes = sum(&all, |line| line.seconds).div_ceil(60);
    let mut text = format!(
        "Summed over {} of {}, {} in all, the last on {day}:\n\n",
        plural(lines.len() as u64, "run"),
        plural(commits(&all), "commit"),
        plural(minutes, "minute"),
    );
    text += &table(&lines);
    text
}

/// The README with this between the marks; none if it has no place for it.
pub fn placed(page: &str, text: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{text}{END}{after}"))
}

fn row(text: &mut String, name: &str, tried: &str, lines: &[&Line]) {
    _ = if lines.is_empty() {
        writeln!(text, "| {name} | not yet | | |")
    } else {
        writeln!(text, "| {name} | {tried} | {} of {} | {} |", lines.len(), commits(lines), violations(lines))
    };
}

/// How many there were; and, if any, since when there are none.
fn violations(lines: &[&Line]) -> String {
    let Some(last) = lines.iter().rposition(|line| line.violations > 0) else { return "0".into() };
    let (all, commit) = (sum(lines, |line| line.violations), &lines[last].place.commit);
    let since = &lines[last + 1..];
    let cases = sum(since, |line| line.cases);
    format!("{}, the last at {commit}; since then 0 in {} cases", grouped(all), grouped(cases))
}

fn commits(lines: &[&Line]) -> u64 {
    lines.iter().map(|line| line.place.commit.as_str()).collect::<BTreeSet<_>>().len() as u64
}

fn sum(lines: &[&Line], of: impl Fn(&Line) -> u64) -> u64 {
    lines.iter().map(|line| of(line)).sum()
}

fn counted(count: u64, words: &str) -> String {
    format!("{} {words}", grouped(count))
}

fn plural(count: u64, word: &str) -> String {
    format!("{} {word}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// With a comma at every thousand.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
