//! What is counted while the store works: plain atomics, since no two of them have to agree at every instant.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Stats;
use crate::limits::GROUP_BUCKETS_LEN;
use crate::machine::{Answer, Command, Decision, OwnerAnswer, WonKind};
use crate::upkeep::Reaped;
use crate::upkeep::due::Step;
use crate::{ErrorKind, Result};

#[derive(Debug, Default)]
pub(crate) struct Counters {
    won: AtomicU64,
    won_again: AtomicU64,
    replayed: AtomicU64,
    in_flight: AtomicU64,
    mismatched: AtomicU64,
    held: AtomicU64,
    expired: AtomicU64,
    claims_conflicted: AtomicU64,
    claims_failed: AtomicU64,
    conflicts: AtomicU64,
    taken_over: AtomicU64,
    expired_reuse: AtomicU64,
    untold: AtomicU64,
    self_taken_over: AtomicU64,
    self_held: AtomicU64,
    completed: AtomicU64,
    fenced: AtomicU64,
    fenced_commands: AtomicU64,
    unknown: AtomicU64,
    busy: AtomicU64,
    owner_busy: AtomicU64,
    groups_by_size: [AtomicU64; GROUP_BUCKETS_LEN.len() + 1],
    grouped_commands: AtomicU64,
    largest_group: AtomicU64,
    reap_passes: AtomicU64,
    reap_rows_read: AtomicU64,
    last_reap_rows_read: AtomicU64,
    reap_batches: AtomicU64,
    largest_reap_batch: AtomicU64,
    reaped: AtomicU64,
    tombstoned: AtomicU64,
    archived_removed: AtomicU64,
    reindexed: AtomicU64,
    unfinished_reported: AtomicU64,
    reap_damaged: AtomicU64,
    reap_failed: AtomicU64,
}

impl Counters {
    /// Counts what a call of claim returned. A win is counted by the writer, told or not; see [`Self::served`].
    pub(crate) fn told<W>(&self, told: &Decision<W>, kind: impl FnOnce(&W) -> WonKind) {
        match told {
            Decision::Won(won) if kind(won) == WonKind::Again => add(&self.won_again),
            Decision::Won(_) => {}
            Decision::Replay(_) => add(&self.replayed),
            Decision::InFlight { .. } => add(&self.in_flight),
            Decision::Mismatch { .. } => add(&self.mismatched),
            Decision::Held { .. } => add(&self.held),
            Decision::Expired => add(&self.expired),
        }
    }

    pub(crate) fn claim_conflicted(&self) {
        add(&self.claims_conflicted);
    }

    pub(crate) fn claim_failed(&self) {
        add(&self.claims_failed);
    }

    /// Counts what a command was answered in a transaction that has committed.
    pub(crate) fn committed(&self, command: &Command, answer: &Result<Answer>) {
        self.served(command, answer, true);
        match (command, answer) {
            (Command::Claim(_), Ok(Answer::Decision(decision))) => self.told(decision, |won| won.kind),
            (Command::Claim(_), Ok(Answer::Conflict(_))) => self.claim_conflicted(),
            _ => {}
        }
    }

    /// Counts what the writer made of a command: what is on disk, whether or not anybody hears of it.
    pub(crate) fn served(&self, command: &Command, answer: &Result<Answer>, has_written: bool) {
        match (command, answer) {
            (Command::Claim(_), Ok(Answer::Decision(Decision::Won(won)))) => self.won(won.kind),
            (Command::TakeAbandoned { .. }, Ok(Answer::Decision(Decision::Won(_)))) => {
                add(&self.self_taken_over);
            }
            (Command::TakeAbandoned { .. }, Ok(Answer::Decision(Decision::Held { .. }))) => {
                add(&self.self_held);
            }
            (_, Ok(Answer::Conflict(_))) => add(&self.conflicts),
            (_, Ok(Answer::Undone)) => add(&self.untold),
            // Asked again it writes nothing, and was counted before.
            (_, Ok(Answer::Owner(OwnerAnswer::Completed))) if has_written => add(&self.completed),
            (Command::Operator(_), Err(error)) if error.kind() == ErrorKind::Fenced => {
                add(&self.fenced_commands);
            }
            (_, Err(error)) if error.kind() == ErrorKind::Unknown => add(&self.unknown),
            _ => {}
        }
    }

    fn won(&self, kind: WonKind) {
        match kind {
            WonKind::Again => return,
            WonKind::Takeover => add(&self.taken_over),
            WonKind::ReusedAfterWindow => add(&self.expired_reuse),
            WonKind::Fresh | WonKind::Reattempt => {}
        }
        add(&self.won);
    }

