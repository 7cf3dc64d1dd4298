//! Under load nothing is lost and nothing counted twice: what the callers were told adds up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keyclaim::machine::{Decision, WonKind};
use keyclaim::{Abandoned, Claim, ClaimWait, Nonce, Options, Result, Store};
use keyclaim_tests::pool::Pool;
use keyclaim_tests::request::{paying, success};

use crate::faulty::block_on;
use crate::kit::*;

const THREADS: usize = 6;
const CALLS: u64 = 400;

/// The name under which this answer is to be counted.
fn name(told: &Result<Decision<Claim>>) -> &'static str {
    match told {
        Ok(Decision::Won(claim)) if claim.kind() == WonKind::Again => "won_again",
        Ok(Decision::Mismatch { .. }) => "mismatched",
        Ok(Decision::Replay(_)) => "replayed",
        Ok(decision) => decision.name(),
        Err(_) => "failed",
    }
}

fn ask(store: &Store, racer: u64, call: u64) -> Result<Decision<Claim>> {
    // A mix that no two threads share and every run repeats (arbitrary).
    let mixed = (racer * CALLS + call).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let key = format!("key {}", mixed % 7 + call / 50 * 7);
    let mut asked = paying(&key, if mixed.is_multiple_of(11) { b"2" } else { b"1" });
    if mixed.is_multiple_of(5) {
        asked = asked.nonce(Nonce([1; 16]));
    }
    let wait = ClaimWait::at_most(Duration::from_micros(mixed % 300));
    match mixed % 4 {
        0 => store.claim(&asked),
        1 => block_on(store.claim_async(&asked)),
        2 => store.claim_wait(&asked, &wait),
        _ => block_on(store.claim_wait_async(&asked, &wait)),
    }
}

#[test]
fn what_all_callers_were_told_adds_up() {
    let options = Options::new(Abandoned::Rerun).queue_len_max(2).expect("above zero");
    let store = Arc::new(Store::in_memory(options).expect("memory"));
    let shared = store.clone();
    let tallies = Pool::new(THREADS).race(THREADS, move |racer| {
        let mut tally = BTreeMap::<&str, u64>::new();
        for call in 0..CALLS {
            let told = ask(&shared, racer as u64, call);
            *tally.entry(name(&told)).or_default() += 1;
            match told {
                Ok(Decision::Won(claim)) if call % 3 == 0 => {
                    let ended = claim.complete(&success("done"));
                    *tally.entry("completed").or_default() += u64::from(ended.is_ok());
                }
                Ok(Decision::Won(claim)) if call % 3 == 1 => drop(claim.hold()),
                Ok(Decision::Won(claim)) => drop(claim.release()),
                _ => {}
            }
        }
        tally
    });
    let mut told = BTreeMap::<&str, u64>::new();
    for (name, count) in tallies.into_iter().flatten() {
        *told.entry(name).or_default() += count;
    }
    let after = stats(&store);
    let counted = counters(&after);
    let answers = ["won", "won_again", "replayed", "in_flight", "mismatched", "held", "expired", "failed"];
    let of = |name: &str| told.get(name).copied().unwrap_or_default();
    for answer in answers {
        assert_eq!(counted[&format!("claims:{answer}")], of(answer), "{answer} of {told:?}");
    }
    for answer in ["won", "replayed", "in_flight", "mismatched", "held"] {
        assert!(of(answer) > 0, "no caller was told {answer}: {told:?}");
    }
    assert_eq!(answers.iter().map(|answer| of(answer)).sum::<u64>(), THREADS as u64 * CALLS);
    assert_eq!(after.groups_by_size.iter().sum::<u64>(), after.groups);
    assert!(after.grouped_commands >= after.won + after.completed);
    assert_eq!((after.untold, after.unknown, after.waiters), (0, 0, 0));
}
