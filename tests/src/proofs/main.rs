//! The program `proofs`: runs harnesses, prints what they come to, and keeps the ledger.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::json;

use super::ledger::{self, Line};
use super::place::{self, Place};
use super::registry::{ALL, Harness, Pace, RECORDED};
use super::table::{BEGIN, END, placed, readme, table};
use super::{Budget, Report};
use crate::kills::child_main;
use crate::seeded;

/// How far the seeds of two turns are apart: a harness counts up from the one that it is given.
const SEEDS_OF_A_TURN: u64 = 1 << 20;

/// Runs the program with these arguments. Fails if a promise was seen broken, and for arguments that it does not
/// know.
pub fn main(arguments: &[String]) -> ExitCode {
    if let Some(("child", rest)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        child_main(rest);
        return ExitCode::SUCCESS;
    }
    let done =
        Settings::read(arguments).and_then(|settings| match (&settings.record, settings.writes_readme) {
            (Some(name), _) => settings.note(name),
            (None, true) => settings.write_readme().map(|()| true),
            (None, false) => settings.run(),
        });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

/// What the arguments say.
#[derive(Debug)]
struct Settings {
    harnesses: Vec<&'static Harness>,
    seed: Option<u64>,
    cases: Option<u64>,
    minutes: Option<u64>,
    appends: bool,
    ledger: PathBuf,
    out: PathBuf,
    readme: PathBuf,
    writes_readme: bool,
    record: Option<String>,
    seconds: u64,
    violations: u64,
}

impl Settings {
    fn read(arguments: &[String]) -> Result<Self, String> {
        let mut settings = Self {
            harnesses: Vec::new(),
            seed: None,
            cases: None,
            minutes: None,
            appends: false,
            ledger: place::top().join("tests/proofs.jsonl"),
            out: place::target().join("proofs.json"),
            readme: place::top().join("README.md"),
            writes_readme: false,
            record: None,
            seconds: 0,
            violations: 0,
        };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value = || rest.next().ok_or_else(|| usage(&format!("{argument} needs a value")));
            let number = |text: &String| text.parse().map_err(|_| usage(&format!("{text} is no number")));
            match argument.as_str() {
                "--harness" => {
                    let name = value()?;
                    let found = Harness::named(name).ok_or_else(|| usage(&format!("there is no {name}")))?;
                    settings.harnesses.push(found);
                }
                "--seed" => settings.seed = Some(number(value()?)?),
                "--cases" => settings.cases = Some(number(value()?)?),
                "--minutes" => settings.minutes = Some(number(value()?)?),
                "--append" => settings.appends = true,
                "--ledger" => settings.ledger = value()?.into(),
                "--out" => settings.out = value()?.into(),
                "--readme" => settings.writes_readme = true,
                "--page" => settings.readme = value()?.into(),
                "--record" => settings.record = Some(value()?.clone()),
                "--seconds" => settings.seconds = number(value()?)?,
                "--violations" => settings.violations = number(value()?)?,
                _ => return Err(usage(&format!("{argument} is not known"))),
            }
        }
        if settings.cases.is_some() && settings.minutes.is_some() {
            return Err(usage("--cases and --minutes exclude each other"));
        }
        // A long run that leaves no line is a run that may have been left out on purpose.
        settings.appends |= settings.minutes.is_some();
        if settings.harnesses.is_empty() {
            settings.harnesses = ALL.iter().collect();
        }
        Ok(settings)
    }

    /// Runs the harnesses one after the other. False if a promise was seen broken.
    fn run(&self) -> Result<bool, String> {
        // Before hours are spent: a ledger that cannot be read cannot be added to either.
        ledger::read(&self.ledger)?;
        let place = Place::look();
        let weights: u64 = self.harnesses.iter().map(|harness| u64::from(harness.weight)).sum();
        let mut lines = Vec::new();
        let mut broken = Vec::new();
        for harness in &self.harnesses {
            let lasting = self.minutes.map(|minutes| minutes * 60 * u64::from(harness.weight) / weights);
            eprintln!("{}", announcement(harness, lasting));
            let began = Instant::now();
            let report = self.report(harness, lasting.map(Duration::from_secs));
            let line = Line::of(&place, harness.name, began.elapsed().as_secs().max(1), &report);
            eprintln!("{line}");
            if self.appends {
                ledger::append(&self.ledger, &line)
                    .map_err(|error| format!("{}: {error}\n{line}", self.ledger.display()))?;
            }
            broken.extend(report.violations);
            lines.push(line);
        }
        println!("{}", table(&lines));
        self.write_json(&lines, &broken)?;
        if self.appends {
            self.write_readme()?;
        }
        for violation in &broken {
            println!("VIOLATION {violation}");
        }
        Ok(lines.iter().all(|line| line.violations == 0))
    }

    fn report(&self, harness: &Harness, lasting: Option<Duration>) -> Report {
        // A seed for itself, short enough to be copied by hand and to be counted up from.
        let seed = self.seed.unwrap_or_else(|| seeded::seed(harness.name) >> 16);
        let budget = |seed, cases| Budget { seed, cases };
        match (lasting, harness.pace) {
            (None, _) => caught(harness, &budget(seed, self.cases.unwrap_or(harness.cases))),
            (Some(lasting), Pace::Seconds) => caught(harness, &budget(seed, lasting.as_secs())),
            (Some(lasting), Pace::Turns(cases)) => {
                let (began, mut report) = (Instant::now(), Report::new(harness.name, seed));
                for turn in 0.. {
                    let seed = seed.wrapping_add(turn * SEEDS_OF_A_TURN);
                    report.take_in(caught(harness, &budget(seed, cases)));
                    report.add("turns", 1);
                    if began.elapsed() >= lasting || !report.violations.is_empty() {
                        break;
                    }
                }
                report
            }
        }
    }

    /// Notes what another tool has done.
    fn note(&self, name: &str) -> Result<bool, String> {
        if !RECORDED.iter().any(|(known, _)| name.split(' ').next() == Some(known)) {
            let known: Vec<&str> = RECORDED.iter().map(|(name, _)| *name).collect();
            return Err(usage(&format!("--record takes {}, a space and more words", known.join(" or "))));
        }
        let cases = self.cases.ok_or_else(|| usage("--record needs --cases"))?;
        let line = Line {
            place: Place::look(),
            harness: name.to_owned(),
            seed: self.seed.unwrap_or_default(),
            seconds: self.seconds,
            cases,
            counts: std::collections::BTreeMap::default(),
            violations: self.violations,
            replays: Vec::new(),
        };
        ledger::append(&self.ledger, &line).map_err(|error| format!("{}: {error}", self.ledger.display()))?;
        println!("{line}");
        self.write_readme().map(|()| true)
    }

    /// Rewrites the table in the README by the ledger.
    fn write_readme(&self) -> Result<(), String> {
        let told = |error| format!("{}: {error}", self.readme.display());
        let page = fs::read_to_string(&self.readme).map_err(told)?;
        let text = readme(&ledger::read(&self.ledger)?);
        let page = placed(&page, &text)
            .ok_or_else(|| format!("{} has no `{BEGIN}` and `{END}`", self.readme.display()))?;
        fs::write(&self.readme, page).map_err(told)
    }

    fn write_json(&self, lines: &[Line], broken: &[String]) -> Result<(), String> {
        let report = json!({
            "runs": lines.iter().map(Line::json).collect::<Vec<_>>(),
            "violations": broken,
        });
        let folder = self.out.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&self.out, format!("{report:#}\n")))
            .map_err(|error| format!("{}: {error}", self.out.display()))
    }
}

