//! The embedded store: one file, many threads and tasks, and one process unless several say that they share it.
//!
//! What is guaranteed: of all claims on one key, decided by their own write transactions, one wins;
//! an answer that was given survives a power cut; a store in doubt says so. What this layer adds to
//! the [`machine`](crate::machine) is atomicity, durability and waiting; it decides nothing itself.
//!
//! A store starts two threads when it is opened, the writer and the timer, a third if it is to reap by
//! itself ([`Options::reap_every`]), and some more if it is to finish abandoned requests by itself
//! ([`Options::complete_every`]); it joins them when it is closed. Without [`Store::reap`], by hand or in its
//! thread, nothing is ever removed. The guarantee holds for one file: two hosts with a store each
//! are two winners.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;

mod app;
pub(crate) mod backend;
mod claims;
mod clock;
mod commit;
mod create;
mod desk;
#[cfg(any(test, feature = "testing"))]
pub mod disk;
mod durable;
mod elect;
mod engine;
pub(crate) mod fault;
pub(crate) mod file;
mod finish;
mod health;
mod holder;
#[cfg(any(test, feature = "testing"))]
pub mod inject;
mod inspect;
mod journal;
mod live;
mod log;
mod meta;
mod missing;
mod operator;
mod options;
mod outbox;
mod pauses;
#[cfg(not(any(test, feature = "testing")))]
mod plant;
#[cfg(any(test, feature = "testing"))]
pub mod plant;
mod queue;
mod request;
mod shared;
mod slot;
mod sweep;
mod sync;
mod tables;
mod timer;
mod transaction;
mod wait;

#[cfg(test)]
mod tests;

pub use app::AppPage;
pub use claims::{Cancel, ClaimWait};
pub use clock::SystemClock;
pub use inspect::{Inspection, Page, Standing, StepStanding, Which};
pub use options::{Options, Sharing};
pub use outbox::{DeadLetterPlace, DeadLetters, OutboxStanding};
/// The engine, for tables of your own inside [`Store::transaction`]: the version that keyclaim is built with.
pub use redb;
pub use request::ClaimRequest;
pub use transaction::{Transaction, View, transaction_error};

pub(crate) use finish::{Found, Took};
pub(crate) use outbox::{Ended, Turned};
pub(crate) use queue::{Lane, Place};
pub(crate) use shared::{Shared, lost};
pub(crate) use sweep::Told;
pub(crate) use timer::after;
pub(crate) use wait::Ringing;

use crate::clock::{Clock, StoreTime};
use crate::stats::{Now, Stats};
use crate::{Error, ErrorKind, Millis, Result, StoreId};
use commit::Writer;
use engine::{Engine, Open, StoreFormat};

/// An open store. Clones are handles on the same one; the last handle or claim to go closes it.
#[derive(Clone)]
pub struct Store {
    pub(crate) running: Arc<Running>,
    /// Claims have none: it goes with the last handle.
    _handle: Arc<Handle>,
}

/// What all handles on a store have in common and no claim has.
struct Handle {
    is_left: Arc<AtomicBool>,
}

/// The threads of an open store, ended when the last handle goes.
pub(crate) struct Running {
    pub(crate) shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Those of the completer, which end before the others.
    finishers: Mutex<Vec<JoinHandle<()>>>,
    home: Home,
}

/// Where an open store can be opened again.
enum Home {
    File(PathBuf),
    /// Nowhere: its rows go with its backend.
    Memory,
    #[cfg(any(test, feature = "testing"))]
    Disk(disk::SimDisk),
}

