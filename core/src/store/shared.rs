//! What the handles, the writer and the timer of one open store share.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use super::Running;
use super::claims::Cancel;
use super::commit::Writer;
use super::desk;
use super::elect::ProcessId;
use super::engine::Engine;
use super::finish::Tries;
use super::live::{Live, Place, renew_every};
use super::options::{Options, Sharing};
use super::outbox::Relays;
use super::plant::{Plant, Planted};
use super::queue::{Job, Lane, Queue, Reply};
use super::slot::{Taker, slot};
use super::sync::{Mutex, MutexGuard};
use super::tables::ReadRows;
use super::timer::Message;
use super::wait::{Bell, Ringing, Waiters};
use crate::clock::{Clock, Saved, StoreTime};
use crate::key::Id;
use crate::limits::WAIT_POLL_MS;
use crate::machine::Command;
use crate::stats::Counters;
use crate::{Error, ErrorKind, Millis, Result, StoreId};

pub(crate) struct Shared {
    pub(super) engine: Engine,
    pub(super) writer: Mutex<Writer>,
    pub(super) queue: Queue,
    pub(super) waiters: Waiters,
    pub(super) live: Live,
    pub(crate) stats: Counters,
    pub(crate) options: Options,
    pub(super) id: StoreId,
    /// Which of those that have the store open this one is.
    pub(super) process: ProcessId,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) time: Mutex<StoreTime>,
    pub(super) timer: Sender<Message>,
    /// Held for the length of a pass: two at once would report the same twice.
    pub(crate) reaping: Mutex<()>,
    pub(crate) relays: Relays,
    /// Ends the threads of upkeep and the relays.
    pub(crate) closing: Cancel,
    /// The tries at abandoned requests that run now.
    pub(super) tries: Tries,
    /// Whether the last handle on the store is gone; claims may still live.
    pub(super) is_left: Arc<AtomicBool>,
}

thread_local! {
    /// The stores, by their address, inside whose transaction or view this thread is.
    static INSIDE: RefCell<Vec<(usize, Inside)>> = const { RefCell::new(Vec::new()) };
}

/// What a thread is inside of, and so must not wait for.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Inside {
    /// It holds the writer. It may look: whoever closes or reopens the store waits for the writer first.
    Transaction,
    /// It holds the database open, which whoever reopens it waits for: another look would wait behind that.
    View,
}

/// Leaves it again when dropped.
pub(super) struct Entered;

impl Inside {
    pub(super) fn enter(self, shared: &Shared) -> Entered {
        INSIDE.with_borrow_mut(|stores| stores.push((shared.address(), self)));
        Entered
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        INSIDE.with_borrow_mut(|stores| {
            stores.pop();
        });
    }
}

impl Shared {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Whether commands can be served to this thread.
    pub(crate) fn check_outside(&self) -> Result<()> {
        self.engine.check()?;
        self.refuse_inside()
    }

    /// Refuses what would wait for this thread's own transaction for ever.
    pub(super) fn refuse_inside(&self) -> Result<()> {
        let address = self.address();
        if INSIDE.with_borrow(|stores| stores.iter().any(|(inside, _)| *inside == address)) {
            return Err(Error::invalid(
                "inside a transaction or view the store's own commands would wait for it; use the transaction's",
            ));
        }
        Ok(())
    }

    /// The writer, for whoever commits outside the queue.
    pub(super) fn lock_writer(&self) -> Result<MutexGuard<'_, Writer>> {
        self.check_outside()?;
        Ok(self.writer.lock())
    }

    /// Store time now; never before an earlier answer of this call.
    pub(crate) fn now_ms(&self) -> Millis {
        if self.engine.is_inherited() {
            // In a forked child the lock may be held for ever, and no answer depends on the time.
            return Millis(self.clock.read().wall_ms);
        }
        let now_ms = self.time.lock().now(self.clock.read());
        if self.planted().is(Plant::WallClockTrusted) { Millis(self.clock.read().wall_ms) } else { now_ms }
    }

    /// The mistakes that this store makes, for tests.
    pub(super) fn planted(&self) -> Planted {
        self.options.planted
    }

    /// Goes on from the time that the store has, should another process have written it.
    pub(super) fn catch_up(&self, saved: Saved) {
        if self.options.sharing == Sharing::Processes {
            self.time.lock().catch_up(saved, self.clock.read());
        }
    }

    pub(super) fn saved_time(&self) -> Saved {
        self.time.lock().saved()
    }

    /// How often store time is saved, also when nothing else is committed: twice within the part of a gap
    /// that counts over a reboot, so that it does not fall behind what it has told. Once a minute at most.
    pub(super) fn save_time_every(&self) -> Duration {
        (self.options.reboot_gap_max_ms.to_duration() / 2).max(Duration::from_mins(1))
    }

    /// Asks and waits. A caller that finds nobody waiting commits itself: a thread hand-over costs a
    /// lone caller about 35 us.
    ///
    /// What comes with the command is dropped once its place among the others is settled: a guard
    /// there keeps the commands of one caller in their order.
    pub(crate) fn ask<G>(
        &self,
        lane: Lane,
        id: &Id,
        command: impl FnOnce() -> (Command, G),
    ) -> Result<Reply> {
        self.check_outside()?;
        let (giver, taker) = slot();
        let make = || {
            let (command, order) = command();
            (Job::new(id.clone(), command, giver), order)
        };
        let brought =
            desk::bring(&self.writer, &self.queue, lane, make, |writer, group| self.serve(writer, group));
        self.count_busy(brought)?;
        taker.wait().ok_or_else(lost)
    }

    /// Asks, to be answered later.
    pub(crate) fn ask_later(&self, lane: Lane, id: &Id, command: Command) -> Result<Taker<Reply>> {
        self.check_outside()?;
        let (giver, taker) = slot();
        self.push(lane, Job::new(id.clone(), command, giver))?;
        Ok(taker)
    }

    fn push(&self, lane: Lane, job: Job) -> Result<()> {
        self.count_busy(self.queue.push(lane, job))
    }

    fn count_busy(&self, pushed: Result<()>) -> Result<()> {
        pushed.inspect_err(|error| {
            if error.kind() == ErrorKind::Busy {
                self.stats.busy();
            }
        })
    }

    fn serve(&self, mut writer: MutexGuard<'_, Writer>, group: Vec<Job>) {
        let served = writer.serve(self, group);
        // Let go of before the answer: a waker that runs in there may ask for it.
        drop(writer);
        served.answer(self);
    }

    /// Looks at one short snapshot. If that poisons the store, whoever waits is told at once.
    pub(super) fn read<R>(&self, look: impl FnOnce(&ReadRows) -> Result<R>) -> Result<R> {
        let view = (self.address(), Inside::View);
        if INSIDE.with_borrow(|stores| stores.contains(&view)) {
            return Err(Error::invalid(
                "inside a view nothing else of the store can be read; read it before",
            ));
        }
        let result = self.engine.read(look);
        if result.is_err() && self.engine.is_poisoned() {
            self.waiters.ring_all();
        }
        result
    }

    /// Rings the bell at this instant, for a wait without a thread.
    pub(super) fn ring_at(&self, at: Instant, bell: &Arc<Bell>) {
        // Refused only while the store closes, and then all bells are rung.
        drop(self.timer.send(Message::Ring { at, bell: Arc::downgrade(bell) }));
    }
}

