//! The ledger of long runs: one line of JSON for each harness and run, appended and never changed.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::Report;
use super::place::Place;

/// Replay lines that a line of the ledger keeps: the first few (arbitrary).
const REPLAYS_MAX: usize = 5;

/// What one run of one harness did, where, and what it found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Line {
    /// Where it ran.
    pub place: Place,
    /// Which harness.
    pub harness: String,
    /// Where its cases came from.
    pub seed: u64,
    /// How long it took.
    pub seconds: u64,
    /// How many cases there were.
    pub cases: u64,
    /// Other things that were counted.
    pub counts: BTreeMap<String, u64>,
    /// Promises seen broken.
    pub violations: u64,
    /// The first few of them, each with what replays it.
    pub replays: Vec<String>,
}

impl Line {
    /// The line of this report.
    pub fn of(place: &Place, harness: &str, seconds: u64, report: &Report) -> Self {
        let counts = report.counts.iter().filter(|(what, _)| **what != "violations");
        Self {
            place: place.clone(),
            harness: harness.to_owned(),
            seed: report.seed,
            seconds,
            cases: report.cases,
            counts: counts.map(|(what, count)| ((*what).to_owned(), *count)).collect(),
            violations: report.count("violations").max(report.violations.len() as u64),
            replays: report.violations.iter().take(REPLAYS_MAX).cloned().collect(),
        }
    }

    /// How often this was counted.
    pub fn count(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or_default()
    }

    /// As it stands in the ledger.
    pub fn json(&self) -> Value {
        let Place { commit, is_dirty, date, cores, kernel, rustc, build } = &self.place;
        json!({
            "commit": commit, "dirty": is_dirty, "date": date, "harness": self.harness, "seed": self.seed,
            "seconds": self.seconds, "cases": self.cases, "counts": self.counts, "violations": self.violations,
            "replays": self.replays, "cores": cores, "kernel": kernel, "rustc": rustc, "build": build,
        })
    }

    fn of_json(value: &Value) -> Result<Self, String> {
        let field = |name: &str| value.get(name).ok_or_else(|| format!("has no `{name}`"));
        let text = |name: &str| {
            let text = field(name)?.as_str().ok_or_else(|| format!("`{name}` is no text"))?;
            Ok::<_, String>(text.to_owned())
        };
        let number = |name: &str| field(name)?.as_u64().ok_or_else(|| format!("`{name}` is no count"));
        let counts = field("counts")?.as_object().ok_or("`counts` is no object")?;
        let counts: Option<_> =
            counts.iter().map(|(what, count)| Some((what.clone(), count.as_u64()?))).collect();
        let replays = field("replays")?.as_array().ok_or("`replays` is no list")?;
        let replays: Option<_> = replays.iter().map(|line| line.as_str().map(str::to_owned)).collect();
        Ok(Self {
            place: Place {
                commit: text("commit")?,
                is_dirty: field("dirty")?.as_bool().ok_or("`dirty` is neither true nor false")?,
                date: text("date")?,
                cores: number("cores")?,
                kernel: text("kernel")?,
                rustc: text("rustc")?,
                build: text("build")?,
            },
            harness: text("harness")?,
            seed: number("seed")?,
            seconds: number("seconds")?,
            cases: number("cases")?,
            counts: counts.ok_or("`counts` holds what is no count")?,
            violations: number("violations")?,
            replays: replays.ok_or("`replays` holds what is no text")?,
        })
    }
}

/// One line of JSON.
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.json())
    }
}

/// The lines of a ledger, or which one is not as it must be, and why.
pub fn parse(text: &str) -> Result<Vec<Line>, String> {
    let line = |(number, text): (usize, &str)| {
        let value = serde_json::from_str(text).map_err(|error| error.to_string());
        value.and_then(|value| Line::of_json(&value)).map_err(|why| format!("line {}: {why}", number + 1))
    };
    text.lines().enumerate().map(line).collect()
}

/// The lines of the ledger at this path; none if there is none.
pub fn read(path: &Path) -> Result<Vec<Line>, String> {
    match fs::read_to_string(path) {
        Ok(text) => parse(&text).map_err(|why| format!("{}: {why}", path.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Appends one line. It is one write, so that two runs at once do not mix theirs.
pub fn append(path: &Path, line: &Line) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(format!("{line}\n").as_bytes())
}