/// A harness that panics has found something too, and does not keep the others from running.
fn caught(harness: &Harness, budget: &Budget) -> Report {
    catch_unwind(AssertUnwindSafe(|| (harness.run)(budget))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
        let mut report = Report::new(harness.name, budget.seed);
        report.violation(format!(
            "panicked: {}; replay: cargo run -p keyclaim-tests --bin proofs -- --harness {} --seed {} --cases {}",
            text.lines().next().unwrap_or_default(),
            harness.name,
            budget.seed,
            budget.cases
        ));
        report
    })
}

fn announcement(harness: &Harness, lasting: Option<u64>) -> String {
    match lasting {
        Some(seconds) => format!("{}: {seconds} s", harness.name),
        None => format!("{}: by count", harness.name),
    }
}

fn usage(why: &str) -> String {
    let names: Vec<&str> = ALL.iter().map(|harness| harness.name).collect();
    format!(
        "{why}\n\
         usage: proofs [--harness NAME]... [--seed N] [--cases N | --minutes N] [--append]\n\
         \x20      proofs --readme\n\
         \x20      proofs --record 'NAME MORE' --cases N [--seconds N] [--violations N]\n\
         --ledger, --out and --page FILE stand in for tests/proofs.jsonl, target/proofs.json, README.md\n\
         harnesses: {}",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    static BROKEN: Harness = Harness::new("kills", broken, 1, "cases", Pace::Turns(1), 1);
    static PANICKING: Harness = Harness::new("histories", panicking, 1, "cases", Pace::Turns(1), 1);
    static SOUND: Harness = Harness::new("soak", sound, 1, "cases", Pace::Seconds, 2);

    fn broken(budget: &Budget) -> Report {
        let mut report = sound(budget);
        // The third turn of a long run finds something.
        if budget.seed >= 2 * SEEDS_OF_A_TURN {
            report.violation("broken; replay: so".into());
        }
        report
    }

    fn panicking(_: &Budget) -> Report {
        panic!("an invariant\ndoes not hold");
    }

    fn sound(budget: &Budget) -> Report {
        Report { cases: budget.cases, ..Report::new("any", budget.seed) }
    }

    /// Settings on files of their own.
    fn settings(folder: &Path, arguments: &[&str], harnesses: Vec<&'static Harness>) -> Settings {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let readme = folder.join("page.md");
        fs::write(&readme, format!("{BEGIN}\n{END}\n")).expect("a folder of our own");
        let (ledger, out) = (folder.join("ledger.jsonl"), folder.join("new/proofs.json"));
        Settings { harnesses, ledger, out, readme, ..Settings::read(&arguments).expect("arguments") }
    }

    #[test]
    fn a_harness_that_finds_something_is_noted_and_the_next_one_runs() {
        let folder = tempfile::tempdir().expect("a folder");
        let arguments = ["--minutes", "1", "--seed", "0"];
        let settings = settings(folder.path(), &arguments, vec![&BROKEN, &PANICKING, &SOUND]);
        assert_eq!(settings.run(), Ok(false));
        let lines = ledger::read(&settings.ledger).expect("a ledger");
        let brief: Vec<_> =
            lines.iter().map(|line| (line.cases, line.violations, line.count("turns"))).collect();
        assert_eq!(brief, [(3, 1, 3), (0, 1, 1), (30, 0, 0)]);
        assert_eq!(lines[0].replays, ["broken; replay: so"]);
        assert!(lines[1].replays[0].starts_with("panicked: an invariant; replay: cargo run"), "{lines:?}");
        let json = fs::read_to_string(&settings.out).expect("it wrote its report");
        assert!(json.contains("broken; replay: so"), "{json}");
    }

    #[test]
    fn by_count_there_is_one_turn_and_no_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = settings(folder.path(), &["--cases", "5"], vec![&SOUND]);
        assert_eq!(settings.run(), Ok(true));
        assert!(!settings.ledger.exists());
    }
}
