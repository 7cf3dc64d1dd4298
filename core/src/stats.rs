//! Numbers of one open store, counted since it was opened.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::machine::{Answer, Command, Decision, WonKind};
use crate::upkeep::due::Step;
use crate::{ErrorKind, Result};

/// A reading of a store's numbers. Counts start at zero with every opening.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Claims won, of any kind but the repeat of a win.
    pub won: u64,
    /// Claims answered with a stored outcome.
    pub replayed: u64,
    /// Claims told that another attempt runs.
    pub in_flight: u64,
    /// Claims whose key was used for another request.
    pub mismatched: u64,
    /// Claims won from an abandoned attempt; part of `won`.
    pub taken_over: u64,
    /// Owners' and operators' commands refused as overtaken: each a duplicate that was prevented.
    pub fenced: u64,
    /// Claims told that the outcome is not known.
    pub held: u64,
    /// Claims refused because the key may not be used again yet.
    pub expired: u64,
    /// Claims won on a key whose replay window is over; part of `won`.
    pub expired_reuse: u64,
    /// Commands that did not happen because a condition of their writes did not hold.
    pub conflicts: u64,
    /// Requests that completed.
    pub completed: u64,
    /// Wins let go of because nobody was left to be told.
    pub untold: u64,
    /// Commands whose fate is unknown until asked again.
    pub unknown: u64,
    /// Commands refused because the queue was full.
    pub busy: u64,
    /// Commit groups that wrote something.
    pub groups: u64,
    /// Commands in those groups.
    pub grouped_commands: u64,
    /// The largest of those groups.
    pub largest_group: u64,
    /// Records that the reaper removed.
    pub reaped: u64,
    /// Successes whose body and headers the reaper dropped at the end of their replay window.
    pub tombstoned: u64,
    /// Archived failures that the reaper removed.
    pub archived_removed: u64,
    /// Reports of records that were unfinished past their horizon.
    pub unfinished_reported: u64,
    /// Commits of the reaper.
    pub reap_batches: u64,
    /// The most due rows that one of those commits changed.
    pub largest_reap_batch: u64,
    /// Due rows that the last pass of the reaper read.
    pub last_reap_rows_read: u64,
    /// Claim objects alive now.
    pub live_claims: u64,
    /// Callers waiting for a key now.
    pub waiters: u64,
    /// Syncs of the store's file.
    pub file_syncs: u64,
    /// Writes to the store's file.
    pub file_writes: u64,
    /// Bytes written to the store's file.
    pub file_bytes_written: u64,
}

/// The counters behind [`Stats`]: plain atomics, since no two of them have to agree.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    won: AtomicU64,
    replayed: AtomicU64,
    in_flight: AtomicU64,
    mismatched: AtomicU64,
    taken_over: AtomicU64,
    fenced: AtomicU64,
    held: AtomicU64,
    expired: AtomicU64,
    expired_reuse: AtomicU64,
    conflicts: AtomicU64,
    completed: AtomicU64,
    untold: AtomicU64,
    unknown: AtomicU64,
    busy: AtomicU64,
    groups: AtomicU64,
    grouped_commands: AtomicU64,
    largest_group: AtomicU64,
    reaped: AtomicU64,
    tombstoned: AtomicU64,
    archived_removed: AtomicU64,
    unfinished_reported: AtomicU64,
    reap_batches: AtomicU64,
    largest_reap_batch: AtomicU64,
    last_reap_rows_read: AtomicU64,
}

impl Counters {
    /// Counts what a command was answered.
    pub(crate) fn answer(&self, command: &Command, answer: &Result<Answer>) {
        match answer {
            Ok(Answer::Decision(decision)) => self.decision(decision),
            Ok(Answer::Undone) => add(&self.untold),
            Ok(Answer::Conflict(_)) => add(&self.conflicts),
            Ok(Answer::Owner(crate::machine::OwnerAnswer::Completed)) => add(&self.completed),
            Ok(_) => {}
            Err(error) => match error.kind() {
                ErrorKind::Fenced if !matches!(command, Command::Claim(_)) => add(&self.fenced),
                ErrorKind::Unknown => add(&self.unknown),
                _ => {}
            },
        }
    }

    /// Counts a decision.
    pub(crate) fn decision(&self, decision: &Decision) {
        match decision {
            Decision::Won(won) => {
                if won.kind != WonKind::Again {
                    add(&self.won);
                }
                match won.kind {
                    WonKind::Takeover => add(&self.taken_over),
                    WonKind::ReusedAfterWindow => add(&self.expired_reuse),
                    WonKind::Fresh | WonKind::Again | WonKind::Reattempt => {}
                }
            }
            Decision::Replay(_) => add(&self.replayed),
            Decision::InFlight { .. } => add(&self.in_flight),
            Decision::Mismatch { .. } => add(&self.mismatched),
            Decision::Held { .. } => add(&self.held),
            Decision::Expired => add(&self.expired),
        }
    }

    pub(crate) fn busy(&self) {
        add(&self.busy);
    }

    /// Counts a commit group that wrote something.
    pub(crate) fn group(&self, len: usize) {
        add(&self.groups);
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
            Step::Reindexed | Step::NotDue => {}
        }
    }

    /// Counts a commit of the reaper.
    pub(crate) fn reap_batch(&self, len: usize) {
        add(&self.reap_batches);
        self.largest_reap_batch.fetch_max(len as u64, Ordering::Relaxed);
    }

    pub(crate) fn reap_pass(&self, rows_read: u64) {
        self.last_reap_rows_read.store(rows_read, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Stats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            won: of(&self.won),
            replayed: of(&self.replayed),
            in_flight: of(&self.in_flight),
            mismatched: of(&self.mismatched),
            taken_over: of(&self.taken_over),
            fenced: of(&self.fenced),
            held: of(&self.held),
            expired: of(&self.expired),
            expired_reuse: of(&self.expired_reuse),
            conflicts: of(&self.conflicts),
            completed: of(&self.completed),
            untold: of(&self.untold),
            unknown: of(&self.unknown),
            busy: of(&self.busy),
            groups: of(&self.groups),
            grouped_commands: of(&self.grouped_commands),
            largest_group: of(&self.largest_group),
            reaped: of(&self.reaped),
            tombstoned: of(&self.tombstoned),
            archived_removed: of(&self.archived_removed),
            unfinished_reported: of(&self.unfinished_reported),
            reap_batches: of(&self.reap_batches),
            largest_reap_batch: of(&self.largest_reap_batch),
            last_reap_rows_read: of(&self.last_reap_rows_read),
            ..Stats::default()
        }
    }
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
