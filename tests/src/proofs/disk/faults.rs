//! Faults: each change of a run fails once or from then on; the store is reopened in its process, what was in
//! doubt is asked again, and the run goes on.

use std::panic::{AssertUnwindSafe, catch_unwind};

use keyclaim::store::disk::{DiskFault, SimDisk, Tear};
use keyclaim::{Error, ErrorKind, Millis, Store};

use super::Mode;
use super::action::{Action, Workload};
use super::drive::{Driver, Fail, options};
use super::images::Cut;
use super::look::{KEYS, Seen, name, probe};
use super::world::{Delta, World};
use crate::proofs::{Report, in_parts};
use crate::request::id;
use crate::seeded::Draws;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
/// Arbitrary: long enough for every kind of action, over several seeds.
const ACTIONS: u64 = 24;

/// How operations fail: reads or changes, once or from then on, with which error, and how much of a change is made
/// all the same.
const WAYS: [DiskFault; 7] = [
    way(false, false, EIO, 0),
    way(false, false, EIO, 50),
    way(false, true, ENOSPC, 50),
    way(false, true, EIO, 0),
    way(false, true, EIO, 100),
    way(true, false, EIO, 0),
    way(true, true, EIO, 0),
];

const fn way(reads: bool, from_then_on: bool, errno: i32, done_percent: u8) -> DiskFault {
    DiskFault { reads, at: 0, from_then_on, errno, done_percent }
}

/// Which fault: while the store works or while it is opened, which of the ways, and at which operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Which {
    pub(super) opening: bool,
    pub(super) way: usize,
    pub(super) at: u64,
}

impl Which {
    fn fault(self) -> DiskFault {
        let way = WAYS.get(self.way).unwrap_or(&WAYS[0]);
        DiskFault { at: self.at, ..*way }
    }
}

/// All faults of this seed's run, or only one.
pub(super) fn check_all(seed: u64, mode: Mode, only: Option<Which>, report: &mut Report) {
    let crashed = match Crashed::of(seed, mode) {
        Ok(crashed) => crashed,
        Err(what) => {
            return report.violation(format!(
                "without a fault: {what}; replay: KEYCLAIM_SEED={seed} cargo test -p keyclaim-tests --test \
                 crash_images {}",
                mode.fault_test(),
            ));
        }
    };
    in_parts(report, |(part, parts), report| {
        check_part((seed, mode), &crashed, only, (part as u64, parts as u64), report);
    });
}

fn check_part(
    (seed, mode): (u64, Mode),
    crashed: &Crashed,
    only: Option<Which>,
    (part, parts): (u64, u64),
    report: &mut Report,
) {
    for opening in [false, true] {
        for way in 0..WAYS.len() {
            // Ends: behind the last operation of the run nothing fails.
            for at in (0..).map(|round| round * parts + part) {
                let which = only.unwrap_or(Which { opening, way, at });
                let ran = catch_unwind(AssertUnwindSafe(|| {
                    if which.opening { crashed.open(which, report) } else { run(seed, mode, which, report) }
                }));
                let met = ran.unwrap_or_else(|_| Err("a panic escaped from the store".to_owned()));
                if let Ok(0) = met {
                    break;
                }
                report.cases += 1;
                if let Err(what) = met {
                    let Which { opening, way, at } = which;
                    report.violation(format!(
                        "{what}; replay: KEYCLAIM_SEED={seed} KEYCLAIM_FAULT={}:{way}:{at} cargo test -p \
                         keyclaim-tests --test crash_images {}",
                        u8::from(opening),
                        mode.fault_test(),
                    ));
                }
                // With a mistake planted the first finding will do.
                if only.is_some() || (mode.plant.is_some() && !report.violations.is_empty()) {
                    return;
                }
            }
        }
    }
}