    /// Counts an owner's command that another attempt's or an operator's refused; `is_news` if its claim had not
    /// been told before.
    pub(crate) fn overtaken(&self, is_news: bool) {
        add(&self.fenced_commands);
        if is_news {
            add(&self.fenced);
        }
    }

    pub(crate) fn busy(&self) {
        add(&self.busy);
    }

    pub(crate) fn owner_busy(&self) {
        add(&self.owner_busy);
    }

    /// Counts a commit group that is on disk.
    pub(crate) fn group(&self, len: usize) {
        let size = GROUP_BUCKETS_LEN.iter().take_while(|bound| len > **bound).count();
        if let Some(count) = self.groups_by_size.get(size) {
            add(count);
        }
        self.grouped_commands.fetch_add(len as u64, Ordering::Relaxed);
        self.largest_group.fetch_max(len as u64, Ordering::Relaxed);
    }

    /// Counts what the reaper did to one row.
    pub(crate) fn reaped(&self, step: &Step) {
        match step {
            Step::Removed => add(&self.reaped),
            Step::Tombstoned => add(&self.tombstoned),
            Step::Unarchived => add(&self.archived_removed),
            Step::Unfinished { .. } => add(&self.unfinished_reported),
            Step::Reindexed => add(&self.reindexed),
            Step::NotDue => {}
        }
    }

    /// Counts a commit of the reaper.
    pub(crate) fn reap_batch(&self, len: usize) {
        add(&self.reap_batches);
        self.largest_reap_batch.fetch_max(len as u64, Ordering::Relaxed);
    }

    /// Counts a pass of the reaper that ended.
    pub(crate) fn reap_pass(&self, done: &Reaped) {
        add(&self.reap_passes);
        self.reap_rows_read.fetch_add(done.rows_read, Ordering::Relaxed);
        self.last_reap_rows_read.store(done.rows_read, Ordering::Relaxed);
        self.reap_damaged.fetch_add(done.damaged, Ordering::Relaxed);
        self.reap_failed.fetch_add(done.failed, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Stats {
        let groups_by_size = self.groups_by_size.each_ref().map(of);
        Stats {
            won: of(&self.won),
            won_again: of(&self.won_again),
            replayed: of(&self.replayed),
            in_flight: of(&self.in_flight),
            mismatched: of(&self.mismatched),
            held: of(&self.held),
            expired: of(&self.expired),
            claims_conflicted: of(&self.claims_conflicted),
            conflicts: of(&self.conflicts),
            claims_failed: of(&self.claims_failed),
            taken_over: of(&self.taken_over),
            expired_reuse: of(&self.expired_reuse),
            untold: of(&self.untold),
            self_taken_over: of(&self.self_taken_over),
            self_held: of(&self.self_held),
            completed: of(&self.completed),
            fenced: of(&self.fenced),
            fenced_commands: of(&self.fenced_commands),
            unknown: of(&self.unknown),
            busy: of(&self.busy),
            owner_busy: of(&self.owner_busy),
            groups: groups_by_size.iter().sum(),
            grouped_commands: of(&self.grouped_commands),
            largest_group: of(&self.largest_group),
            groups_by_size,
            reap_passes: of(&self.reap_passes),
            reap_rows_read: of(&self.reap_rows_read),
            last_reap_rows_read: of(&self.last_reap_rows_read),
            reap_batches: of(&self.reap_batches),
            largest_reap_batch: of(&self.largest_reap_batch),
            reaped: of(&self.reaped),
            tombstoned: of(&self.tombstoned),
            archived_removed: of(&self.archived_removed),
            reindexed: of(&self.reindexed),
            unfinished_reported: of(&self.unfinished_reported),
            reap_damaged: of(&self.reap_damaged),
            reap_failed: of(&self.reap_failed),
            ..Stats::default()
        }
    }
}

fn of(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{HoldReason, Won};
    use crate::token::{Generation, Nonce, Token};

    #[test]
    fn what_the_store_takes_over_by_itself_is_no_callers_claim() {
        let counters = Counters::default();
        let backoff = crate::backoff::Backoff::default();
        let take = Command::TakeAbandoned { nonce: Nonce([1; 16]), tries_max: 3, backoff, random: 0 };
        let won = Won {
            token: Token(2),
            generation: Generation(1),
            attempt: 2,
            kind: WonKind::Takeover,
            lease_until_ms: None,
            point: None,
            steps: Vec::new(),
            last_seq: 0,
        };
        counters.served(&take, &Ok(Answer::Decision(Decision::Won(won))), true);
        let held = Decision::Held { reason: HoldReason::TriedTooOften, token: Token(2) };
        counters.served(&take, &Ok(Answer::Decision(held)), true);
        counters.served(&take, &Ok(Answer::Nothing), false);
        assert_eq!(counters.read(), Stats { self_taken_over: 1, self_held: 1, ..Stats::default() });
    }
}
