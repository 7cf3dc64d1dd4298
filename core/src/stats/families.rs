//! Every number under the name it has outside: one table for all formats.

use super::Stats;
use crate::limits::GROUP_BUCKETS_LEN;

/// A family of samples with one name, one meaning and one kind.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: Kind,
    pub(super) samples: fn(&Stats) -> Vec<Sample>,
}

#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Kind {
    /// Only ever grows while a store is open.
    Counter,
    /// As it stands at the time of the reading.
    Gauge,
    /// Counts by upper bound.
    Histogram,
}

/// One number of a family. Labels are from this table alone: never a key or a scope.
pub(super) struct Sample {
    /// What follows the family's name.
    pub(super) suffix: &'static str,
    pub(super) label: Option<(&'static str, &'static str)>,
    pub(super) value: Value,
}

/// In base units outside: milliseconds are told as seconds.
#[derive(Clone, Copy)]
pub(super) enum Value {
    Whole(u64),
    Millis(u64),
}

const fn counter(name: &'static str, help: &'static str, samples: fn(&Stats) -> Vec<Sample>) -> Family {
    Family { name, help, kind: Kind::Counter, samples }
}

const fn gauge(name: &'static str, help: &'static str, samples: fn(&Stats) -> Vec<Sample>) -> Family {
    Family { name, help, kind: Kind::Gauge, samples }
}

