//! The relay: hands due events to a handler, in threads or by hand, and stores how each delivery ended.
//!
//! ```text
//! dispatcher: wait for an end, a commit or the next due time -> one transaction: store the ends, lease what is due
//!      |  bounded: as many as the workers have hands for
//!      v
//! workers: call the handler -> the end goes back to the dispatcher
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, never, select, unbounded};
use parking_lot::Mutex;

use super::decide::{Ending, Settled, Terms};
use super::delivery::{Delivery, PublishError, Relayed};
use super::options::RelayOptions;
use crate::store::{Ended, Shared, Turned, after};
use crate::upkeep::jittered;
use crate::{Error, ErrorKind, Millis, Result, Store};

/// A running relay: publishes events through its handler until it is shut down, dropped, or the store is closed.
pub struct Relay {
    shared: Arc<Shared>,
    stop: Sender<Instant>,
    /// Disconnected once the dispatcher has ended.
    ended: Receiver<()>,
    counts: Arc<Counts>,
    workers: Vec<JoinHandle<()>>,
}

impl Store {
    /// Publishes events through this handler, in threads of its own, from now on.
    ///
    /// An event is handed to the handler at least once, and again with the same id until it returned `Ok` and
    /// that is on disk. It is woken by commits and by the time the next event is due. A handler that
    /// fails or panics is called again after a delay, up to the set number of attempts; then, or at once if it
    /// says [`PublishError::refused`], the event is a dead letter. Events of one scope and ordering key
    /// are handed over one after the other, in the order of their commits, by all relays of this store together.
    /// The handler must end within the lease: otherwise the event is delivered again meanwhile, and what it
    /// returns changes nothing. It must not own a handle on this store, which would then never close by itself.
    ///
    /// Dropping the relay, and closing the store, ends it as [`Relay::shutdown`] with no time does.
    /// *Errors*: `Closed`, `Poisoned`, `Internal` (no thread could be started).
    pub fn relay(
        &self,
        options: &RelayOptions,
        handler: impl Fn(&Delivery) -> Result<(), PublishError> + Send + Sync + 'static,
    ) -> Result<Relay> {
        let shared = self.running.shared.clone();
        shared.check()?;
        let counts = Arc::new(Counts::default());
        let handler: Arc<Handler> = Arc::new(handler);
        let (hand, deliveries) = bounded(options.in_hand_max());
        let (ends, ended) = unbounded();
        let mut workers = Vec::with_capacity(options.workers);
        for _ in 0..options.workers {
            let worker = Worker {
                shared: shared.clone(),
                terms: options.terms,
                handler: handler.clone(),
                counts: counts.clone(),
            };
            let (deliveries, ends) = (deliveries.clone(), ends.clone());
            workers
                .push(crate::store::spawn("keyclaim-relay-worker", move || worker.run(&deliveries, &ends))?);
        }
        let (stop, stops) = bounded(1);
        let (running, ended_running) = bounded(0);
        let dispatcher = Dispatcher {
            wakes: shared.relays.join(),
            shared: shared.clone(),
            options: *options,
            hand,
            undelivered: deliveries,
            ended,
            stops,
            in_hand: 0,
            ends: Vec::new(),
            counts: counts.clone(),
        };
        // The store joins it when it closes, so that what was not delivered is given back before that.
        self.running.keep(crate::store::spawn("keyclaim-relay", move || {
            let _running: Sender<()> = running;
            dispatcher.run();
        })?);
        Ok(Relay { shared, stop, ended: ended_running, counts, workers })
    }

    /// Hands every event that was due at this instant of store time to the handler, one after the other, here
    /// and now: one pass of a relay, by hand.
    ///
    /// What becomes due by an end, as the next event of an ordering key, is part of the pass. The instant must
    /// not be later than now. *Errors*: `Invalid` (a time to come), `Unknown` and `Poisoned` (reopen; what was
    /// handed over and not stored is delivered again), `Closed`. Otherwise like [`Store::relay`].
    pub fn relay_once(
        &self,
        at: Millis,
        options: &RelayOptions,
        handler: impl Fn(&Delivery) -> Result<(), PublishError>,
    ) -> Result<Relayed> {
        let shared = &self.running.shared;
        shared.check()?;
        if at > shared.now_ms() {
            return Err(Error::invalid("a pass cannot run ahead of store time; give a time that has come"));
        }
        let counts = Counts::default();
        let mut ends = Vec::new();
        // Ends: an event is gone, dead or due later after as many turns as it has attempts.
        loop {
            let turned = shared.outbox_turn(&ends, options.in_hand_max(), Some(at), &options.terms)?;
            counts.turned(&turned, &ends);
            if turned.leased.is_empty() {
                shared.relays.ring();
                return Ok(counts.read());
            }
            ends =
                turned.leased.iter().map(|delivery| deliver(shared, &handler, &counts, delivery)).collect();
        }
    }
}