impl Shared {
    /// Whether commands can be served.
    pub(crate) fn check(&self) -> Result<()> {
        self.engine.check()
    }

    pub(crate) fn is_inherited(&self) -> bool {
        self.engine.is_inherited()
    }

    pub(crate) fn store_id(&self) -> StoreId {
        self.id
    }

    pub(crate) fn body_len_max(&self) -> usize {
        self.options.body_len_max
    }

    /// Rings after this span.
    pub(crate) fn bell_after(&self, span: Duration) -> Ringing {
        let bell = Arc::new(Bell::default());
        self.ring_at(super::timer::after(span), &bell);
        Ringing(bell)
    }

    /// Rings when the claim is lost from now on; in a forked child never.
    pub(crate) fn loss_bell(&self, place: &Place) -> Ringing {
        if self.engine.is_inherited() {
            return Ringing(Arc::default());
        }
        Ringing(self.live.watch(place))
    }

    pub(crate) fn is_lost(&self, place: &Place) -> bool {
        // In a forked child no lock may be touched, and nothing is owned.
        self.engine.is_inherited() || self.live.is_lost(place)
    }

    /// From now on this claim lives here.
    pub(crate) fn join(&self, place: Place) {
        self.live.join(place);
    }

    pub(crate) fn is_over(&self, place: &Place) -> bool {
        self.live.is_over(place)
    }

    /// The owner has said its last word: no more renewals.
    pub(crate) fn end(&self, place: &Place) {
        self.live.end(place);
    }
}

impl Running {
    /// From now on this claim is renewed, for its most leases of this length.
    pub(crate) fn keep_renewed(&self, id: &Id, place: &Place, lease_ms: Option<Millis>) {
        let shared = &self.shared;
        let Some(lease_ms) = lease_ms.filter(|_| shared.options.renew_leases_max > 0) else { return };
        let span_ms = Millis(lease_ms.0.saturating_mul(u64::from(shared.options.renew_leases_max)));
        if let Some(plan) = shared.live.plan(place, shared.now_ms().plus(span_ms)) {
            let (id, place, every) = (id.clone(), place.clone(), renew_every(lease_ms));
            let message = Message::Renew { id, place, plan, every };
            // Refused only while the store closes; the claim's next command is told so.
            drop(shared.timer.send(message));
        }
    }

    /// One claim object less; in a forked child it was never there.
    pub(crate) fn stop_renewing(&self, place: &Place) {
        if !self.shared.engine.is_inherited() {
            self.shared.live.leave(place);
        }
    }
}

/// The writer thread: takes groups until the queue is closed and empty.
pub(super) fn write_groups(shared: &Shared) {
    desk::serve_groups(&shared.writer, &shared.queue, |writer, group| shared.serve(writer, group));
}

/// At most this long between two looks at a key, should a ring be missed or a test move the clock.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Shared {
    /// How long to wait for a ring before looking again, after so many looks: shorter if an outcome can come from
    /// another process, which rings nothing here.
    pub(super) fn look_again_after(&self, looks: u32) -> Duration {
        match self.options.sharing {
            Sharing::OneProcess => LOOK_AGAIN,
            Sharing::Processes => {
                let (shortest, longest) = WAIT_POLL_MS;
                Duration::from_millis(shortest.saturating_mul(1 << looks.min(16)).min(longest))
            }
        }
    }
}

pub(crate) fn lost() -> Error {
    Error::new(ErrorKind::Unknown, "the store stopped before it answered; reopen it and ask again")
}
