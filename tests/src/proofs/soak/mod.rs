//! A service's day in minutes: whether a store that works stays as large as it is.
//!
//! ```text
//! threads, at a fixed pace: claim, steps, complete, release, abandon, ask again, look   -+
//! the store's own: reaper, completer, renewals; a relay beside them                      +-> one file
//! each half minute, by turns: close and open; a sync that fails, and reopening         -+
//! every five seconds: length of the file, memory, descriptors, threads; at each close: pages in use
//! ```
//!
//! The clock is the real one and the horizons are short: a record lives for `HORIZON`, so after two of them as
//! much is removed as is added. The pace is fixed, or a machine that gets faster would look like a leak. What is
//! answered is held against a small ledger: every replay exact, no token twice, no event lost.

mod judge;
mod known;
mod sample;
mod turns;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use keyclaim::outbox::{Backoff, Delivery, PublishError, Relay, RelayOptions};
use keyclaim::store::inject::{Fault, Faults, Op};
use keyclaim::{Abandoned, Completer, Options, Policy, Store};

use judge::judge;
pub use judge::{Growth, growth};
pub use sample::Sample;

use super::{Budget, Report};
use known::Known;
use turns::{OPERATION, finish, payload_of_event};

/// How long a completed request is answered again.
const WINDOW: Duration = Duration::from_secs(15);
/// How long a record lives.
const HORIZON: Duration = Duration::from_secs(30);
/// How long a crash would block its key; what is dropped without a word is finished after it.
const LEASE: Duration = Duration::from_secs(2);
/// More threads, more answers to one sync (arbitrary).
const THREADS: u64 = 8;
/// One turn of a thread in this long: 160 turns a second, which a disk that syncs in 4 ms can bear.
const PACE: Duration = Duration::from_millis(50);
/// Smaller than the file, so that it is full within the first minute.
const CACHE_LEN: usize = 8 * 1024 * 1024;
/// EIO: what a sync fails with.
const EIO: i32 = 5;
/// Longer than any wait that ends at all (arbitrary).
const PATIENCE: Duration = Duration::from_secs(30);

/// How long, how often, and with which mistake.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Where the turns come from.
    pub seed: u64,
    /// How long the threads work.
    pub lasting: Duration,
    /// The time from one sample to the next.
    pub sample_every: Duration,
    /// The time from one opening to the next.
    pub reopen_every: Duration,
    /// The mistake, if one is to be made.
    pub plant: Option<Plant>,
}

/// A mistake that the store or its user could make. The soak must see each of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Plant {
    /// A descriptor is left open with every sample.
    Descriptors,
    /// 2 MiB are kept with every sample.
    Memory,
    /// Nothing is ever removed.
    NoReaper,
    /// What is completed is not always what was asked for.
    OtherBody,
    /// Some events are published by nobody.
    LostEvents,
}

/// Works for as many seconds as there are cases.
pub fn soak(budget: &Budget) -> Report {
    let lasting = Duration::from_secs(budget.cases.max(1));
    run(&Plan {
        seed: budget.seed,
        lasting,
        sample_every: Duration::from_secs(5).min(lasting / 4),
        reopen_every: Duration::from_secs(30).min(lasting / 3),
        plant: None,
    })
}

/// Works as the plan says.
///
/// # Panics
/// If the machine gives no threads or files: then nothing was tested.
pub fn run(plan: &Plan) -> Report {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let soak = Soak::begin(plan, folder.path());
    let began = Instant::now();
    let samples = thread::scope(|scope| {
        for thread in 0..THREADS {
            let soak = &soak;
            scope.spawn(move || soak.work(thread));
        }
        let samples = soak.watch();
        soak.is_over.store(true, Ordering::Relaxed);
        samples
    });
    soak.end();
    let mut report = soak.known.report(plan.seed);
    report.cases = began.elapsed().as_secs();
    report.add("reopened", soak.reopened.load(Ordering::Relaxed));
    report.add("healed", soak.healed.load(Ordering::Relaxed));
    judge(&samples, &soak.used.lock().unwrap_or_else(PoisonError::into_inner), &mut report);
    let replay = format!(
        "replay: cargo run -p keyclaim-tests --bin proofs -- --harness soak --seed {} --cases {}",
        plan.seed,
        plan.lasting.as_secs()
    );
    report.violations.iter_mut().for_each(|violation| *violation = format!("{violation}; {replay}"));
    report
}