impl Relay {
    /// What the relay has done so far; nothing in a forked child.
    pub fn counts(&self) -> Relayed {
        // In a forked child a lock may be held for ever.
        if self.shared.is_inherited() { Relayed::default() } else { self.counts.read() }
    }

    /// Ends the relay: leases nothing more, gives back at once what no handler has begun, lets running handlers
    /// end for at most `within`, and stores how they ended. Returns what the relay has done, when it has ended.
    ///
    /// [`Relayed::open`] says how many deliveries still run, or have ends that could not be stored: their
    /// events are delivered again, by whichever relay finds them after their lease. A handler that ends
    /// later stores its own end, if the store is still open.
    pub fn shutdown(mut self, within: Duration) -> Relayed {
        if self.shared.is_inherited() {
            // A forked child has none of the threads.
            return Relayed::default();
        }
        self.tell(after(within));
        let _disconnected = self.ended.recv();
        let done = self.counts();
        if done.open == 0 {
            // Nothing runs in them any more.
            self.workers.drain(..).for_each(|worker| drop(worker.join()));
        }
        done
    }

    fn tell(&self, deadline: Instant) {
        // Refused only if it has been told before, or has ended with the store.
        let _told = self.stop.try_send(deadline);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if !self.shared.is_inherited() {
            self.tell(after(Duration::ZERO));
        }
    }
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

type Handler = dyn Fn(&Delivery) -> Result<(), PublishError> + Send + Sync;

struct Worker {
    shared: Arc<Shared>,
    terms: Terms,
    handler: Arc<Handler>,
    counts: Arc<Counts>,
}

impl Worker {
    /// Ends when the dispatcher has, and what it was handed has been delivered.
    fn run(&self, deliveries: &Receiver<Delivery>, ends: &Sender<Ended>) {
        for delivery in deliveries {
            let ended = deliver(&self.shared, &*self.handler, &self.counts, &delivery);
            let Err(unheard) = ends.send(ended) else { continue };
            // The dispatcher was not let wait for this one.
            let ends = [unheard.into_inner()];
            match self.shared.outbox_turn(&ends, 0, None, &self.terms) {
                Ok(turned) => {
                    self.counts.turned(&turned, &ends);
                    self.shared.relays.ring();
                }
                Err(error) => {
                    tracing::debug!(target: "keyclaim", %error, "the end of a delivery came after its relay's");
                }
            }
        }
    }
}

/// Calls the handler, unless the lease is over.
fn deliver(
    shared: &Shared,
    handler: &(impl Fn(&Delivery) -> Result<(), PublishError> + ?Sized),
    counts: &Counts,
    delivery: &Delivery,
) -> Ended {
    if shared.now_ms() >= delivery.lease_until_ms {
        // It waited too long for a worker; somebody else may have it by now.
        return delivery.ended(Ending::Returned);
    }
    counts.begun.fetch_add(1, Ordering::Relaxed);
    let result = catch_unwind(AssertUnwindSafe(|| handler(delivery))).unwrap_or_else(|_| {
        counts.panicked.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(target: "keyclaim", event = %delivery.id, "a relay's handler panicked; the event is tried again");
        Err(PublishError::again("the handler panicked"))
    });
    delivery.ended(result.map_or_else(Ending::Failed, |()| Ending::Published))
}

struct Dispatcher {
    shared: Arc<Shared>,
    options: RelayOptions,
    hand: Sender<Delivery>,
    /// The other end of `hand`, to take back what no worker took.
    undelivered: Receiver<Delivery>,
    ended: Receiver<Ended>,
    wakes: Receiver<()>,
    stops: Receiver<Instant>,
    /// Events that are leased and whose end has not come back.
    in_hand: usize,
    /// Ends that are not stored yet.
    ends: Vec<Ended>,
    counts: Arc<Counts>,
}

/// When the dispatcher looks again, unless it is woken before.
#[derive(Clone, Copy)]
enum Look {
    Now,
    In(Duration),
    WhenWoken,
}

impl Dispatcher {
    fn run(mut self) {
        let mut look = Look::Now;
        loop {
            if let Some(deadline) = self.wait(look) {
                self.stop(deadline);
                return;
            }
            look = self.turn();
        }
    }

    /// Waits for something to do; until when running handlers are let go on, if it is to end.
    fn wait(&mut self, look: Look) -> Option<Instant> {
        let timer = match look {
            Look::Now => crossbeam_channel::at(after(Duration::ZERO)),
            Look::In(span) => crossbeam_channel::at(after(span)),
            Look::WhenWoken => never(),
        };
        loop {
            select! {
                recv(self.stops) -> deadline => {
                    return Some(deadline.unwrap_or_else(|_| after(Duration::ZERO)));
                }
                recv(self.ended) -> ended => match ended {
                    Ok(ended) => self.take(Some(ended)),
                    // No worker is left.
                    Err(_) => return Some(after(Duration::ZERO)),
                },
                recv(self.wakes) -> _ => {}
                recv(timer) -> _ => {}
            }
            if self.shared.closing.is_cancelled() {
                return Some(after(Duration::ZERO));
            }
            // Woken without room for an event, there is nothing to do until one ends.
            if !self.ends.is_empty() || self.room() > 0 {
                return None;
            }
        }
    }

