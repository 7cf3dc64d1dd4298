//! One thread for all that waits for time: renewals of live claims, and waits without a thread.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Weak;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::commit::renewal;
use super::live::Place;
use super::queue::{Job, Lane};
use super::shared::Shared;
use super::slot::slot;
use super::wait::Bell;
use crate::key::Id;

/// What the timer is told.
pub(super) enum Message {
    /// Renew this claim as long as it lives.
    Renew { id: Id, place: Place, every: Duration },
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
    Renew { id: Id, place: Place, every: Duration },
    Ring(Weak<Bell>),
}

/// The timer thread. Ends when told to or when all senders are gone.
pub(super) fn run(shared: &Shared, messages: &Receiver<Message>) {
    let mut heap = BinaryHeap::new();
    loop {
        let message = match heap.peek().map(|next: &Entry| next.at) {
            Some(at) => messages.recv_deadline(at),
            None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match message {
            Ok(Message::Renew { id, place, every }) => {
                heap.push(Entry { at: after(every), what: What::Renew { id, place, every } });
            }
            Ok(Message::Ring { at, bell }) => heap.push(Entry { at, what: What::Ring(bell) }),
            Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                if let Some(entry) = heap.pop() {
                    heap.extend(due(shared, entry.what));
                }
            }
        }
    }
}

fn due(shared: &Shared, what: What) -> Option<Entry> {
    match what {
        What::Ring(bell) => {
            if let Some(bell) = bell.upgrade() {
                bell.ring();
            }
            None
        }
        What::Renew { id, place, every } => {
            if !shared.live.wants_renewal(&place, shared.now_ms()) {
                return None;
            }
            // A poisoned store takes no renewal now, but its claims live on and want the next one.
            if shared.engine.check().is_ok() {
                let (giver, taker) = slot();
                drop(taker);
                drop(
                    shared.queue.push(Lane::Owners, Job { id: id.clone(), command: renewal(place.1), giver }),
                );
            }
            Some(Entry { at: after(every), what: What::Renew { id, place, every } })
        }
    }
}

/// The instant after this span, or as far as instants go.
pub(super) fn after(span: Duration) -> Instant {
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
