//! Faults: each change of a run fails once or from then on; the store is reopened in its process, what was in
//! doubt is asked again, and the run goes on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use keyclaim::store::disk::{DiskFault, SimDisk, Tear};
use keyclaim::{Error, ErrorKind, Store};

use super::action::{Action, Workload};
use super::drive::{Driver, Fail, options};
use super::images::cut;
use super::look::{Seen, probe};
use super::world::Delta;
use crate::proofs::Report;
use crate::seeded::Draws;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
/// Arbitrary: long enough for every kind of action, over several seeds.
const ACTIONS: u64 = 24;

/// How an operation fails: from then on or once, with which error, and how much of it is done all the same.
const HOW: [(bool, i32, u8); 5] =
    [(false, EIO, 0), (false, EIO, 50), (true, ENOSPC, 50), (true, EIO, 0), (true, EIO, 100)];

/// Which fault: of a read or a change, at which, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Which {
    pub(super) reads: bool,
    pub(super) at: u64,
    pub(super) how: usize,
}

/// All faults of this seed's run, or only one.
pub(super) fn check_all(seed: u64, only: Option<Which>, report: &mut Report) {
    let parts = thread::available_parallelism().map_or(1, |parts| parts.get() as u64);
    let reports = thread::scope(|scope| {
        let spawn = |part| {
            scope.spawn(move || {
                let mut report = Report::new(super::FAULTS, seed);
                check_part(seed, only, (part, parts), &mut report);
                report
            })
        };
        let threads: Vec<_> = (0..parts).map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().expect("a panic of the store's is caught")).collect::<Vec<_>>()
    });
    reports.into_iter().for_each(|part| report.take_in(part));
}

fn check_part(seed: u64, only: Option<Which>, (part, parts): (u64, u64), report: &mut Report) {
    for reads in [false, true] {
        for how in 0..if reads { 1 } else { HOW.len() } {
            // Ends: behind the last operation of the run nothing fails.
            for at in (0..).skip(usize::try_from(part).unwrap_or_default()).step_by(parts as usize) {
                let which = only.unwrap_or(Which { reads, at, how });
                let ran = catch_unwind(AssertUnwindSafe(|| run(seed, which, report)));
                match ran.unwrap_or_else(|_| Err("a panic escaped from the store".to_owned())) {
                    Ok(0) => break,
                    Ok(_) => report.cases += 1,
                    Err(what) => {
                        report.cases += 1;
                        report.violation(format!(
                            "{what}; replay: KEYCLAIM_SEED={seed} KEYCLAIM_FAULT={}:{}:{} cargo test -p \
                             keyclaim-tests --test crash_images every_fault",
                            u8::from(which.reads),
                            which.at,
                            which.how
                        ));
                    }
                }
                if only.is_some() {
                    return;
                }
            }
        }
    }
}

/// One run with one fault; how many operations have failed.
fn run(seed: u64, which: Which, report: &mut Report) -> Result<u64, String> {
    let (from_then_on, errno, done_percent) = HOW.get(which.how).copied().unwrap_or(HOW[0]);
    let mut driver = Driver::new(seed).map_err(|error| format!("opening: {error}"))?;
    let Which { reads, at, .. } = which;
    driver.disk.fail(DiskFault { reads, at, from_then_on, errno, done_percent });
    let mut draws = Draws::new(seed ^ at);
    let mut result = Ok(());
    for number in 0..ACTIONS {
        let action = driver.choose(Workload::Retried);
        result = step(&mut driver, &action, &mut draws, report)
            .map_err(|what| format!("action {number}, {action:?}: {what}"));
        if result.is_err() {
            break;
        }
    }
    let faults = driver.disk.faults_met();
    if result.is_ok() && faults > 0 {
        result = check_end(&driver).map_err(|what| format!("after the run: {what}"));
    }
    driver.end();
    result.map(|()| faults)
}

