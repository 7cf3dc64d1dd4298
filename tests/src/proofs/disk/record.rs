//! One run of the workload on a healthy disk: its changes, and at which of them what was acknowledged.

use keyclaim::store::disk::DiskOp;
use keyclaim::{Millis, Token};

use super::Mode;
use super::action::Workload;
use super::drive::{Driver, Fail};
use super::world::{Delta, World};
use crate::seeded::Draws;

/// What was done, in order.
pub(super) struct Recording {
    /// Crash points begin here: a file appears whole or not at all, which a backend cannot know.
    pub(super) start: usize,
    pub(super) ops: Vec<DiskOp>,
    pub(super) mode: Mode,
    steps: Vec<Step>,
    pub(super) tokens: Vec<(u64, Token)>,
}

struct Step {
    what: String,
    begun_at: usize,
    acked_at: usize,
    passed_ms: u64,
    before: World,
    deltas: Vec<Delta>,
    tokens: usize,
}

/// What may be found after a crash at one point.
pub(super) struct Point {
    pub(super) worlds: Vec<World>,
    pub(super) passed_ms: u64,
    pub(super) now_ms: Millis,
    /// How many tokens had been told.
    pub(super) tokens: usize,
    /// What was going on.
    pub(super) what: String,
}

impl Recording {
    /// Runs the workload of this seed.
    pub(super) fn of(seed: u64, steps: u64, mode: Mode) -> Result<Self, String> {
        Self::drawn(Draws::new(seed), steps, mode, |_| true)
    }

    /// Runs what is drawn, so many steps at most and for as long as `goes_on`.
    pub(super) fn drawn(
        draws: Draws,
        steps: u64,
        mode: Mode,
        goes_on: impl Fn(&Draws) -> bool,
    ) -> Result<Self, String> {
        let mut driver = Driver::new(draws, mode).map_err(|error| format!("opening: {error}"))?;
        if mode.lies {
            driver.disk.lie();
        }
        let start = driver.disk.log_len();
        let mut done = Vec::new();
        for number in 0..steps {
            if !goes_on(&driver.draws) {
                break;
            }
            let before = driver.world.clone();
            let action = driver.choose(Workload::Whole);
            let (begun_at, passed_ms, tokens) =
                (driver.disk.log_len(), driver.passed_ms, driver.tokens.len());
            let deltas = match driver.perform(&action, false) {
                Ok(deltas) => deltas,
                Err(Fail::Broken(what)) => return Err(format!("step {number}, {action:?}: {what}")),
                Err(Fail::Store(error)) => return Err(format!("step {number}, {action:?}: {error:?}")),
            };
            let acked_at = driver.disk.log_len();
            driver.told(&deltas);
            let what = format!("{action:?}").chars().take(120).collect();
            done.push(Step { what, begun_at, acked_at, passed_ms, before, deltas, tokens });
        }
        let (ops, tokens) = (driver.disk.log(), driver.tokens.clone());
        driver.end();
        Ok(Self { start, ops, mode, steps: done, tokens })
    }

    /// What may be found if only the first `ops` changes were made.
    pub(super) fn at(&self, ops: usize, begin_ms: impl Fn(u64) -> Millis) -> Option<Point> {
        let next = self.steps.partition_point(|step| step.acked_at <= ops);
        let (step, is_acked) = match self.steps.get(next) {
            Some(step) => (step, false),
            None => (self.steps.last()?, true),
        };
        let worlds = if is_acked {
            vec![step.before.after(&step.deltas)]
        } else if step.begun_at < ops {
            step.before.in_doubt(&step.deltas)
        } else {
            vec![step.before.clone()]
        };
        Some(Point {
            worlds,
            passed_ms: step.passed_ms,
            now_ms: begin_ms(step.passed_ms),
            tokens: step.tokens,
            what: format!("step {next}, {}", step.what),
        })
    }
}
