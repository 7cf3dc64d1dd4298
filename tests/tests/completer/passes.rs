//! What a pass costs, and what bounds it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use keyclaim::store::Cancel;
use keyclaim::{CompleterPass, Millis, Reap};

use crate::faulty::*;
use crate::kit::*;

/// A tenth of what it was tried with by hand; it must not matter.
const FINISHED: usize = 10_000;

#[test]
fn finished_records_cost_no_reads_however_many_there_are() {
    let world = Arc::new(in_memory());
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let world = world.clone();
            thread::spawn(move || {
                for n in 0..FINISHED / 4 {
                    let claim = won(world.store.claim(&request(&format!("{thread} {n}"))));
                    claim.complete(&success(b"done")).expect("owner");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    world.clock.advance(100 * 24 * 3_600_000);
    world.abandon_many(3);
    let (completer, _) = completing();
    let report = world.pass(&completer);
    assert_eq!((report.rows_read, report.completed), (3, 3));
}

#[test]
fn a_pass_can_be_bounded_and_cancelled_and_tells_its_progress() {
    let world = in_memory();
    world.abandon_many(600);
    let (completer, count) = completing();
    let pass = CompleterPass::new(&completer).tries_max(10);
    let report = world.store.complete_abandoned(&pass).expect("healthy");
    assert_eq!((report.completed, report.tried, report.is_whole), (10, 10, false));

    let cancel = Cancel::new();
    let (switch, seen) = (cancel.clone(), Arc::new(Mutex::new(Vec::new())));
    let noted = seen.clone();
    let pass = CompleterPass::new(&completer).or_until(&cancel).on_progress(move |done| {
        noted.lock().expect("no panic").push(done.completed);
        if done.completed == 20 {
            switch.cancel();
        }
    });
    let report = world.store.complete_abandoned(&pass).expect("healthy");
    // Those that ran when it was cancelled were let finish.
    assert!((20..=24).contains(&report.completed) && !report.is_whole, "{report:?}");
    assert_eq!(world.store.complete_abandoned(&pass).expect("healthy").rows_read, 0, "cancelled for good");
    let seen = seen.lock().expect("no panic").clone();
    assert!(seen.is_sorted() && seen.contains(&1) && seen.contains(&20), "{seen:?}");

    let early = CompleterPass::new(&completer).at(Millis(world.store.now_ms().0 - 1));
    assert_eq!(world.store.complete_abandoned(&early).expect("healthy").tried, 0, "not abandoned then");
    let rest = world.pass(&completer);
    assert_eq!(rest.completed, 600 - 10 - report.completed);
    assert_eq!(count.load(Ordering::SeqCst), 600);
}

#[test]
fn no_more_handlers_run_at_once_than_were_asked_for_and_as_many_do() {
    let world = in_memory();
    world.abandon_many(30);
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (running, highest) = (now.clone(), most.clone());
    let completer = orders(move |_| {
        highest.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        eventually("others run", || highest.load(Ordering::SeqCst) == 3);
        thread::yield_now();
        running.fetch_sub(1, Ordering::SeqCst);
        Ok(success(b"done").into())
    });
    let completer = completer.concurrency(3).expect("in bounds");
    let report = bounded(move || world.pass(&completer));
    assert_eq!((report.completed, most.load(Ordering::SeqCst)), (30, 3));
    assert_eq!(now.load(Ordering::SeqCst), 0);
}

/// The reaper reads the same lane: it leaves alone what is abandoned, and the completer what is reported.
#[test]
fn completer_and_reaper_leave_each_others_work_alone() {
    let world = in_memory();
    world.claim("held", b"order").hold().expect("owner");
    world.abandon_many(5);
    let reaped = world.store.reap(&Reap::new()).expect("healthy");
    assert_eq!((reaped.rows_read, reaped.batches, reaped.unfinished_reported), (5, 0, 0));
    world.clock.advance(100 * 24 * 3_600_000);
    let (completer, _) = completing();
    let report = world.pass(&completer);
    assert_eq!((report.rows_read, report.completed), (6, 5), "the held one is due, for the reaper");
    let reaped = world.store.reap(&Reap::new()).expect("healthy");
    assert_eq!((reaped.unfinished_reported, reaped.removed), (1, 0));
    assert_eq!(world.pass(&completer).rows_read, 0);
}