pub(super) static FAMILIES: &[Family] = &[
    counter("keyclaim_claims_total", "Calls of claim that returned, by what they returned.", |stats| {
        labelled(
            "answer",
            [
                ("won", stats.won),
                ("won_again", stats.won_again),
                ("replayed", stats.replayed),
                ("in_flight", stats.in_flight),
                ("mismatched", stats.mismatched),
                ("held", stats.held),
                ("expired", stats.expired),
                ("conflicted", stats.claims_conflicted),
                ("failed", stats.claims_failed),
            ],
        )
    }),
    counter("keyclaim_takeovers_total", "Claims won from an abandoned attempt; part of won.", |stats| {
        one(stats.taken_over)
    }),
    counter(
        "keyclaim_expired_reuses_total",
        "Claims won on a key whose replay window is over; part of won.",
        |stats| one(stats.expired_reuse),
    ),
    counter(
        "keyclaim_untold_total",
        "Wins undone because nobody was left to be told; each is counted as won or taken over, too.",
        |stats| one(stats.untold),
    ),
    counter(
        "keyclaim_self_takeovers_total",
        "Abandoned attempts that the store took over to finish them, by what became of that.",
        |stats| labelled("result", [("taken_over", stats.self_taken_over), ("held", stats.self_held)]),
    ),
    counter(
        "keyclaim_conflicts_total",
        "Commands that did not happen because a condition of their writes did not hold.",
        |stats| one(stats.conflicts),
    ),
    counter("keyclaim_completed_total", "Requests that their owners completed, each once.", |stats| {
        one(stats.completed)
    }),
    counter(
        "keyclaim_fenced_total",
        "Attempts told that they are overtaken, each once: a duplicate that was prevented.",
        |stats| one(stats.fenced),
    ),
    counter(
        "keyclaim_fenced_commands_total",
        "Commands of owners and operators refused as overtaken.",
        |stats| one(stats.fenced_commands),
    ),
    counter(
        "keyclaim_unknown_total",
        "Commands whose fate is unknown until they are asked again.",
        |stats| one(stats.unknown),
    ),
    counter("keyclaim_busy_total", "Commands refused because too many waited, by whose they are.", |stats| {
        labelled("lane", [("claims", stats.busy), ("owner", stats.owner_busy)])
    }),
    Family {
        name: "keyclaim_commit_group_commands",
        help: "Commit groups that are on disk, by their number of commands.",
        kind: Kind::Histogram,
        samples: groups,
    },
    gauge(
        "keyclaim_commit_group_commands_max",
        "Commands in the largest commit group since the store was opened.",
        |stats| one(stats.largest_group),
    ),
    counter("keyclaim_poisonings_total", "How often the store's file failed.", |stats| one(stats.poisonings)),
    counter("keyclaim_reopens_total", "How often the store was reopened after that.", |stats| {
        one(stats.reopens)
    }),
    counter("keyclaim_reaper_passes_total", "Passes of the reaper that ended.", |stats| {
        one(stats.reap_passes)
    }),
    counter("keyclaim_reaper_rows_read_total", "Due rows that the reaper read.", |stats| {
        one(stats.reap_rows_read)
    }),
    gauge("keyclaim_reaper_last_pass_rows_read", "Due rows that the reaper's last pass read.", |stats| {
        one(stats.last_reap_rows_read)
    }),
    counter("keyclaim_reaper_commits_total", "Commits of the reaper.", |stats| one(stats.reap_batches)),
    gauge(
        "keyclaim_reaper_commit_rows_max",
        "The most rows that one commit of the reaper changed since the store was opened.",
        |stats| one(stats.largest_reap_batch),
    ),
    counter("keyclaim_reaper_rows_total", "Rows that had their turn, by what became of them.", |stats| {
        labelled(
            "result",
            [
                ("removed", stats.reaped),
                ("tombstoned", stats.tombstoned),
                ("archived_removed", stats.archived_removed),
                ("reindexed", stats.reindexed),
                ("unfinished_reported", stats.unfinished_reported),
                ("damaged", stats.reap_damaged),
                ("failed", stats.reap_failed),
            ],
        )
    }),
    gauge("keyclaim_claim_objects", "Claims that live in this process.", |stats| one(stats.live_claims)),
    gauge("keyclaim_waiters", "Callers that wait for a key.", |stats| one(stats.waiters)),
    gauge("keyclaim_in_flight", "Records in flight, orphaned ones included.", |stats| {
        one(stats.in_flight_now)
    }),
    gauge("keyclaim_held", "Records held for a person to resolve.", |stats| one(stats.held_now)),
    gauge(
        "keyclaim_orphaned",
        "Records in flight whose lease is over and whose owner does not live in this process.",
        |stats| one(stats.orphaned_now),
    ),
    gauge(
        "keyclaim_oldest_in_flight_seconds",
        "Age of the oldest generation in flight; 0 if there is none.",
        |stats| millis(stats.oldest_in_flight_ms),
    ),
    gauge("keyclaim_unfinished_damaged", "Unfinished records that cannot be read.", |stats| {
        one(stats.unfinished_damaged)
    }),
    gauge(
        "keyclaim_unfinished_rows_read",
        "Rows read to learn how the unfinished records stand, 10000 at most.",
        |stats| one(stats.unfinished_rows_read),
    ),
    gauge(
        "keyclaim_unfinished_is_floor",
        "1 if there are more unfinished records than are read: the truth is as much as told, or more.",
        |stats| one(stats.unfinished_is_floor.into()),
    ),
    gauge("keyclaim_outbox_events", "Events not yet published, dead letters included.", |stats| {
        one(stats.outbox_events)
    }),
    gauge(
        "keyclaim_outbox_dead_letters",
        "Events that wait for a person to requeue or drop them, counted up to 1000.",
        |stats| one(stats.outbox_dead_letters),
    ),
    gauge(
        "keyclaim_outbox_lag_seconds",
        "How long the event that is due longest has been waiting for a relay; 0 if none is due.",
        |stats| millis(stats.outbox_lag_ms),
    ),
    counter("keyclaim_file_syncs_total", "Syncs of the store's file.", |stats| one(stats.file_syncs)),
    counter("keyclaim_file_writes_total", "Writes to the store's file.", |stats| one(stats.file_writes)),
    counter("keyclaim_file_written_bytes_total", "Bytes written to the store's file.", |stats| {
        one(stats.file_bytes_written)
    }),
];

fn one(value: u64) -> Vec<Sample> {
    vec![Sample { suffix: "", label: None, value: Value::Whole(value) }]
}

