//! `Writes` with the commands of a claim.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use keyclaim::machine::{Decision, OutcomeClass, WonKind};
use keyclaim::{Conflict, ErrorKind, Event, Nonce};

use super::faulty::{block_on, refused, replay, request, success};
use super::*;

#[test]
fn a_row_appears_with_the_outcome_and_not_before() {
    let (store, _) = in_memory();
    let claim = won(store.claim_with(&request("k"), &Writes::new().put("orders", b"1", b"new")));
    assert_eq!(store.app_row("orders", b"1").expect("healthy").expect("there").value, b"new");
    let paid = Writes::new().put("orders", b"1", b"paid").put("receipts", b"1", b"5 EUR");
    assert_eq!(claim.complete_with(&success(b"done"), paid).expect("owner"), Written::Done(()));
    assert_eq!(store.app_row("orders", b"1").expect("healthy").expect("there").value, b"paid");
    assert_eq!(store.app_row("receipts", b"1").expect("healthy").expect("there").value, b"5 EUR");
    assert_eq!(store.app_row("receipt", b"s1").expect("healthy"), None, "tables do not run into each other");
    replay(store.claim(&request("k")));
}

#[test]
fn a_conflict_undoes_the_whole_command_and_says_which_row() {
    let (store, _) = in_memory();
    put(&store, &Writes::new().put("stock", b"apple", &bytes(1)));
    let seen = version(&store, "stock", b"apple");
    let claim = won(store.claim_with(&request("k"), &Writes::new()));
    let take =
        || Writes::new().put("orders", b"1", b"new").put_if_version("stock", b"apple", seen, &bytes(0));
    put(&store, &Writes::new().put("stock", b"apple", &bytes(7)));
    let now = version(&store, "stock", b"apple");
    assert_ne!(now, seen);
    let conflict = Written::Conflict(Conflict { row: 1, present: Some(now) });
    let before = store.inspect(claim.id()).expect("healthy");
    assert_eq!(claim.complete_with(&success(b"done"), take()).expect("owner"), conflict);
    assert_eq!(claim.checkpoint_with("half", b"", take()).expect("owner"), conflict);
    assert_eq!(store.inspect(claim.id()).expect("healthy"), before, "the claim goes on as it was");
    assert_eq!(store.app_row("orders", b"1").expect("healthy"), None);
    assert_eq!(number(&store, "stock", b"apple"), Some(7));
    // Read again, and said again: another command, which the claim may still say.
    let again = Writes::new().put_if_version("stock", b"apple", now, &bytes(6));
    assert!(claim.complete_with(&success(b"done"), again).expect("owner").is_done());
    assert_eq!(store.stats().expect("healthy").conflicts, 2);
}

#[test]
fn a_claim_whose_condition_fails_is_won_by_nobody() {
    let (store, _) = in_memory();
    let name = || Writes::new().put_if_absent("names", b"anna", b"taken");
    won(store.claim_with(&request("first"), &name()));
    let at = version(&store, "names", b"anna");
    let told = store.claim_with(&request("second"), &name()).expect("healthy");
    assert!(matches!(told, Written::Conflict(Conflict { row: 0, present: Some(present) }) if present == at));
    let told = block_on(store.claim_with_async(&request("second"), &name())).expect("healthy");
    assert!(matches!(told, Written::Conflict(_)));
    assert_eq!(store.inspect(request("second").id()).expect("healthy"), None, "the key is new");
    won(store.claim_with(&request("second"), &Writes::new()));
    assert_eq!(version(&store, "names", b"anna"), at, "written by the first only");
}

#[test]
fn each_condition_holds_and_fails_as_it_says() {
    let (store, _) = in_memory();
    let done = |writes: Writes| store.write(&writes).expect("healthy").is_done();
    assert!(done(Writes::new().require("t", b"k", None)));
    assert!(done(Writes::new().put_if_absent("t", b"k", b"1")));
    assert!(!done(Writes::new().put_if_absent("t", b"k", b"2")));
    assert!(!done(Writes::new().require("t", b"k", None)));
    let first = version(&store, "t", b"k");
    assert!(done(Writes::new().require("t", b"k", Some(first))));
    assert!(done(Writes::new().put_if_version("t", b"k", first, b"3")));
    assert!(!done(Writes::new().put_if_version("t", b"k", first, b"4")));
    assert!(!done(Writes::new().delete_if_version("t", b"k", first)));
    assert!(!done(Writes::new().require("t", b"k", Some(first))));
    let second = version(&store, "t", b"k");
    assert!(done(Writes::new().delete_if_version("t", b"k", second)));
    assert!(!done(Writes::new().put_if_version("t", b"k", second, b"5")), "what is gone has no version");
    assert!(done(Writes::new().delete("t", b"k")), "deleting nothing is no conflict");
    assert!(done(Writes::new().put("t", b"k", b"1")));
    let third = version(&store, "t", b"k");
    assert!(
        first < second && second < third,
        "a version is never used again: {first:?} {second:?} {third:?}"
    );
}

