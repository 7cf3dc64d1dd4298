//! Numbers of one open store: what it has answered since it was opened, and how it stands now.

mod counters;
mod families;
mod now;
mod prometheus;

#[cfg(feature = "metrics")]
mod facade;

pub(crate) use counters::Counters;
pub(crate) use now::Now;

use crate::limits::GROUP_BUCKETS_LEN;

/// A reading of a store's numbers. Counts start at zero with every opening.
///
/// Every call of a claim that returned is in one of `won`, `won_again`, `replayed`, `in_flight`, `mismatched`,
/// `held`, `expired`, `claims_conflicted` and `claims_failed`, and in no other: together they are the calls that were made. A call
/// that waits is counted once, with what it returned. A call whose future was dropped was told nothing and is
/// counted only if it won: then also in `untold`, once that win is undone.
///
/// Counts are exact, but no two of them are read at the same instant: while the store works, a sum may be off by
/// what runs.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Claims won, of any kind but the repeat of a win.
    pub won: u64,
    /// Claims that were told again what they had won. A win whose first answer was `Unknown` is only here.
    pub won_again: u64,
    /// Claims answered with a stored outcome.
    pub replayed: u64,
    /// Claims told that another attempt runs.
    pub in_flight: u64,
    /// Claims whose key was used for another request.
    pub mismatched: u64,
    /// Claims told that the outcome is not known.
    pub held: u64,
    /// Claims refused because the key may not be used again yet.
    pub expired: u64,
    /// Claims whose writes met a condition that did not hold; each is in `conflicts` too.
    pub claims_conflicted: u64,
    /// Claims that ended with an error, of any kind.
    pub claims_failed: u64,
    /// Claims won from an abandoned attempt; part of `won`.
    pub taken_over: u64,
    /// Claims won on a key whose replay window is over; part of `won`.
    pub expired_reuse: u64,
    /// Commands, claims among them, that did not happen because a condition of their writes did not hold.
    pub conflicts: u64,
    /// Wins undone because nobody was left to be told; each is in `won` or `self_taken_over` too.
    pub untold: u64,
    /// Abandoned attempts taken over by the store itself, to be finished; not part of `won`.
    pub self_taken_over: u64,
    /// Abandoned attempts that the store, about to finish them, held for a person instead.
    pub self_held: u64,
    /// Requests that their owners completed; a command asked again counts once.
    pub completed: u64,
    /// Attempts whose owner was told that it is overtaken, each once: a duplicate that was prevented.
    pub fenced: u64,
    /// Commands refused as overtaken: owners', the store's renewals for them, and operators'.
    pub fenced_commands: u64,
    /// Commands whose fate is unknown until asked again.
    pub unknown: u64,
    /// Claims and operators' commands refused because the queue was full.
    pub busy: u64,
    /// Owners' commands refused because too many of the same claim waited.
    pub owner_busy: u64,
    /// Commit groups that are on disk.
    pub groups: u64,
    /// Commands in those groups.
    pub grouped_commands: u64,
    /// The largest of those groups.
    pub largest_group: u64,
    /// Those groups by their number of commands: at most 1, 2, 4 and so on to 256, and more than half of that;
    /// last those with more, which are transactions.
    pub groups_by_size: [u64; GROUP_BUCKETS_LEN.len() + 1],
    /// How often the store was poisoned.
    pub poisonings: u64,
    /// How often it was reopened.
    pub reopens: u64,
    /// Passes of the reaper that ended, whole or not.
    pub reap_passes: u64,
    /// Due rows that those passes read.
    pub reap_rows_read: u64,
    /// Due rows that the last of those passes read.
    pub last_reap_rows_read: u64,
    /// Commits of the reaper.
    pub reap_batches: u64,
    /// The most due rows that one of those commits changed.
    pub largest_reap_batch: u64,
    /// Records that the reaper removed.
    pub reaped: u64,
    /// Successes whose body and headers the reaper dropped at the end of their replay window.
    pub tombstoned: u64,
    /// Archived failures that the reaper removed.
    pub archived_removed: u64,
    /// Entries of the due index that the reaper put right.
    pub reindexed: u64,
    /// Reports of records that were unfinished past their horizon.
    pub unfinished_reported: u64,
    /// Looks of the reaper at due rows that cannot be read.
    pub reap_damaged: u64,
    /// Turns of due rows that failed, such as by a panic of the hook.
    pub reap_failed: u64,
    /// Claim objects alive now.
    pub live_claims: u64,
    /// Callers waiting for a key now.
    pub waiters: u64,
    /// Records in flight now, orphaned ones included.
    pub in_flight_now: u64,
    /// Records held now, for a person to resolve.
    pub held_now: u64,
    /// Records in flight now whose lease is over and whose owner does not live in this process.
    pub orphaned_now: u64,
    /// How long ago the oldest generation that is in flight now began, in milliseconds; 0 if there is none.
    pub oldest_in_flight_ms: u64,
    /// Unfinished records that cannot be read now.
    pub unfinished_damaged: u64,
    /// Rows that were read to learn the five numbers before: one for each unfinished record, none for finished
    /// ones, and at most 10,000.
    pub unfinished_rows_read: u64,
    /// Whether there are more unfinished records than that: the numbers are then what was found among the first
    /// 10,000, and the truth is as much or more.
    pub unfinished_is_floor: bool,
    /// Events that are not yet published, dead letters included.
    pub outbox_events: u64,
    /// Events that wait for a person to requeue or drop them; counted up to 1,000.
    pub outbox_dead_letters: u64,
    /// How long the event that is due longest has been waiting for a relay, in milliseconds; 0 if none is due.
    pub outbox_lag_ms: u64,
    /// Syncs of the store's file.
    pub file_syncs: u64,
    /// Writes to the store's file.
    pub file_writes: u64,
    /// Bytes written to the store's file.
    pub file_bytes_written: u64,
}
