//! What owners and operators say, what is refused, and what reaches the disk.

use keyclaim::store::inject::{Fault, Op};
use keyclaim::{Abandoned, ErrorKind, Options, Reap, Store};

use crate::faulty::*;
use crate::kit::*;

#[test]
fn a_completion_asked_again_completes_once() {
    let (store, gate) = gated(10);
    let owner = won(store.claim(&request("a")));
    let outcome = success(b"done");
    let counted = moved(&store, || {
        gate.close();
        let mut future = Box::pin(owner.complete_async(&outcome));
        assert!(poll_once(future.as_mut()).is_pending());
        drop(future);
        gate.open();
        owner.complete(&outcome).expect("the same command");
    });
    assert_eq!(counted, these(&[("completed", 1)]));
}

#[test]
fn an_overtaken_attempt_is_one_prevented_duplicate_however_often_it_is_refused() {
    let World { store, clock } = world();
    let stale = won(store.claim(&request("a")));
    clock.advance(LEASE);
    let owner = won(store.claim(&request("a")));
    let counted = moved(&store, || {
        refused(stale.renew(None), ErrorKind::Fenced);
        refused(stale.checkpoint("point", b""), ErrorKind::Fenced);
        refused(stale.complete(&success(b"late")), ErrorKind::Fenced);
    });
    assert_eq!(counted, these(&[("fenced", 1), ("fenced_commands", 3)]));
    owner.complete(&success(b"done")).expect("its owner");
    let counted = moved(&store, || drop(refused(stale.release(), ErrorKind::Fenced)));
    assert_eq!(counted, these(&[("fenced_commands", 1)]));
}

/// The store renewed a claim just after it was completed. Its own outcome refused the renewal, and that was
/// counted as a prevented duplicate.
#[test]
fn what_its_own_ending_refuses_is_no_prevented_duplicate() {
    let World { store, .. } = world();
    let done = won(store.claim(&request("done")));
    done.complete(&success(b"done")).expect("its owner");
    let held = won(store.claim(&request("held")));
    held.hold().expect("its owner");
    let counted = moved(&store, || {
        refused(done.renew(None), ErrorKind::Fenced);
        refused(done.checkpoint("point", b""), ErrorKind::Fenced);
        refused(held.renew(None), ErrorKind::Fenced);
    });
    assert_eq!(counted, these(&[]));
}

#[test]
fn an_operator_who_is_overtaken_is_no_prevented_duplicate_but_an_owner_who_is_forgotten_is() {
    let World { store, .. } = world();
    let owner = won(store.claim(&request("a")));
    let counted = moved(&store, || {
        refused(store.forget(&id("a"), keyclaim::Token(99)), ErrorKind::Fenced);
    });
    assert_eq!(counted, these(&[("fenced_commands", 1)]));
    store.forget(&id("a"), owner.token()).expect("as seen");
    let counted = moved(&store, || drop(refused(owner.complete(&success(b"")), ErrorKind::Fenced)));
    assert_eq!(counted, these(&[("fenced", 1), ("fenced_commands", 1)]));
}

#[test]
fn what_is_refused_as_busy_is_counted_by_its_lane() {
    let (store, gate) = gated(1);
    let owner = won(store.claim(&request("owner")));
    let counted = moved(&store, || {
        let keys = ["in the writer", "queued"].map(request);
        gate.close();
        let mut futures: Vec<_> = keys.iter().map(|key| Box::pin(store.claim_async(key))).collect();
        assert!(poll_once(futures[0].as_mut()).is_pending());
        gate.wait_for_writer();
        assert!(poll_once(futures[1].as_mut()).is_pending());
        refused(store.claim(&request("late")), ErrorKind::Busy);
        refused(store.forget(&id("owner"), owner.token()), ErrorKind::Busy);
        let points = ["1", "2", "3", "4"];
        let mut said: Vec<_> =
            points.map(|point| Box::pin(owner.checkpoint_async(point, b""))).into_iter().collect();
        for future in &mut said {
            assert!(poll_once(future.as_mut()).is_pending());
        }
        refused(owner.checkpoint("5", b""), ErrorKind::Busy);
        refused(block_on(owner.checkpoint_async("5", b"")), ErrorKind::Busy);
        gate.open();
        for future in futures {
            drop(won(block_on(future)));
        }
        for future in said {
            block_on(future).expect("in order");
        }
    });
    let expected = [("busy:claims", 2), ("busy:owner", 2), ("claims:failed", 1), ("claims:won", 2)];
    assert_eq!(counted, these(&expected));
}

