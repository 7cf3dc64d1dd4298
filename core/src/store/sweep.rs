//! The reaper's two atomic steps, and its thread: look at what is due, then change a batch of it.
//!
//! As with claims, what the look finds is only a guess: the writer decides anew.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::commit::put;
use super::elect::Part;
use super::shared::Shared;
use super::tables::WriteRows;
use super::timer::after;
use super::wait::Bell;
use crate::rows::{DueEntry, DueRow, Rows, Slot};
use crate::upkeep::due::{self, Step, Turn};
use crate::upkeep::{Reap, jittered, pass};
use crate::{Error, ErrorKind, Millis, Result, Token};

/// A row that is to have its turn, and the token whose report as unfinished was told.
pub(crate) struct Told {
    pub(crate) row: DueRow,
    pub(crate) token: Option<Token>,
}

impl Shared {
    /// What is due in one lane behind this place, and what is to be done about it: as many entries as one batch has, and
    /// fewer as soon as `changes_max` of them are to be changed.
    pub(crate) fn look_due(
        &self,
        last: Slot,
        place: Option<&[u8]>,
        limit: usize,
        changes_max: usize,
    ) -> Result<Vec<(DueEntry, Result<Step>)>> {
        self.read(|rows| {
            let mut looked = Vec::new();
            let mut changes = 0;
            for entry in rows.due_before(last, place, limit)? {
                let step = match &entry.row {
                    Some(row) => self.turn(rows, row, last.when).map(|turn| turn.step),
                    None => Err(Error::new(ErrorKind::Corrupt, "an entry of the due index is damaged")),
                };
                changes += usize::from(is_change(&step));
                looked.push((entry, unless_of_the_medium(step)?));
                if changes == changes_max {
                    break;
                }
            }
            Ok(looked)
        })
    }

    /// Gives each row its turn, in one commit: what became of them, in their order.
    pub(crate) fn sweep(&self, now_ms: Millis, batch: &[Told]) -> Result<Vec<Result<Step>>> {
        let mut writer = self.lock_writer()?;
        let mut steps = Vec::with_capacity(batch.len());
        let mut changed = 0;
        let swept = writer.write_alone(self, |rows| {
            for told in batch {
                let step = unless_of_the_medium(self.sweep_row(rows, told, now_ms))?;
                changed += usize::from(is_change(&step));
                steps.push(step);
            }
            Ok(changed > 0)
        });
        if self.engine.is_poisoned() {
            self.waiters.ring_all();
        }
        swept?;
        if changed > 0 {
            self.stats.reap_batch(changed);
            steps.iter().flatten().for_each(|step| self.stats.reaped(step));
        }
        Ok(steps)
    }

    fn sweep_row(&self, rows: &mut WriteRows<'_>, told: &Told, now_ms: Millis) -> Result<Step> {
        let turn = self.turn(rows, &told.row, now_ms)?;
        if let Step::Unfinished { record } = &turn.step
            && told.token != Some(record.token)
        {
            // Nobody was told of it as it is now; the next pass does.
            return Ok(Step::NotDue);
        }
        put(rows, &turn.writes)?;
        Ok(turn.step)
    }

    /// One row's turn. An error or panic in here concerns this row only.
    fn turn(&self, rows: &impl Rows, row: &DueRow, now_ms: Millis) -> Result<Turn> {
        let turn = catch_unwind(AssertUnwindSafe(|| {
            self.options.maybe_panic();
            due::turn(rows, row, now_ms, |token| self.live.lives(&(row.key.clone(), token)))
        }));
        turn.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Internal, "a bug in keyclaim kept a row from being reaped; report it"))
        })
    }
}

/// The reaper's thread. Ends when the store closes; a poisoned store is passed by until it is reopened.
pub(super) fn run(shared: &Shared, period: Duration) {
    let period = jittered(period, shared.id);
    let bell = Arc::new(Bell::default());
    shared.closing.watch(&bell);
    let reap = Reap::new().or_until(&shared.closing);
    // Soon after opening, or a process that is restarted often would never reap.
    let mut next = after(period / 10);
    while !shared.closing.is_cancelled() {
        bell.wait_until(next);
        if shared.engine.check().is_ok() && !shared.closing.is_cancelled() {
            let pass = || {
                if shared.does(Part::Reaper, Millis::from_duration(period))? {
                    pass(shared, &reap).map(drop)
                } else {
                    Ok(())
                }
            };
            match catch_unwind(AssertUnwindSafe(pass)) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(target: "keyclaim", %error, "a pass of the reaper failed; the next one goes on");
                }
                Err(_) => tracing::error!(target: "keyclaim", "a pass of the reaper panicked; report it"),
            }
        }
        next = after(period);
    }
}

fn is_change(step: &Result<Step>) -> bool {
    matches!(step, Ok(step) if !matches!(step, Step::NotDue))
}

/// An error of one row is part of the answer; one of the medium ends the pass.
fn unless_of_the_medium(step: Result<Step>) -> Result<Result<Step>> {
    match step {
        Err(error) if matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::Unknown) => Err(error),
        step => Ok(step),
    }
}