impl Store {
    /// Opens the store at this path, or makes it if there is no file.
    ///
    /// A new store appears whole or not at all, with mode 0600. A failed opening changes nothing.
    ///
    /// Errors: `Invalid` (a folder, no such folder, no permission), `Busy` (another process has it
    /// open, named in the message; see [`Options::open_wait`]), `Incompatible` (no store, or of
    /// another format), `Corrupt`, `Poisoned` (the disk failed or is full).
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let path = path.as_ref().to_path_buf();
        let clock = options.clock.clone().unwrap_or_else(|| Arc::new(SystemClock::new()));
        let (format, reading) = new_format(&clock, &options, None)?;
        let opened = file::open_wait(&path, &options.file(true), &format, options.wait)?;
        let id = opened.found;
        let open =
            Open { db: opened.db, file: opened.state, durable: durable::Durable::new(options.shared_wait()) };
        // Later openings, of this process too, find it by the same absolute path.
        let path = open.file.path().map_or(path, Path::to_path_buf);
        Self::start(open, id, options, clock, reading, Home::File(path))
    }

    /// A store that lives in memory and ends with its last handle: the same engine without a file.
    pub fn in_memory(options: Options) -> Result<Self> {
        let clock = options.clock.clone().unwrap_or_else(|| Arc::new(SystemClock::new()));
        let (format, reading) = new_format(&clock, &options, None)?;
        let opened = file::in_memory(&options.file(true), &format)?;
        let id = opened.found;
        let open =
            Open { db: opened.db, file: opened.state, durable: durable::Durable::new(options.shared_wait()) };
        Self::start(open, id, options, clock, reading, Home::Memory)
    }

    /// Opens the store on this simulated disk, or makes it if the disk is empty.
    ///
    /// Errors: those of [`Store::open`] that are of the medium or of its bytes.
    #[cfg(any(test, feature = "testing"))]
    pub fn on_disk(disk: &disk::SimDisk, options: Options) -> Result<Self> {
        let clock = options.clock.clone().unwrap_or_else(|| Arc::new(SystemClock::new()));
        let (format, reading) = new_format(&clock, &options, None)?;
        let opened = file::on_backend(Box::new(disk.clone()), &options.file(true), &format)?;
        let id = opened.found;
        let open =
            Open { db: opened.db, file: opened.state, durable: durable::Durable::new(options.shared_wait()) };
        Self::start(open, id, options, clock, reading, Home::Disk(disk.clone()))
    }

    fn start(
        open: Open,
        id: StoreId,
        options: Options,
        clock: Arc<dyn Clock>,
        reading: crate::clock::Reading,
        home: Home,
    ) -> Result<Self> {
        let saved = read_now(&open)?.time;
        let time = StoreTime::resume(Some(saved), reading, options.reboot_gap_max_ms);
        let (sender, messages) = crossbeam_channel::unbounded();
        let shared = Arc::new(Shared {
            engine: Engine::new(open, options.planted),
            writer: Mutex::new(Writer::new()),
            queue: queue::Queue::new(options.queue_len_max),
            waiters: wait::Waiters::new(),
            live: live::Live::default(),
            stats: crate::stats::Counters::default(),
            options,
            id,
            process: elect::ProcessId(crate::token::random_bytes()?),
            clock,
            time: Mutex::new(time),
            timer: sender,
            reaping: Mutex::default(),
            relays: outbox::Relays::default(),
            closing: Cancel::new(),
            tries: finish::Tries::default(),
            is_left: Arc::default(),
        });
        let handle = Arc::new(Handle { is_left: shared.is_left.clone() });
        let (threads, finishers) = (Mutex::default(), Mutex::default());
        let running = Running { shared: shared.clone(), threads, finishers, home };
        // Pushed one by one, so that a thread that cannot start leaves the other to be ended.
        let (writer, reaper) = (shared.clone(), shared.clone());
        running.threads.lock().push(spawn("keyclaim-writer", move || shared::write_groups(&writer))?);
        if let Some(period) = shared.options.reap_every {
            let run = move || sweep::run(&reaper, period);
            running.threads.lock().push(spawn("keyclaim-reaper", run)?);
        }
        let complete_every = shared.options.complete_every.clone();
        running.threads.lock().push(spawn("keyclaim-timer", move || timer::run(&shared, &messages))?);
        let running = Arc::new(running);
        if let Some((period, completer)) = complete_every {
            finish::start(&running, period, completer)?;
        }
        Ok(Self { running, _handle: handle })
    }

    /// Opens the same store again after it was poisoned. Live claims, tokens and renewals go on.
    ///
    /// First it drops the file's cached pages: after a failed sync reads still show bytes that the
    /// disk does not have. Then ask again whatever was answered `Unknown`.
    ///
    /// Errors: those of [`Store::open`]; the store stays poisoned and reopening can be tried again.
    /// `Invalid` for a store in memory, whose rows are gone with its failed backend.
    pub fn reopen(&self) -> Result<()> {
        let shared = &self.running.shared;
        if shared.engine.is_inherited() {
            return shared.engine.check();
        }
        if let Home::Memory = self.running.home {
            return Err(Error::invalid("a store in memory cannot be reopened; make a new one"));
        }
        // No group runs meanwhile: whoever commits holds the writer.
        shared.refuse_inside()?;
        let _writer = shared.writer.lock();
        if !shared.engine.is_poisoned() {
            return shared.engine.check();
        }
        shared.engine.reopen(|| {
            let (format, _) = new_format(&shared.clock, &shared.options, Some(shared.id))?;
            let opened = self.running.home.open(&shared.options, &format)?;
            Ok(Open {
                db: opened.db,
                file: opened.state,
                durable: durable::Durable::new(shared.options.shared_wait()),
            })
        })?;
        tracing::info!(target: "keyclaim", "store reopened");
        shared.waiters.ring_all();
        shared.relays.ring();
        Ok(())
    }

    /// Whether the store's file failed; [`Store::reopen`] heals it.
    pub fn is_poisoned(&self) -> bool {
        self.running.shared.engine.is_poisoned()
    }

    /// Closes the store: lets handlers of the completer end ([`Completer::close_wait`](crate::Completer::close_wait)), serves what waits, wakes who waits with `Closed`, ends its threads and
    /// closes the file. Other handles and claims are answered `Closed` from then on.
    ///
    /// Errors: what closing the file said; everything that was answered is durable all the same.
    pub fn close(self) -> Result<()> {
        self.running.stop()
    }

    /// Names this store. Two ids seen by one client are two stores, and two winners.
    pub fn id(&self) -> StoreId {
        self.running.shared.id
    }

    /// Store time now, in milliseconds: never jumps and never goes back, whatever the wall clock does.
    pub fn now_ms(&self) -> Millis {
        self.running.shared.now_ms()
    }

    /// The store's numbers since it was opened, and how it stands now.
    ///
    /// It reads one row for each unfinished record, 10,000 at most, and none for finished ones, and of the outbox
    /// what [`Store::outbox`] reads, from a snapshot that is gone when this returns.
    ///
    /// Errors: `Closed`, `Poisoned`, `Corrupt` (the index cannot be read). Each is worth an alarm.
    pub fn stats(&self) -> Result<Stats> {
        let shared = &self.running.shared;
        let counts = shared.engine.counts()?;
        let (now, outbox) = shared.read(|rows| {
            // The time is read after the snapshot was taken, so that no record in it is from a later instant.
            let now = Now::read(rows, || shared.now_ms(), |key, token| shared.live.lives(&(key, token)))?;
            Ok((now, OutboxStanding::read(rows, || shared.now_ms())?))
        })?;
        let (poisonings, reopens) = shared.engine.faults();
        Ok(Stats {
            poisonings,
            reopens,
            in_flight_now: now.in_flight,
            held_now: now.held,
            orphaned_now: now.orphaned,
            oldest_in_flight_ms: now.oldest_in_flight_ms,
            unfinished_damaged: now.damaged,
            unfinished_rows_read: now.rows_read,
            unfinished_is_floor: now.is_floor,
            outbox_events: outbox.events,
            outbox_dead_letters: outbox.dead_letters,
            outbox_lag_ms: outbox.lag_ms.unwrap_or_default().0,
            live_claims: shared.live.len() as u64,
            waiters: shared.waiters.len() as u64,
            file_syncs: counts.syncs,
            file_writes: counts.writes,
            file_bytes_written: counts.bytes_written,
            ..shared.stats.read()
        })
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({})", self.id())
    }
}

