//! The reaper: removes what is past its horizon, and reports and keeps what is unfinished.
//!
//! ```text
//! look at the next due rows -> tell the hook of the unfinished ones -> one commit -> progress -> again
//! ```

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::Hook;
use super::due::Step;
use crate::key::Id;
use crate::limits::{REAP_BATCH_LEN_MAX, REAP_JITTER_PERCENT, REAP_LISTED_MAX};
use crate::rows::{DueRow, Lane, Slot};
use crate::store::{Cancel, Inspection, Shared, Told};
use crate::{Error, ErrorKind, Millis, Result, Store, StoreId};

/// One pass of the reaper: by default over all that is due now.
#[derive(Clone, Default)]
pub struct Reap {
    at_ms: Option<Millis>,
    changes_max: Option<usize>,
    cancel: Option<Cancel>,
    on_progress: Option<Hook<Reaped>>,
}

/// What a pass did.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Reaped {
    /// Due rows that were read, those left alone included.
    pub rows_read: u64,
    /// Records removed: finished, and past their horizon.
    pub removed: u64,
    /// Successes whose body and headers were dropped: their replay window is over.
    pub tombstoned: u64,
    /// Archived failures removed.
    pub archived_removed: u64,
    /// Entries of the due index that were wrong about their row, and were put right.
    pub reindexed: u64,
    /// Records that were reported as unfinished past their horizon.
    pub unfinished_reported: u64,
    /// The first 1,000 of them.
    pub unfinished: Vec<Unfinished>,
    /// Due rows that cannot be read: damaged, or written by a newer keyclaim. They stay.
    pub damaged: u64,
    /// Due rows whose turn failed, such as by a panic of the hook. They stay for the next pass.
    pub failed: u64,
    /// Commits that were made.
    pub batches: u64,
    /// Whether all that was due had its turn; not if the pass was bounded or cancelled.
    pub is_whole: bool,
}

/// A record that is unfinished past its horizon: it stays, and a person should look.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Unfinished {
    /// Its key.
    pub id: Id,
    /// What it holds: why it is unfinished is its `standing`, since when its `applied_ms`.
    pub found: Inspection,
}

impl Reap {
    /// A pass over all that is due now.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes what was due at this instant of store time, which must not be later than now: what is answered
    /// again must not be removed early.
    #[must_use]
    pub fn at(mut self, when: Millis) -> Self {
        self.at_ms = Some(when);
        self
    }

    /// Ends the pass once it has changed this many rows.
    #[must_use]
    pub fn changes_max(mut self, rows: usize) -> Self {
        self.changes_max = Some(rows);
        self
    }

    /// Ends the pass between two commits when cancelled.
    #[must_use]
    pub fn or_until(mut self, cancel: &Cancel) -> Self {
        self.cancel = Some(cancel.clone());
        self
    }

    /// Is told what the pass has done so far, after each look at up to 256 rows and the commit it led to.
    #[must_use]
    pub fn on_progress(mut self, progress: impl Fn(&Reaped) + Send + Sync + 'static) -> Self {
        self.on_progress = Some(Arc::new(progress));
        self
    }

    /// How many rows may still be changed.
    fn changes_left(&self, done: &Reaped) -> usize {
        let changed = usize::try_from(done.changed()).unwrap_or(usize::MAX);
        self.changes_max.map_or(usize::MAX, |max| max.saturating_sub(changed))
    }

    fn is_over(&self, done: &Reaped) -> bool {
        self.changes_left(done) == 0 || self.cancel.as_ref().is_some_and(Cancel::is_cancelled)
    }
}

impl Store {
    /// Removes what is past its horizon, and reports what is unfinished: one pass, here and now.
    ///
    /// Without passes, by hand or by [`Options::reap_every`](crate::Options::reap_every), nothing is ever
    /// removed. No answer to a claim depends on whether one has run. A pass reads only what is due, changes
    /// at most 256 rows in a commit, and lets claims go in between. It never touches a claim that lives in
    /// this process. A damaged record is counted and passed over.
    ///
    /// *Durability*: what is counted as done is on disk. *Errors*: `Invalid` (a time to come), `Busy` (another
    /// pass runs), `Unknown` and `Poisoned` (reopen; the next pass goes on), `Closed`, `Corrupt`. After an
    /// error the commits before it stay done.
    pub fn reap(&self, reap: &Reap) -> Result<Reaped> {
        pass(&self.running.shared, reap)
    }
}

pub(crate) fn pass(shared: &Shared, reap: &Reap) -> Result<Reaped> {
    shared.check_outside()?;
    let _alone = shared
        .reaping
        .try_lock()
        .ok_or_else(|| Error::busy("another pass of the reaper runs", RETRY_AFTER))?;
    let now_ms = shared.now_ms();
    let at_ms = reap.at_ms.unwrap_or(now_ms);
    if at_ms > now_ms {
        return Err(Error::invalid("a pass cannot run ahead of store time; give a time that has come"));
    }
    let mut done = Reaped::default();
    let mut lanes = [Lane::Finished, Lane::Unfinished].into_iter();
    let mut last = lanes.next().map(|lane| Slot { lane, when: at_ms });
    let mut place: Option<Vec<u8>> = None;
    let result = loop {
        let Some(slot) = last else {
            done.is_whole = true;
            break Ok(());
        };
        if reap.is_over(&done) {
            break Ok(());
        }
        let looked = shared.look_due(slot, place.as_deref(), REAP_BATCH_LEN_MAX, reap.changes_left(&done));
        let looked = match looked {
            Ok(looked) => looked,
            Err(error) => break Err(error),
        };
        let Some((behind, _)) = looked.last() else {
            (last, place) = (lanes.next().map(|lane| Slot { lane, when: at_ms }), None);
            continue;
        };
        place = Some(behind.place.clone());
        let found = looked.into_iter().map(|(entry, step)| (entry.row, step));
        if let Err(error) = batch(shared, at_ms, found, &mut done) {
            break Err(error);
        }
        if let Some(progress) = &reap.on_progress {
            progress(&done);
        }
    };
    shared.stats.reap_pass(&done);
    log(&done);
    result.map(|()| done)
}

