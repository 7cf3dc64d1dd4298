//! One thread for all that waits for time: renewals of live claims, and waits without a thread.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Weak;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::commit::renewal;
use super::live::Place;
use super::queue::{Job, Lane, Reply};
use super::shared::Shared;
use super::slot::{Taker, slot};
use super::wait::Bell;
use crate::key::Id;

/// What the timer is told.
pub(super) enum Message {
    /// Renew this claim as long as it lives.
    Renew { id: Id, place: Place, plan: u64, every: Duration },
    /// Ring this bell, if anybody still waits for it.
    Ring { at: Instant, bell: Weak<Bell> },
    /// End.
    Stop,
}

struct Entry {
    at: Instant,
    what: What,
}

enum What {
    Renew(Renewal),
    Ring(Weak<Bell>),
    SaveTime,
}

struct Renewal {
    id: Id,
    place: Place,
    plan: u64,
    every: Duration,
    /// The renewal before this one, which may still wait for the writer.
    asked: Option<Taker<Reply>>,
}

/// The timer thread. Ends when told to or when all senders are gone.
pub(super) fn run(shared: &Shared, messages: &Receiver<Message>) {
    let mut heap = BinaryHeap::new();
    let save_every = shared.save_time_every();
    heap.push(Entry { at: after(save_every), what: What::SaveTime });
    loop {
        let message = match heap.peek().map(|next: &Entry| next.at) {
            Some(at) => messages.recv_deadline(at),
            None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match message {
            Ok(Message::Renew { id, place, plan, every }) => {
                let renewal = Renewal { id, place, plan, every, asked: None };
                heap.push(Entry { at: after(every), what: What::Renew(renewal) });
            }
            Ok(Message::Ring { at, bell }) => heap.push(Entry { at, what: What::Ring(bell) }),
            Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                if let Some(entry) = heap.pop() {
                    heap.extend(due(shared, entry.what, save_every));
                }
            }
        }
    }
}

fn due(shared: &Shared, what: What, save_every: Duration) -> Option<Entry> {
    match what {
        What::SaveTime => {
            if let Err(error) = shared.writer.lock().save_time(shared) {
                tracing::warn!(target: "keyclaim", %error, "store time was not saved; it is tried again");
            }
            Some(Entry { at: after(save_every), what: What::SaveTime })
        }
        What::Ring(bell) => {
            if let Some(bell) = bell.upgrade() {
                bell.ring();
            }
            None
        }
        What::Renew(mut next) => {
            if !shared.live.wants_renewal(&next.place, next.plan, shared.now_ms()) {
                return None;
            }
            // A poisoned store takes no renewal now, but its claims live on and want the next one. While
            // the writer is stuck one renewal of a claim waits, not one for each third of its lease.
            let is_waiting = next.asked.as_ref().is_some_and(Taker::is_waiting);
            if !is_waiting && shared.engine.check().is_ok() {
                let (giver, taker) = slot();
                let job = Job::new(next.id.clone(), renewal(next.place.1), giver);
                next.asked = shared.queue.push(Lane::Store, job).is_ok().then_some(taker);
            }
            Some(Entry { at: after(next.every), what: What::Renew(next) })
        }
    }
}

/// The instant after this span, or as far as instants go.
pub(crate) fn after(span: Duration) -> Instant {
    let now = now();
    now.checked_add(span).unwrap_or_else(|| now + FAR)
}

/// Waits are measured by the process's own clock; only store time decides.
#[expect(clippy::disallowed_methods, reason = "a wait's own clock decides nothing")]
pub(super) fn now() -> Instant {
    Instant::now()
}

/// A hundred years: longer than any wait, and within reach of every platform's clock.
const FAR: Duration = Duration::from_hours(100 * 365 * 24);

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap gives the greatest first, and the earliest is wanted.
        other.at.cmp(&self.at)
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Entry {}
