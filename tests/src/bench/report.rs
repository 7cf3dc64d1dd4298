//! What was measured, as a table, as JSON and as the page in the docs.

use std::fmt::{self, Write};
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::machine::Machine;
use super::{TABLE_BEGIN, TABLE_END};

/// Everything of one run.
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) rows: Vec<Row>,
}

/// One thing that was measured.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) unit: &'static str,
    pub(super) ours: Spread,
    /// The same by the engine alone, in the same run.
    pub(super) raw: Option<Spread>,
    /// Ours by raw, of each repetition by itself.
    pub(super) ratio: Option<Spread>,
    pub(super) target: Option<Target>,
    pub(super) note: String,
}

/// What was asked for; met by the median.
#[derive(Clone, Copy)]
pub(super) enum Target {
    AtMost(f64),
    RatioAtMost(f64),
    RatioAtLeast(f64),
}

/// The repetitions of one figure.
#[derive(Clone, Copy)]
pub(super) struct Spread {
    pub(super) median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    pub(super) fn of(mut repetitions: Vec<f64>) -> Self {
        repetitions.sort_unstable_by(f64::total_cmp);
        let at = |at: usize| repetitions[at];
        Self { median: at(repetitions.len() / 2), min: at(0), max: at(repetitions.len() - 1) }
    }

    fn json(self) -> Value {
        json!({ "median": self.median, "min": self.min, "max": self.max })
    }
}

impl Row {
    fn is_met(&self) -> Option<bool> {
        let ratio = self.ratio.map_or(f64::NAN, |ratio| ratio.median);
        self.target.map(|target| match target {
            Target::AtMost(most) => self.ours.median <= most,
            Target::RatioAtMost(most) => ratio <= most,
            Target::RatioAtLeast(least) => ratio >= least,
        })
    }

    fn verdict(&self) -> &'static str {
        match self.is_met() {
            None => "",
            Some(true) => "met",
            Some(false) => "missed",
        }
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "unit": self.unit,
            "ours": self.ours.json(),
            "raw": self.raw.map(Spread::json),
            "ratio": self.ratio.map(Spread::json),
            "target": self.target.map(|target| target.to_string()),
            "met": self.is_met(),
            "note": self.note,
        })
    }
}

impl Report {
    /// A Markdown table under the machine's line.
    pub(super) fn table(&self) -> String {
        let mut text = format!("{}\n\n", self.machine.line());
        text.push_str("| what | target | measured | ours | raw, same run | verdict | |\n|---|---|---|---|---|---|---|\n");
        for row in &self.rows {
            let Row { name, unit, ours, raw, ratio, target, note } = row;
            let target = target.map(|target| format!("{target} {}", target.unit(unit))).unwrap_or_default();
            let measured = ratio.map(|ratio| format!("{ratio} x")).unwrap_or_default();
            let raw = raw.map(|raw| format!("{raw} {unit}")).unwrap_or_default();
            let verdict = row.verdict();
            _ = writeln!(
                text,
                "| {name} | {target} | {measured} | {ours} {unit} | {raw} | {verdict} | {note} |"
            );
        }
        text
    }

    /// Writes `bench.json` into the folder.
    pub(super) fn write_json(&self, folder: &Path) {
        let Machine { date, commit, cores, cpu, kernel, load, fdatasync } = &self.machine;
        let report = json!({
            "date": date,
            "commit": commit,
            "machine": {
                "cores": cores,
                "cpu": cpu,
                "kernel": kernel,
                "load": load,
                "fdatasync_p50_us": { "before": fdatasync[0], "after": fdatasync[1] },
            },
            "rows": self.rows.iter().map(Row::json).collect::<Vec<_>>(),
        });
        fs::write(folder.join("bench.json"), format!("{report:#}\n"))
            .expect("the output folder can be written");
    }

    /// Puts the table into the page in the docs, in place of the last one.
    pub(super) fn write_doc(&self) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/docs/bench.md");
        let page = fs::read_to_string(&path).expect("the page is there");
        let (before, rest) = page.split_once(TABLE_BEGIN).expect("the page has a place for the table");
        let (_, after) = rest.split_once(TABLE_END).expect("the page has a place for the table");
        let page = format!("{before}{TABLE_BEGIN}\n\n{}\n{TABLE_END}{after}", self.table());
        fs::write(path, page).expect("the page can be written");
    }
}

impl Target {
    fn unit(self, unit: &str) -> &str {
        match self {
            Self::AtMost(_) => unit,
            Self::RatioAtMost(_) | Self::RatioAtLeast(_) => "x",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) | Self::RatioAtMost(most) => write!(f, "<= {most}"),
            Self::RatioAtLeast(least) => write!(f, ">= {least}"),
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Three digits or so: more would be noise.
        let places = match self.median {
            median if median >= 100.0 => 0,
            median if median >= 10.0 => 1,
            _ => 2,
        };
        write!(f, "{:.places$} ({:.places$}..{:.places$})", self.median, self.min, self.max)
    }
}