#[test]
fn a_win_told_again_writes_nothing_again() {
    let (store, _) = in_memory();
    let asked = request("k").nonce(Nonce([7; 16]));
    let add = || Writes::new().put_if_absent("orders", b"1", b"new").emit(Event::new("orders", "1"));
    let claim = won(store.claim_with(&asked, &add()));
    let at = version(&store, "orders", b"1");
    let again = won(store.claim_with(&asked, &add()));
    assert_eq!((again.kind(), again.token()), (WonKind::Again, claim.token()));
    assert_eq!(version(&store, "orders", b"1"), at);
}

#[test]
fn a_takeover_does_not_write_again_what_the_generation_has_written() {
    let (store, clock) = in_memory();
    let order = || Writes::new().put_if_absent("orders", b"1", b"new");
    drop(won(store.claim_with(&request("k"), &order())));
    let at = version(&store, "orders", b"1");
    clock.advance(10_000);
    let second = won(store.claim_with(&request("k"), &order()));
    assert_eq!((second.kind(), second.attempt()), (WonKind::Takeover, 2));
    assert_eq!(version(&store, "orders", b"1"), at);
    // One that brings them although the attempt before it did not writes them.
    drop(won(store.claim_with(&request("other"), &Writes::new())));
    clock.advance(10_000);
    let third = won(store.claim_with(&request("other"), &Writes::new().put("orders", b"2", b"new")));
    assert_eq!(third.kind(), WonKind::Takeover);
    assert!(store.app_row("orders", b"2").expect("healthy").is_some());
}

#[test]
fn a_key_used_anew_writes_anew() {
    let (store, clock) = in_memory();
    let order = |n: u8| Writes::new().put("orders", b"1", &[n]);
    won(store.claim_with(&request("k"), &order(1))).complete(&success(b"done")).expect("owner");
    clock.advance(24 * 60 * 60 * 1_000);
    assert_eq!(won(store.claim_with(&request("k"), &order(2))).kind(), WonKind::ReusedAfterWindow);
    assert_eq!(store.app_row("orders", b"1").expect("healthy").expect("there").value, [2]);
}

#[test]
fn a_claim_that_loses_writes_nothing() {
    let (store, _) = in_memory();
    let claim = won(store.claim_with(&request("k"), &Writes::new()));
    let order = Writes::new().put("orders", b"1", b"late");
    let told = store.claim_with(&request("k"), &order).expect("healthy");
    assert!(matches!(told, Written::Done(Decision::InFlight { .. })));
    claim.complete(&success(b"done")).expect("owner");
    let told = store.claim_with(&request("k"), &order).expect("healthy");
    assert!(matches!(told, Written::Done(Decision::Replay(replay)) if replay.class == OutcomeClass::Success));
    assert_eq!(store.app_row("orders", b"1").expect("healthy"), None);
}

#[test]
fn a_fenced_owner_writes_nothing() {
    let (store, clock) = in_memory();
    let slow = won(store.claim_with(&request("k"), &Writes::new()));
    clock.advance(10_000);
    let fast = won(store.claim_with(&request("k"), &Writes::new()));
    let paid = || Writes::new().put("orders", b"1", b"paid");
    refused(slow.complete_with(&success(b"slow"), paid()), ErrorKind::Fenced);
    refused(slow.checkpoint_with("half", b"", paid()), ErrorKind::Fenced);
    assert_eq!(store.app_row("orders", b"1").expect("healthy"), None);
    assert!(fast.complete_with(&success(b"fast"), paid()).expect("owner").is_done());
}