#[test]
fn groups_are_counted_by_size_and_only_if_they_wrote() {
    let (store, gate) = gated(100);
    let before = stats(&store);
    assert_eq!((before.groups, before.groups_by_size), (0, [0; 10]));
    let keys: Vec<_> = (0..6).map(|n| request(&format!("key {n}"))).collect();
    gate.close();
    let mut futures: Vec<_> = keys.iter().map(|key| Box::pin(store.claim_async(key))).collect();
    assert!(poll_once(futures[0].as_mut()).is_pending());
    gate.wait_for_writer();
    for future in &mut futures[1..] {
        assert!(poll_once(future.as_mut()).is_pending());
    }
    gate.open();
    let owners: Vec<_> = futures.into_iter().map(|future| won(block_on(future))).collect();
    // Refused by the writer, and nothing is written.
    refused(store.forget(&id("key 0"), keyclaim::Token(99)), ErrorKind::Fenced);
    in_flight(store.claim(&request("key 0")));
    let after = stats(&store);
    assert_eq!(after.groups_by_size, [1, 0, 0, 1, 0, 0, 0, 0, 0, 0], "one of one, one of five");
    assert_eq!((after.groups, after.grouped_commands, after.largest_group), (2, 6, 5));
    drop(owners);
}

/// The counts of the file began at zero again when a store was reopened, and a group was counted before it was
/// known to be on disk.
#[test]
fn a_failed_commit_is_counted_as_a_fault_and_not_as_a_group_and_no_count_falls_at_the_reopening() {
    let folder = fast_folder();
    let options = Options::new(Abandoned::Rerun).renew_leases_max(0);
    let faults = options.faults();
    let store = Store::open(folder.path().join("store"), options).expect("a fresh folder");
    let owner = won(store.claim(&request("a")));
    let before = (stats(&store), counters(&stats(&store)));
    // The second sync is that of the header: whether it names the new pages is not known.
    faults.add(Fault { nth: 2, ..once(Op::Sync) });
    refused(store.claim(&request("b")), ErrorKind::Unknown);
    refused(store.stats(), ErrorKind::Poisoned);
    refused(store.claim(&request("c")), ErrorKind::Poisoned);
    refused(owner.complete(&success(b"")), ErrorKind::Poisoned);
    faults.clear();
    store.reopen().expect("no fault is left");
    let after = stats(&store);
    assert_eq!((after.groups, after.grouped_commands), (before.0.groups, before.0.grouped_commands));
    assert_eq!((after.poisonings, after.reopens), (1, 1));
    assert!(after.file_syncs >= before.0.file_syncs && after.file_writes > before.0.file_writes);
    assert!(after.file_bytes_written > before.0.file_bytes_written);
    let expected = [("claims:failed", 2), ("poisonings", 1), ("reopens", 1), ("unknown", 1)];
    assert_eq!(difference(&before.1, &counters(&after)), these(&expected));
    store.reopen().expect("nothing to do");
    assert_eq!(stats(&store).reopens, 1, "it was healthy");
    owner.complete(&success(b"done")).expect("a live claim goes on");
}

#[test]
fn every_turn_of_the_reaper_is_counted_by_what_became_of_it() {
    let World { store, clock } = world();
    for key in ["a", "b"] {
        won(store.claim(&request(key))).complete(&success(b"done")).expect("its owner");
    }
    drop(won(store.claim(&request("abandoned"))));
    let pass = || store.reap(&Reap::new()).expect("healthy");
    assert_eq!(moved(&store, || drop(pass())), these(&[("reaper_passes", 1)]));
    clock.advance(WINDOW);
    let (rows, read) = ("reaper_rows:tombstoned", "reaper_rows_read");
    let expected = [("reaper_commits", 1), ("reaper_passes", 1), (read, 2), (rows, 2)];
    assert_eq!(moved(&store, || drop(pass())), these(&expected));
    clock.advance(HORIZON);
    let rows = [("reaper_rows:removed", 2), ("reaper_rows:unfinished_reported", 1)];
    let expected = [&[("reaper_commits", 2), ("reaper_passes", 1), (read, 3)][..], &rows].concat();
    let counted = moved(&store, || drop(pass()));
    let batches = counted.iter().find(|(name, _)| name == "reaper_commits").map(|(_, by)| *by);
    // Finished and unfinished rows may share a commit or not.
    let expected: Vec<_> = expected
        .into_iter()
        .map(|(name, by)| {
            (name, if name == "reaper_commits" { batches.unwrap_or(0).clamp(1, 2) } else { by })
        })
        .collect();
    assert_eq!(counted, these(&expected));
}