struct Soak {
    plan: Plan,
    path: PathBuf,
    options: Options,
    faults: Faults,
    known: Arc<Known>,
    /// Locked for reading while a thread uses it, for writing while it is closed and opened.
    open: RwLock<Option<Open>>,
    next_key: AtomicU64,
    is_over: AtomicBool,
    reopened: AtomicU64,
    healed: AtomicU64,
    leaked: Mutex<Vec<Leak>>,
    /// How much of the file is in use, each time it was closed.
    used: Mutex<Vec<u64>>,
}

struct Open {
    store: Store,
    relay: Relay,
}

/// What a plant keeps for ever.
enum Leak {
    Descriptor(#[expect(dead_code, reason = "it is open, and that is all")] std::fs::File),
    Memory(#[expect(dead_code, reason = "it is kept, and that is all")] Vec<u8>),
}

impl Soak {
    fn begin(plan: &Plan, folder: &Path) -> Self {
        let known = Arc::new(Known::default());
        let options = options(plan, &known).expect("the settings are in range");
        let soak = Self {
            plan: *plan,
            path: folder.join("store"),
            faults: options.faults(),
            options,
            known,
            open: RwLock::default(),
            next_key: AtomicU64::new(1),
            is_over: AtomicBool::new(false),
            reopened: AtomicU64::new(0),
            healed: AtomicU64::new(0),
            leaked: Mutex::default(),
            used: Mutex::default(),
        };
        *soak.open.write().unwrap_or_else(PoisonError::into_inner) = Some(soak.open());
        soak
    }

    fn open(&self) -> Open {
        let store = Store::open(&self.path, self.options.clone()).expect("the store opens");
        let relay = self.relay(&store).expect("the settings are in range");
        Open { store, relay }
    }

    fn relay(&self, store: &Store) -> keyclaim::Result<Relay> {
        let backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500))?;
        let options = RelayOptions::new().workers(2)?.lease(LEASE)?.backoff(backoff);
        let (known, plant, calls) = (self.known.clone(), self.plan.plant, AtomicU64::new(0));
        store.relay(&options, move |delivery: &Delivery| {
            let call = calls.fetch_add(1, Ordering::Relaxed);
            if call % 20 == 7 {
                return Err(PublishError::again("the other side is busy"));
            }
            let is_lost = plant == Some(Plant::LostEvents) && call.is_multiple_of(50);
            match payload_of_event(delivery.event.payload()) {
                Some(_) if is_lost => {}
                Some((key, token)) => known.published(key, token),
                None => known.wrong("an event is not what was emitted".into()),
            }
            Ok(())
        })
    }

    /// One thread of the service.
    fn work(&self, thread: u64) {
        let mut turns = turns::Turns::new(self.plan.seed, thread, self.plan.plant);
        let mut next = Instant::now();
        while !self.is_over.load(Ordering::Relaxed) {
            {
                let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
                if let Some(open) = &*open {
                    turns.take(&open.store, &self.known, &self.next_key);
                }
            }
            let now = Instant::now();
            next = (next + PACE).max(now);
            thread::sleep(next - now);
        }
    }

    /// Samples, and reopens in between, until the time is over.
    fn watch(&self) -> Vec<Sample> {
        let (began, mut samples) = (Instant::now(), Vec::new());
        let (mut sample_at, mut reopen_at) = (began + self.plan.sample_every, began + self.plan.reopen_every);
        eprintln!("{}", Sample::HEAD);
        while began.elapsed() < self.plan.lasting {
            thread::sleep(sample_at.saturating_duration_since(Instant::now()));
            sample_at += self.plan.sample_every;
            self.leak();
            samples.push(self.sample(began.elapsed()));
            if Instant::now() >= reopen_at {
                reopen_at = Instant::now() + self.plan.reopen_every;
                samples.last().iter().for_each(|sample| eprintln!("{sample}"));
                let was = self.reopened.load(Ordering::Relaxed) + self.healed.load(Ordering::Relaxed);
                if was.is_multiple_of(2) { self.close_and_open() } else { self.fail_and_heal() }
            }
        }
        samples
    }