#[test]
fn what_is_out_of_bounds_is_refused_before_anything_is_written() {
    let (store, _) = in_memory();
    let many = |n: usize| (0..n).fold(Writes::new(), |all, n| all.put("t", &bytes(n as u64), b""));
    let value = vec![0; 1024 * 1024 + 1];
    let fits = [
        many(256),
        Writes::new().put(&"t".repeat(255), &[0; 1024], &value[1..]),
        Writes::new().put("t", b"k", b"").put("t2", b"k", b""),
    ];
    for writes in fits {
        assert!(store.write(&writes).expect("in bounds").is_done());
    }
    let too_much = [
        many(257),
        Writes::new().put("", b"k", b""),
        Writes::new().put(&"t".repeat(256), b"k", b""),
        Writes::new().put("t", b"", b""),
        Writes::new().put("t", &[0; 1025], b""),
        Writes::new().put("t", b"k", &value),
        (0..5_u64).fold(Writes::new(), |all, n| all.put("t", &bytes(n), &value[1..])),
        Writes::new().put("t", b"k", b"1").delete("t", b"k"),
        Writes::new().put("t", b"new", b"1").emit(Event::new("", "p")),
    ];
    let claim = won(store.claim_with(&request("k"), &Writes::new()));
    for (at, writes) in too_much.into_iter().enumerate() {
        let told = refused(store.claim_with(&request("new"), &writes).map(drop), ErrorKind::Invalid);
        assert!(told.message().len() > 20, "{at}: it says what to do");
        refused(claim.checkpoint_with("half", b"", writes.clone()), ErrorKind::Invalid);
        refused(claim.complete_with(&success(b"done"), writes), ErrorKind::Invalid);
    }
    refused(store.write(&Writes::new().emit(Event::new("t", "p"))), ErrorKind::Invalid);
    assert_eq!(store.app_row("t", b"new").expect("healthy"), None);
    assert_eq!(store.inspect(request("new").id()).expect("healthy"), None);
    for (table, key) in [("", &b"k"[..]), ("t", b""), (&"t".repeat(256), b"k"), ("t", &[0; 1025])] {
        refused(store.app_row(table, key), ErrorKind::Invalid);
    }
}

#[test]
fn a_table_is_listed_in_pages_and_no_row_of_another_is_in_it() {
    let (store, _) = in_memory();
    for table in ["a", "ab", "b"] {
        for n in 0..7_u64 {
            put(&store, &Writes::new().put(table, &bytes(n), table.as_bytes()));
        }
    }
    put(&store, &Writes::new().put("a", &[u8::MAX; 1_024], b"a"));
    let (mut keys, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = store.app_rows("a", after.as_deref(), 3).expect("healthy");
        assert!(page.rows.len() <= 3 && page.rows.iter().all(|(_, row)| row.value == b"a"));
        keys.extend(page.rows.into_iter().map(|(key, _)| key));
        pages += 1;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((keys.len(), pages), (8, 3));
    assert!(keys.is_sorted() && keys[3] == bytes(3) && keys[7] == [u8::MAX; 1_024]);
    assert!(store.app_rows("nothing", None, 10).expect("healthy").rows.is_empty());
    refused(store.app_rows("a", None, 0), ErrorKind::Invalid);
}

/// Threads move money by claims whose writes rest on what they read. Whatever they meet, the sum stays, and
/// each transfer is made once.
#[test]
fn conditional_writes_keep_a_sum_under_contention() {
    const ACCOUNTS: u64 = 4;
    let (store, _) = in_memory();
    let opening = (0..ACCOUNTS).fold(Writes::new(), |all, n| all.put("balance", &bytes(n), &bytes(100)));
    assert!(store.write(&opening).expect("healthy").is_done());
    let conflicts = AtomicU64::new(0);
    thread::scope(|scope| {
        for worker in 0..8_u64 {
            let (store, conflicts) = (&store, &conflicts);
            scope.spawn(move || {
                for n in 0..25 {
                    let (from, to) = ((worker + n) % ACCOUNTS, (worker + n * 3 + 1) % ACCOUNTS);
                    if from != to {
                        transfer(store, &format!("{worker} {n}"), from, to, conflicts);
                    }
                }
            });
        }
    });
    let sum: u64 = (0..ACCOUNTS).map(|n| number(&store, "balance", &bytes(n)).expect("there")).sum();
    assert_eq!(sum, ACCOUNTS * 100);
    assert_eq!(store.stats().expect("healthy").conflicts, conflicts.load(Ordering::Relaxed));
}

fn transfer(store: &Store, key: &str, from: u64, to: u64, conflicts: &AtomicU64) {
    let claim = won(store.claim_with(&request(key), &Writes::new()));
    loop {
        let read = |n: u64| {
            let row = store.app_row("balance", &bytes(n)).expect("healthy").expect("there");
            (row.version, u64::from_be_bytes(row.value.try_into().expect("eight bytes")))
        };
        let ((from_at, from_has), (to_at, to_has)) = (read(from), read(to));
        let writes = Writes::new()
            .put_if_version("balance", &bytes(from), from_at, &bytes(from_has.wrapping_sub(1)))
            .put_if_version("balance", &bytes(to), to_at, &bytes(to_has.wrapping_add(1)));
        match claim.complete_with(&success(b"moved"), writes).expect("owner") {
            Written::Done(()) => return,
            Written::Conflict(_) => conflicts.fetch_add(1, Ordering::Relaxed),
        };
    }
}