fn step(
    driver: &mut Driver,
    action: &Action,
    draws: &mut Draws,
    report: &mut Report,
) -> Result<(), String> {
    let mut seen = Vec::new();
    let deltas = match driver.perform(action, false) {
        Ok(deltas) => deltas,
        Err(Fail::Broken(what)) => return Err(what),
        Err(Fail::Store(error)) => {
            if !matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Poisoned) {
                return Err(format!("the fault was told as {error:?}"));
            }
            report.add(if error.kind() == ErrorKind::Unknown { "unknown" } else { "poisoned" }, 1);
            seen.extend(seen_after_cut(driver, draws, report)?);
            reopen(driver)?;
            seen.push(("reopened", look(driver.store())?));
            again(driver, action)?
        }
    };
    for (when, seen) in seen {
        let worlds = driver.world.in_doubt(&seen.as_shown(&driver.world, &deltas));
        seen.find(&worlds, driver.now_ms()).map_err(|what| format!("{when}: {what}"))?;
    }
    driver.told(&deltas);
    Ok(())
}

/// What a power cut shows right after the fault, before anything is mended.
fn seen_after_cut(
    driver: &Driver,
    draws: &mut Draws,
    report: &mut Report,
) -> Result<Vec<(&'static str, Seen)>, String> {
    let (durable, unsynced) = driver.disk.unsynced();
    let tears = [
        ("cut, nothing unsynced", cut(&durable, &[], None, draws)),
        ("cut, all unsynced", cut(&durable, &unsynced, None, draws)),
        ("cut, torn", cut(&durable, &unsynced, Some(Tear { sector_len: 512, garbage: true }), draws)),
    ];
    tears
        .into_iter()
        .map(|(when, bytes)| {
            report.add("images", 1);
            let disk = SimDisk::holding(bytes);
            let store = Store::on_disk(&disk, options(driver.passed_ms).0)
                .map_err(|error| format!("{when}: it does not open: {error:?}"))?;
            let seen = look(&store).map_err(|what| format!("{when}: {what}"));
            disk.cut();
            Ok((when, seen?))
        })
        .collect()
}

/// Reopens in the process, first with the fault still there.
fn reopen(driver: &mut Driver) -> Result<(), String> {
    if let Err(error) = driver.store().reopen() {
        if error.kind() != ErrorKind::Poisoned {
            return Err(format!("reopening on a disk that fails: {error:?}"));
        }
        driver.disk.heal();
        driver.store().reopen().map_err(|error| format!("reopening on a healed disk: {error:?}"))?;
    }
    // A full disk, say, could open and fail at the next change.
    driver.disk.heal();
    Ok(())
}

fn again(driver: &mut Driver, action: &Action) -> Result<Vec<Delta>, String> {
    match driver.perform(action, true) {
        Ok(deltas) => Ok(deltas),
        Err(Fail::Broken(what)) => Err(format!("asked again: {what}")),
        Err(Fail::Store(error)) => Err(format!("asked again on a healed disk: {error:?}")),
    }
}

/// What was acknowledged is there in the same process, and after a power cut; and the store goes on.
fn check_end(driver: &Driver) -> Result<(), String> {
    let worlds = [driver.world.clone()];
    look(driver.store())?.find(&worlds, driver.now_ms())?;
    let disk = SimDisk::holding(driver.disk.unsynced().0);
    let (options, clock) = options(driver.passed_ms);
    let store = Store::on_disk(&disk, options).map_err(|error| format!("it does not open: {error:?}"))?;
    let result = look(&store).and_then(|seen| {
        let worlds = seen.find(&worlds, driver.now_ms())?;
        probe(&store, &worlds, &driver.tokens, || clock.advance(10_000_000))
    });
    disk.cut();
    result.map_err(|what| format!("power cut: {what}"))
}

fn look(store: &Store) -> Result<Seen, String> {
    Seen::of(store).map_err(|error: Error| format!("it cannot be read: {error:?}"))
}
