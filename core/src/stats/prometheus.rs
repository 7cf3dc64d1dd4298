//! The text that Prometheus scrapes.

use std::fmt::{self, Display};

use super::Stats;
use super::families::{FAMILIES, Kind, Sample, Value};

impl Stats {
    /// The content type of what [`Stats::to_prometheus`] returns.
    pub const PROMETHEUS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

    /// These numbers in Prometheus's text format, version 0.0.4: a body to answer a scrape with.
    ///
    /// Every family has its `HELP` and `TYPE`; units are seconds and bytes; a label has one of a few fixed values
    /// and never holds a key or a scope. `core/docs/stats.md` says what each is and what to alert on. One store
    /// per page: two would have the same names.
    pub fn to_prometheus(&self) -> String {
        Page(self).to_string()
    }
}

struct Page<'a>(&'a Stats);

impl Display for Page<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for family in FAMILIES {
            let (name, help, kind) = (family.name, family.help, family.kind.name());
            writeln!(f, "# HELP {name} {help}\n# TYPE {name} {kind}")?;
            for sample in (family.samples)(self.0) {
                writeln!(f, "{name}{sample}")?;
            }
        }
        Ok(())
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

impl Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.suffix)?;
        if let Some((name, value)) = self.label {
            write!(f, "{{{name}=\"{value}\"}}")?;
        }
        write!(f, " {}", self.value)
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(value) => write!(f, "{value}"),
            Self::Millis(ms) => write!(f, "{}.{:03}", ms / 1_000, ms % 1_000),
        }
    }
}
