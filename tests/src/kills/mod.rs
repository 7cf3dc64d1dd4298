//! Real processes on a real file, killed with SIGKILL at random moments.
//!
//! ```text
//!   the parent --SIGKILL--> a child: threads that claim, write, complete on one store's file
//!              <--lines---- a line for each answer, written to the pipe after it was given
//! ```
//!
//! What a killed child had said is in the pipe. The parent opens the file itself, or starts the next child on
//! it, and holds what is there against a ledger of those lines: all that was acknowledged is there, nothing
//! half, no token is given out twice, and every replay is the bytes that were completed. The ledger knows none
//! of the store's code: what a row must hold follows from the number of its key.
//!
//! The seed settles what the children do and when they are killed; where the kill finds them is the machine's.

mod child;
mod ledger;
mod line;
mod look;
pub(crate) mod process;
mod script;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) use child::end_with_parent;
pub use child::main as child_main;
use ledger::Ledger;
pub(crate) use line::READY;
use process::Process;

use crate::seeded::Draws;

/// How many kills one file lives through before the next one is begun (arbitrary).
const KILLS_PER_FILE: u64 = 25;
/// More threads, more answers to one sync (arbitrary).
const THREADS: u64 = 8;
/// Longer than any opening takes; only a hang is this late (arbitrary).
const READY_WITHIN: Duration = Duration::from_secs(30);

/// A mistake that the store or its disk could make. The harness must see each of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Plant {
    /// A child says that something was answered before it has asked for it.
    AckFirst,
    /// The rows that belong to an outcome are committed behind it.
    Halves,
    /// What is completed differs from one attempt to the next.
    OtherBody,
    /// The file is now and then what it was some kills ago, as on a disk that forgets.
    OldFile,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program whose first argument `child` leads to [`child_main`].
    pub program: PathBuf,
    /// Where the numbers come from.
    pub seed: u64,
    /// How many children are killed.
    pub kills: u64,
    /// The mistake, if one is to be made.
    pub plant: Option<Plant>,
}

/// What was done and seen.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Children killed.
    pub kills: u64,
    /// Those among them that were killed before they had said that they work: while opening or making the file.
    pub kills_in_opening: u64,
    /// Answers that were told and held against the file.
    pub acks: u64,
    /// Takeovers among them: what a killed child had left in flight was won by a later one.
    pub takeovers: u64,
    /// Looks at one key in the file.
    pub looks: u64,
    /// Each is one line.
    pub violations: Vec<String>,
}

impl Plant {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::AckFirst, Self::Halves, Self::OtherBody, Self::OldFile];

    /// Its name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::AckFirst => "ack-first",
            Self::Halves => "halves",
            Self::OtherBody => "other-body",
            Self::OldFile => "old-file",
        }
    }

    /// The plant of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|plant| plant.name() == name)
    }
}

/// Kills as many children as the plan says, and holds each file against what they had said.
///
/// # Panics
/// If the machine gives no processes, pipes or files: then nothing was tested.
pub fn run(plan: &Plan) -> Report {
    let mut report = Report::default();
    let mut file = 0;
    while report.kills < plan.kills && report.violations.is_empty() {
        let kills = KILLS_PER_FILE.min(plan.kills - report.kills);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut life = Life {
            plan,
            file,
            path: folder.path().join("store"),
            aside: folder.path().join("aside"),
            draws: Draws::new(plan.seed.wrapping_add(file << 32)),
            ledger: Ledger::default(),
        };
        if let Err(violation) = life.live(kills, &mut report) {
            report.violations.push(format!(
                "{violation}; replay: cargo run -p keyclaim-tests --bin kills -- --seed {} --kills {}",
                plan.seed, plan.kills
            ));
        }
        report.acks += life.ledger.acks();
        report.takeovers += life.ledger.takeovers();
        file += 1;
    }
    report
}

/// One file, from its making to its last check.
struct Life<'a> {
    plan: &'a Plan,
    file: u64,
    path: PathBuf,
    aside: PathBuf,
    draws: Draws,
    ledger: Ledger,
}

impl Life<'_> {
    fn live(&mut self, kills: u64, report: &mut Report) -> Result<(), String> {
        for kill in 0..kills {
            self.kill(kill, kill + 1 == kills, report)
                .map_err(|violation| format!("file {}, kill {kill}: {violation}", self.file))?;
        }
        Ok(())
    }

    fn kill(&mut self, kill: u64, is_last: bool, report: &mut Report) -> Result<(), String> {
        let (lines, was_ready) = self.child(kill)?;
        report.kills += 1;
        report.kills_in_opening += u64::from(!was_ready);
        for line in &lines {
            self.ledger.hear(line)?;
        }
        self.ledger.end_of_child();
        self.forget_now_and_then(kill);
        // Every second time the next child is the first to open what the killed one has left.
        if self.draws.below(2) == 0 || is_last {
            report.looks += look::at(&self.path, &mut self.ledger, is_last, &mut self.draws)?;
        }
        Ok(())
    }

    /// Runs one child and kills it. Returns what it had said, and whether it had come to work.
    fn child(&mut self, kill: u64) -> Result<(Vec<String>, bool), String> {
        let seed = self.draws.below(u64::MAX);
        let arguments = [
            "child".to_owned(),
            self.path.display().to_string(),
            seed.to_string(),
            kill.to_string(),
            self.ledger.next_key().to_string(),
            self.plan.plant.map_or("none", Plant::name).to_owned(),
            THREADS.to_string(),
        ];
        let is_early = self.draws.below(8) == 0;
        let after_us = match (is_early, self.draws.below(10)) {
            (true, _) => self.draws.below(15_000),
            (false, 0..6) => self.draws.below(60_000),
            (false, _) => self.draws.below(200_000),
        };
        let mut process = Process::start(&self.plan.program, &arguments);
        if !is_early && !process.wait_for_ready(READY_WITHIN) {
            return Err(format!("the child was not ready in time, or ended: {}", process.kill().join(" | ")));
        }
        std::thread::sleep(Duration::from_micros(after_us));
        if let Some(status) = process.ended() {
            return Err(format!("the child ended by itself, {status}: {}", process.kill().join(" | ")));
        }
        let lines = process.kill();
        let was_ready = lines.iter().any(|line| line == line::READY);
        Ok((lines, was_ready))
    }

    fn forget_now_and_then(&self, kill: u64) {
        if self.plan.plant != Some(Plant::OldFile) || !self.path.exists() {
            return;
        }
        let (from, to): (&Path, &Path) =
            if kill % 4 == 3 { (&self.aside, &self.path) } else { (&self.path, &self.aside) };
        if (kill.is_multiple_of(4) || kill % 4 == 3) && from.exists() {
            std::fs::copy(from, to).expect("the parent's own folder");
        }
    }
}