impl Running {
    /// A handle that does not count as one: the store's own threads go on only while somebody else has one.
    pub(crate) fn lend(self: &Arc<Self>) -> Store {
        Store { running: self.clone(), _handle: Arc::new(Handle { is_left: Arc::default() }) }
    }

    /// Joins this thread when the store closes; it must end by itself once that is so.
    pub(crate) fn keep(&self, thread: JoinHandle<()>) {
        let mut threads = self.threads.lock();
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
    }

    fn stop(&self) -> Result<()> {
        let shared = &self.shared;
        shared.refuse_inside()?;
        shared
            .engine
            .check()
            .or_else(|error| if error.kind() == ErrorKind::Poisoned { Ok(()) } else { Err(error) })?;
        shared.closing.cancel();
        shared.relays.ring();
        // While they can still say how they end.
        finish::stop(self);
        shared.queue.close();
        drop(shared.timer.send(timer::Message::Stop));
        for thread in self.threads.lock().drain(..) {
            // The last handle can go on a thread of the store's own, inside a waker; it ends by itself.
            if thread.thread().id() != thread::current().id() {
                drop(thread.join());
            }
        }
        // On the writer's own thread nobody else serves what still waits; elsewhere nothing does.
        shared::write_groups(shared);
        // A caller that commits by itself holds the writer; it is let finish.
        let mut writer = shared.writer.lock();
        // A poisoned store has nothing to save into.
        let saved = if shared.engine.is_poisoned() {
            Ok(())
        } else if shared.options.shared_wait().is_some() {
            writer.resign(shared)
        } else {
            writer.save_time(shared)
        };
        let closed = shared.engine.close();
        shared.waiters.ring_all();
        saved.and(closed)
    }
}