/// One run with one fault; how many operations have failed.
fn run(seed: u64, mode: Mode, which: Which, report: &mut Report) -> Result<u64, String> {
    let mut driver = Driver::new(Draws::new(seed), mode).map_err(|error| format!("opening: {error}"))?;
    driver.disk.fail(which.fault());
    let mut draws = Draws::new(seed ^ which.at);
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

fn step(driver: &mut Driver, action: &Action, draws: &mut Draws, report: &mut Report) -> Result<(), String> {
    let mut seen = Vec::new();
    let deltas = match driver.perform(action, false) {
        Ok(deltas) => deltas,
        Err(Fail::Broken(what)) => return Err(what),
        Err(Fail::Store(error)) => {
            if !matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Poisoned) {
                return Err(format!("the fault was told as {error:?}"));
            }
            report.add(if error.kind() == ErrorKind::Unknown { "unknown" } else { "poisoned" }, 1);
            refuses_until_reopened(driver.store())?;
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

/// A store whose file has failed answers nothing: what it would read may not be what the disk has.
fn refuses_until_reopened(store: &Store) -> Result<(), String> {
    for key in 0..KEYS {
        match store.inspect(&id(&name(key))) {
            Err(error) if error.kind() == ErrorKind::Poisoned => {}
            other => return Err(format!("before it was reopened, a look at {} gave {other:?}", name(key))),
        }
    }
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
        ("cut, nothing unsynced", Cut::Nothing.of(&durable, &unsynced, draws)),
        ("cut, all unsynced", Cut::All.of(&durable, &unsynced, draws)),
        ("cut, torn", Cut::Torn(Tear { sector_len: 512, garbage: true }).of(&durable, &unsynced, draws)),
    ];
    tears
        .into_iter()
        .map(|(when, bytes)| {
            report.add("images", 1);
            let disk = SimDisk::holding(bytes);
            let store = Store::on_disk(&disk, options(driver.mode.healthy(), driver.passed_ms).0)
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
    let (options, clock) = options(driver.mode.healthy(), driver.passed_ms);
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

/// What a power cut has left behind a run, and what the store had told.
struct Crashed {
    bytes: Vec<u8>,
    passed_ms: u64,
    now_ms: Millis,
    world: World,
    mode: Mode,
}

impl Crashed {
    fn of(seed: u64, mode: Mode) -> Result<Self, String> {
        let mut driver = Driver::new(Draws::new(seed), mode).map_err(|error| format!("opening: {error}"))?;
        for _ in 0..ACTIONS {
            let action = driver.choose(Workload::Retried);
            let deltas = again(&mut driver, &action)?;
            driver.told(&deltas);
        }
        let bytes = driver.disk.unsynced().0;
        let (passed_ms, now_ms, world) = (driver.passed_ms, driver.now_ms(), driver.world.clone());
        driver.end();
        Ok(Self { bytes, passed_ms, now_ms, world, mode: mode.healthy() })
    }

    /// Opens it with one fault; how many operations have failed. Afterwards, on a disk that is well and one that
    /// was cut off, all that was told is there.
    fn open(&self, which: Which, report: &mut Report) -> Result<u64, String> {
        let disk = SimDisk::holding(self.bytes.clone());
        disk.fail(which.fault());
        let opened = Store::on_disk(&disk, options(self.mode, self.passed_ms).0);
        let met = disk.faults_met();
        let refused = match opened {
            Ok(store) => {
                disk.cut();
                drop(store);
                None
            }
            Err(error) => Some(error),
        };
        if let Some(error) = refused {
            report.add("openings refused", 1);
            if error.kind() != ErrorKind::Poisoned {
                return Err(format!("a fault while opening was told as {error:?}"));
            }
        }
        let (durable, unsynced) = disk.unsynced();
        let mut draws = Draws::new(which.at);
        for cut in [Cut::Nothing, Cut::All] {
            let disk = SimDisk::holding(cut.of(&durable, &unsynced, &mut draws));
            let store = Store::on_disk(&disk, options(self.mode, self.passed_ms).0).map_err(|error| {
                format!("after a fault while opening, {cut:?}: it does not open: {error:?}")
            })?;
            let seen = look(&store)
                .and_then(|seen| seen.find(std::slice::from_ref(&self.world), self.now_ms).map(|_| ()));
            disk.cut();
            seen.map_err(|what| format!("after a fault while opening, {cut:?}: {what}"))?;
        }
        Ok(met)
    }
}