    fn sample(&self, at: Duration) -> Sample {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let stats = open.as_ref().and_then(|open| open.store.stats().ok());
        Sample::take(at, &self.path, self.known.claims_since(), stats.as_ref())
    }

    fn leak(&self) {
        let mut leaked = self.leaked.lock().unwrap_or_else(PoisonError::into_inner);
        match self.plan.plant {
            Some(Plant::Descriptors) => {
                leaked.push(Leak::Descriptor(std::fs::File::open("/dev/null").expect("it is there")));
            }
            Some(Plant::Memory) => leaked.push(Leak::Memory(vec![1; 2 << 20])),
            _ => {}
        }
    }

    /// As a service that is started anew.
    fn close_and_open(&self) {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(Open { store, relay }) = open.take() {
            relay.shutdown(PATIENCE);
            if let Err(error) = store.close() {
                self.known.wrong(format!("closing: {error:?}"));
            }
            self.used.lock().unwrap_or_else(PoisonError::into_inner).push(used_kib(&self.path));
        }
        *open = Some(self.open());
        self.reopened.fetch_add(1, Ordering::Relaxed);
    }

    /// As a disk that fails once: claims, relay and tokens go on.
    fn fail_and_heal(&self) {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let Some(open) = &*open else { return };
        let fault = Fault { op: Op::Sync, nth: 1, from_then_on: false, done: false, errno: EIO };
        self.faults.add(fault);
        if !eventually(|| open.store.is_poisoned()) {
            self.known.wrong("a failed sync did not poison the store".into());
        }
        self.faults.clear();
        match open.store.reopen() {
            Ok(()) => _ = self.healed.fetch_add(1, Ordering::Relaxed),
            Err(error) => self.known.wrong(format!("reopening: {error:?}")),
        }
    }

    /// Lets the relay publish what is left, and has every page of the file verified.
    fn end(&self) {
        let open = self.open.write().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Open { store, relay }) = open else { return };
        let is_quiet = || store.outbox().is_ok_and(|standing| standing.events == 0);
        if !eventually(|| is_quiet() && self.known.unpublished() == 0) {
            let left = store.outbox().map(|standing| (standing.events, standing.dead_letters));
            let unpublished = self.known.unpublished();
            self.known.wrong(format!("{unpublished} events were not published; in the outbox: {left:?}"));
        }
        relay.shutdown(PATIENCE);
        let closed = store.close();
        let verified = Store::open(&self.path, self.options.clone().verify_on_open(true));
        if let Err(error) = closed.and(verified).and_then(Store::close) {
            self.known.wrong(format!("the file at the end: {error:?}"));
        }
    }
}

fn options(plan: &Plan, known: &Arc<Known>) -> keyclaim::Result<Options> {
    let policy =
        Policy::new(Abandoned::Rerun).lease(LEASE)?.replay_window(WINDOW)?.reaper_horizon(HORIZON)?;
    let pauses = Backoff::new(Duration::from_millis(50), Duration::from_secs(1))?;
    let (known, seen) = (known.clone(), AtomicU64::new(0));
    let completer = Completer::new().concurrency(2)?.backoff(pauses).handler(OPERATION, move |takeover| {
        // Now and then the other side is not there.
        if seen.fetch_add(1, Ordering::Relaxed) % 20 == 7 {
            return Err(keyclaim::Later::new());
        }
        finish(takeover, &known)
    })?;
    let options = Options::with_policy(policy)
        .cache_len(CACHE_LEN)
        .complete_every(Duration::from_millis(500), completer)?;
    if plan.plant == Some(Plant::NoReaper) { Ok(options) } else { options.reap_every(Duration::from_secs(1)) }
}

/// How much of a closed file is in use, as the engine itself counts it.
fn used_kib(path: &Path) -> u64 {
    let stats = || -> Result<_, redb::Error> {
        // The engine's own default would keep what it has read in memory, and that is judged.
        let db = redb::Database::builder().set_cache_size(CACHE_LEN).open(path)?;
        Ok(db.begin_write()?.stats()?)
    };
    let stats = stats().expect("the file was closed well");
    stats.allocated_pages() * stats.page_size() as u64 / 1024
}

/// Whether it comes to be so in time.
fn eventually(mut is_so: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    loop {
        if is_so() {
            return true;
        }
        if began.elapsed() > PATIENCE {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
}