impl Home {
    /// Opens the store there again, from what its disk has: cached pages are dropped first.
    fn open(&self, options: &Options, format: &StoreFormat) -> Result<file::Opened<StoreId>> {
        match self {
            Self::File(path) => {
                file::drop_page_cache(path)?;
                file::open_wait(path, &options.file(false), format, options.wait)
            }
            Self::Memory => Err(Error::misdelivered("a store in memory")),
            #[cfg(any(test, feature = "testing"))]
            Self::Disk(disk) => {
                disk.drop_cache();
                file::on_backend(Box::new(disk.clone()), &options.file(false), format)
            }
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.is_left.store(true, Ordering::Release);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.shared.engine.is_inherited() {
            // In a forked child nothing of the parent's may be touched, not even to free it: the
            // threads are not here, and a lock may be held for ever.
            std::mem::forget(std::mem::take(&mut *self.threads.get_mut()));
            std::mem::forget(std::mem::take(&mut *self.finishers.get_mut()));
            std::mem::forget(self.shared.clone());
            return;
        }
        if let Err(error) = self.stop()
            && error.kind() != ErrorKind::Closed
        {
            tracing::error!(target: "keyclaim", %error, "closing the store failed; what was answered is durable");
        }
    }
}

fn new_format(
    clock: &Arc<dyn Clock>,
    options: &Options,
    same: Option<StoreId>,
) -> Result<(StoreFormat, crate::clock::Reading)> {
    let reading = clock.read();
    let time = StoreTime::resume(None, reading, options.reboot_gap_max_ms).saved();
    Ok((StoreFormat { new_id: StoreId::random()?, same, time }, reading))
}

fn read_now(open: &Open) -> Result<meta::Now> {
    use redb::ReadableDatabase;
    let txn = open.db.begin_read().map_err(fault::before_commit)?;
    meta::read(&txn.open_table(tables::META).map_err(fault::before_commit)?)
}

pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(run).map_err(|error| {
        Error::new(
            ErrorKind::Internal,
            "a thread of the store could not be started; raise the process's limits",
        )
        .caused_by(error)
    })
}