    /// Stores the ends there are and leases as many events as there is room for.
    fn turn(&mut self) -> Look {
        self.take(None);
        let room = self.room();
        let Some(turned) = self.store_ends(room) else {
            return Look::In(jittered(LOOK_AGAIN, self.shared.store_id()));
        };
        let has_room = turned.leased.len() < room;
        self.in_hand += turned.leased.len();
        for delivery in turned.leased {
            // There is room for as many as may be in hand.
            drop(self.hand.send(delivery));
        }
        match turned.next_ms {
            // What is due now and was not leased stays until there is room, which an end gives.
            Some(next_ms) if has_room => {
                // Woken early if a clock of another kind than the process's own has moved.
                Look::In(next_ms.since(self.shared.now_ms()).to_duration().min(LOOK_AGAIN))
            }
            _ => Look::WhenWoken,
        }
    }

    /// None if that failed: the ends are kept, to be stored with the next turn. They fit into one, since no more
    /// events are in hand than one has.
    fn store_ends(&mut self, room: usize) -> Option<Turned> {
        let turned = catch_unwind(AssertUnwindSafe(|| {
            self.shared.outbox_turn(&self.ends, room, None, &self.options.terms)
        }));
        match turned {
            Ok(Ok(turned)) => {
                self.counts.turned(&turned, &self.ends);
                self.ends.clear();
                Some(turned)
            }
            Ok(Err(error)) => {
                if error.kind() != ErrorKind::Closed {
                    tracing::warn!(target: "keyclaim", %error, "a relay could not store or lease; it tries again");
                }
                None
            }
            Err(_) => {
                tracing::error!(target: "keyclaim", "a relay panicked and goes on; report it");
                None
            }
        }
    }

    /// Gives back what was not begun, then lets what runs end.
    fn stop(mut self, deadline: Instant) {
        let returned: Vec<_> =
            self.undelivered.try_iter().map(|delivery| delivery.ended(Ending::Returned)).collect();
        self.in_hand = self.in_hand.saturating_sub(returned.len());
        self.ends.extend(returned);
        self.take(None);
        // The workers end with what they are at.
        self.hand = bounded(0).0;
        loop {
            if !self.ends.is_empty() {
                self.store_ends(0);
            }
            if self.in_hand == 0 {
                break;
            }
            let Ok(ended) = self.ended.recv_deadline(deadline) else { break };
            self.take(Some(ended));
        }
        self.shared.relays.ring();
        self.counts.open.store((self.in_hand + self.ends.len()) as u64, Ordering::Relaxed);
    }

    /// Takes this end, and whatever other ends have come.
    fn take(&mut self, ended: Option<Ended>) {
        let ends: Vec<_> = ended.into_iter().chain(self.ended.try_iter()).collect();
        self.in_hand = self.in_hand.saturating_sub(ends.len());
        self.ends.extend(ends);
    }

    /// How many events may be leased in the turn that stores the ends there are.
    fn room(&self) -> usize {
        self.options.in_hand_max().saturating_sub(self.in_hand)
    }
}

/// The counters behind [`Relayed`].
#[derive(Debug, Default)]
struct Counts {
    begun: AtomicU64,
    panicked: AtomicU64,
    open: AtomicU64,
    stored: Mutex<Relayed>,
}

impl Counts {
    fn turned(&self, turned: &Turned, ends: &[Ended]) {
        let mut stored = self.stored.lock();
        stored.rows_read += turned.rows_read;
        stored.damaged += turned.damaged;
        stored.dead += turned.died;
        for (settled, ended) in turned.settled.iter().zip(ends) {
            match (settled, &ended.ending) {
                (Ok(Settled::Published), _) => stored.published += 1,
                (Ok(Settled::Dead), _) => stored.dead += 1,
                (Ok(Settled::Again { .. }), Ending::Returned) => stored.returned += 1,
                (Ok(Settled::Again { .. }), _) => stored.failed += 1,
                (Err(error), _) if error.kind() == ErrorKind::Fenced => stored.overtaken += 1,
                // It is delivered again after its lease, and may be readable then.
                (Err(error), _) => {
                    stored.damaged += 1;
                    tracing::warn!(target: "keyclaim", %error, "the end of a delivery could not be stored");
                }
            }
        }
    }

    fn read(&self) -> Relayed {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (begun, panicked, open) = (of(&self.begun), of(&self.panicked), of(&self.open));
        Relayed { begun, panicked, open, ..*self.stored.lock() }
    }
}

/// At most this long between two looks at what is due later, should a test move the clock or the machine sleep.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