/// One look's worth of rows: tells of the unfinished ones, then commits.
fn batch(
    shared: &Shared,
    at_ms: Millis,
    found: impl Iterator<Item = (Option<DueRow>, Result<Step>)>,
    done: &mut Reaped,
) -> Result<()> {
    let (mut turns, mut reports) = (Vec::new(), Vec::new());
    for (row, step) in found {
        done.rows_read += 1;
        let told = step.and_then(|step| tell(shared, at_ms, row.as_ref(), step));
        match (row, told) {
            (_, Err(error)) => done.fail(&error),
            (Some(row), Ok(Next::Turn)) => {
                turns.push(Told { row, token: None });
                reports.push(None);
            }
            (Some(row), Ok(Next::Report(unfinished))) => {
                turns.push(Told { row, token: Some(unfinished.found.token) });
                reports.push(Some(*unfinished));
            }
            (_, Ok(_)) => {}
        }
    }
    if turns.is_empty() {
        return Ok(());
    }
    let steps = shared.sweep(at_ms, &turns)?;
    done.batches += u64::from(steps.iter().flatten().any(|step| !matches!(step, Step::NotDue)));
    for (step, report) in steps.into_iter().zip(reports) {
        match step {
            Ok(step) => done.count(&step, report),
            Err(error) => done.fail(&error),
        }
    }
    Ok(())
}

/// What follows from a look at one row.
enum Next {
    Nothing,
    Turn,
    Report(Box<Unfinished>),
}

/// Tells the hook, if it is a report: before it is recorded as one.
fn tell(shared: &Shared, at_ms: Millis, row: Option<&DueRow>, step: Step) -> Result<Next> {
    let record = match (step, row) {
        (Step::NotDue, _) => return Ok(Next::Nothing),
        (Step::Unfinished { record }, Some(row)) => (record, Id::decode(&row.key)?),
        _ => return Ok(Next::Turn),
    };
    let (record, id) = record;
    let unfinished = Unfinished { id, found: Inspection::of(&record, at_ms) };
    tracing::warn!(
        target: "keyclaim", id = %unfinished.id.short_hash(), token = record.token.0,
        "unfinished past its horizon; resolve or forget it"
    );
    if let Some(hook) = &shared.options.on_unfinished {
        catch_unwind(AssertUnwindSafe(|| hook(&unfinished)))
            .map_err(|_| Error::new(ErrorKind::Internal, "the hook for unfinished records panicked"))?;
    }
    Ok(Next::Report(Box::new(unfinished)))
}

impl Reaped {
    fn changed(&self) -> u64 {
        self.removed + self.tombstoned + self.archived_removed + self.reindexed + self.unfinished_reported
    }

    fn count(&mut self, step: &Step, report: Option<Unfinished>) {
        match step {
            Step::NotDue => {}
            Step::Removed => self.removed += 1,
            Step::Tombstoned => self.tombstoned += 1,
            Step::Unarchived => self.archived_removed += 1,
            Step::Reindexed => self.reindexed += 1,
            Step::Unfinished { .. } => {
                self.unfinished_reported += 1;
                self.unfinished.extend(report.filter(|_| self.unfinished.len() < REAP_LISTED_MAX));
            }
        }
    }

    fn fail(&mut self, error: &Error) {
        match error.kind() {
            ErrorKind::Corrupt | ErrorKind::Incompatible => self.damaged += 1,
            _ => self.failed += 1,
        }
        tracing::warn!(target: "keyclaim", %error, "a due row was passed over");
    }
}

/// The period of one store's passes: always the same for one store, and another for the next, so that a load
/// that comes with them can be told from others.
pub(crate) fn jittered(period: Duration, id: StoreId) -> Duration {
    let permille = REAP_JITTER_PERCENT * 10;
    let share = u128::from_le_bytes(id.0) % u128::from(2 * permille + 1);
    let share = u32::try_from(share).unwrap_or(permille);
    (period / 1_000).saturating_mul(1_000 - permille + share)
}

fn log(done: &Reaped) {
    tracing::debug!(
        target: "keyclaim", rows_read = done.rows_read, removed = done.removed, tombstoned = done.tombstoned,
        damaged = done.damaged, failed = done.failed, "a pass of the reaper ended"
    );
}

impl fmt::Debug for Reap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reap")
            .field("at_ms", &self.at_ms)
            .field("changes_max", &self.changes_max)
            .finish_non_exhaustive()
    }
}

/// A batch of a pass takes some milliseconds, and most passes have few.
const RETRY_AFTER: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_steady_for_one_store_and_at_most_a_tenth_off() {
        let hour = Duration::from_hours(1);
        let mut periods: Vec<_> = (0..=255).map(|byte| jittered(hour, StoreId([byte; 16]))).collect();
        assert_eq!(periods[7], jittered(hour, StoreId([7; 16])));
        periods.sort_unstable();
        assert!(periods[0] >= hour * 9 / 10 && periods[255] <= hour * 11 / 10, "{periods:?}");
        periods.dedup();
        assert!(periods.len() > 50, "stores reap together: {periods:?}");
        jittered(Duration::MAX, StoreId([255; 16]));
    }
}