fn millis(value: u64) -> Vec<Sample> {
    vec![Sample { suffix: "", label: None, value: Value::Millis(value) }]
}

fn labelled<const N: usize>(label: &'static str, values: [(&'static str, u64); N]) -> Vec<Sample> {
    let sample = |(of, value)| Sample { suffix: "", label: Some((label, of)), value: Value::Whole(value) };
    values.into_iter().map(sample).collect()
}

/// Every bucket counts those of the smaller ones too.
fn groups(stats: &Stats) -> Vec<Sample> {
    let mut so_far = 0;
    let bounds = BOUNDS.into_iter().zip(stats.groups_by_size);
    let mut samples: Vec<_> = bounds
        .map(|(bound, count)| {
            so_far += count;
            bucket(bound, so_far)
        })
        .collect();
    samples.push(Sample { suffix: "_sum", label: None, value: Value::Whole(stats.grouped_commands) });
    samples.push(Sample { suffix: "_count", label: None, value: Value::Whole(so_far) });
    samples
}

fn bucket(bound: &'static str, count: u64) -> Sample {
    Sample { suffix: "_bucket", label: Some(("le", bound)), value: Value::Whole(count) }
}

/// [`GROUP_BUCKETS_LEN`] in words, and what is above.
const BOUNDS: [&str; GROUP_BUCKETS_LEN.len() + 1] =
    ["1", "2", "4", "8", "16", "32", "64", "128", "256", "+Inf"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_in_words_are_those_that_are_counted_by() {
        let in_words = GROUP_BUCKETS_LEN.map(|bound| bound.to_string());
        assert_eq!(BOUNDS.split_last().unwrap(), (&"+Inf", &in_words.each_ref().map(String::as_str)[..]));
    }

    #[test]
    fn every_number_of_a_reading_has_a_place_of_its_own() {
        // In full, so that a new field must be given a place.
        let stats = Stats {
            won: 101,
            won_again: 102,
            replayed: 103,
            in_flight: 104,
            mismatched: 105,
            held: 106,
            expired: 107,
            claims_failed: 108,
            taken_over: 109,
            expired_reuse: 110,
            untold: 111,
            self_taken_over: 112,
            self_held: 113,
            completed: 114,
            fenced: 115,
            fenced_commands: 116,
            unknown: 117,
            busy: 118,
            owner_busy: 119,
            claims_conflicted: 147,
            conflicts: 148,
            groups: 55,
            grouped_commands: 120,
            largest_group: 121,
            groups_by_size: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
            poisonings: 122,
            reopens: 123,
            reap_passes: 124,
            reap_rows_read: 125,
            last_reap_rows_read: 126,
            reap_batches: 127,
            largest_reap_batch: 128,
            reaped: 129,
            tombstoned: 130,
            archived_removed: 131,
            reindexed: 132,
            unfinished_reported: 133,
            reap_damaged: 134,
            reap_failed: 135,
            live_claims: 136,
            waiters: 137,
            in_flight_now: 138,
            held_now: 139,
            orphaned_now: 140,
            oldest_in_flight_ms: 141,
            unfinished_damaged: 142,
            unfinished_rows_read: 143,
            unfinished_is_floor: true,
            file_syncs: 144,
            file_writes: 145,
            file_bytes_written: 146,
            outbox_events: 149,
            outbox_dead_letters: 150,
            outbox_lag_ms: 151,
        };
        let samples = FAMILIES.iter().flat_map(|family| (family.samples)(&stats));
        let mut values: Vec<u64> = samples
            .map(|sample| match sample.value {
                Value::Whole(value) | Value::Millis(value) => value,
            })
            .collect();
        values.sort_unstable();
        // The flag, the buckets with those before them, the bucket of all, and the count.
        let expected = [1, 1, 3, 6, 10, 15, 21, 28, 36, 45, 55, 55];
        assert_eq!(values, expected.into_iter().chain(101..=151).collect::<Vec<_>>());
    }
}
