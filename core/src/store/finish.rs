//! The completer's atomic steps, its threads, and how they end with the store.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, ThreadId};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::claims::Cancel;
use super::elect::Part;
use super::queue::Lane;
use super::shared::Shared;
use super::timer::{self, after};
use super::wait::Bell;
use super::{Running, spawn};
use crate::claim::Claim;
use crate::key::Id;
use crate::machine::{Answer, Command, Decision, HoldReason, Record};
use crate::rows::{self, DueRow, Rows, Slot, Table};
use crate::token::random_bytes;
use crate::upkeep::{Completer, CompleterPass, CompleterReport, Crew, Taken, feed, jittered, log};
use crate::{Error, ErrorKind, Millis, Nonce, Result};

/// What a look found at one due row. Only a guess: the writer decides anew.
pub(crate) enum Found {
    /// Nothing to finish, or not yet.
    NotDue,
    /// Abandoned, and no handler for its operation.
    NoHandler,
    /// Abandoned.
    Abandoned(Id),
}

/// What became of a takeover.
pub(crate) enum Took {
    /// It is ours to finish.
    Won(Box<(Claim, Taken)>),
    /// It is held for a person instead.
    Held(HoldReason),
    /// Somebody else was faster, or it is abandoned no more.
    Nothing,
}

/// The tries that run now, by their threads, each with how long closing waits for it.
#[derive(Default)]
pub(super) struct Tries {
    running: Mutex<HashMap<ThreadId, Duration>>,
    ended: Condvar,
}

/// One of them, until it is dropped.
pub(crate) struct Try<'a>(&'a Tries);

impl Shared {
    /// What is unfinished and due behind this place, and whether it is abandoned.
    pub(crate) fn look_abandoned(
        &self,
        at_ms: Millis,
        place: Option<&[u8]>,
        limit: usize,
        knows: impl Fn(&str) -> bool,
    ) -> Result<Vec<(Vec<u8>, Result<Found>)>> {
        self.read(|rows| {
            let last = Slot { lane: rows::Lane::Unfinished, when: at_ms };
            let mut looked = Vec::new();
            for entry in rows.due_before(last, place, limit)? {
                let found = match &entry.row {
                    Some(row) => self.found(rows, row, at_ms, &knows),
                    None => Err(Error::new(ErrorKind::Corrupt, "an entry of the due index is damaged")),
                };
                if let Err(error) = &found
                    && matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::Unknown)
                {
                    return Err(error.share());
                }
                looked.push((entry.place, found));
            }
            Ok(looked)
        })
    }

    fn found(
        &self,
        rows: &impl Rows,
        row: &DueRow,
        at_ms: Millis,
        knows: &impl Fn(&str) -> bool,
    ) -> Result<Found> {
        if row.table != Table::Records {
            return Err(Error::new(
                ErrorKind::Corrupt,
                "a row is in the wrong lane of the due index; check the store",
            ));
        }
        // What the index is wrong about is put right by the reaper.
        let Some(record) = rows::load(rows, &row.key)?.filter(|record| record.due() == row.slot) else {
            return Ok(Found::NotDue);
        };
        let is_due = record.abandoned_from_ms().is_some_and(|from_ms| at_ms >= from_ms);
        if !is_due || self.live.lives(&(row.key.clone(), record.token)) {
            return Ok(Found::NotDue);
        }
        match record.operation {
            Some(operation) if knows(&operation) => Ok(Found::Abandoned(Id::decode(&row.key)?)),
            _ => Ok(Found::NoHandler),
        }
    }

    /// Whether no further try is to begin: the store is closing, or only claims still hold it open.
    pub(crate) fn takes_no_more(&self) -> bool {
        self.closing.is_cancelled() || self.is_left.load(Ordering::Acquire)
    }

    /// Begins a try on this thread, unless no further one is to begin. Closing waits for it this long.
    pub(crate) fn begin_try(&self, close_wait: Duration) -> Option<Try<'_>> {
        let mut running = self.tries.running.lock();
        // Looked at with the lock held: whoever closes waits for all that got in before.
        if self.takes_no_more() {
            return None;
        }
        running.insert(thread::current().id(), close_wait);
        Some(Try(&self.tries))
    }

    pub(crate) fn closing(&self) -> Cancel {
        self.closing.clone()
    }
}

impl Running {
    /// Takes over one abandoned request, by compare-and-set.
    pub(crate) fn take_abandoned(self: &Arc<Self>, completer: &Completer, id: Id) -> Result<Took> {
        let nonce = Nonce::random()?;
        let random = u128::from_le_bytes(random_bytes()?);
        let random = u64::try_from(random >> 64).unwrap_or_default();
        let (tries_max, backoff) = (completer.tries_max, completer.backoff);
        let command = Command::TakeAbandoned { nonce, tries_max, backoff, random };
        let reply = self.shared.ask(Lane::Claims, &id, || (command, ()))?;
        match (reply.answer?, reply.taken) {
            (Answer::Decision(Decision::Won(won)), Some(taken)) => {
                Ok(Took::Won(Box::new((Claim::begin(self.clone(), id, won, taken.lease_ms), taken))))
            }
            (Answer::Decision(Decision::Held { reason, .. }), _) => Ok(Took::Held(reason)),
            (Answer::Nothing, _) => Ok(Took::Nothing),
            _ => Err(Error::misdelivered("the completer")),
        }
    }
}

/// What goes with the win of an abandoned claim, from the transaction that wins it: whoever cannot be
/// handed the request does not win it.
pub(super) fn taken(rows: &impl Rows, id: &[u8], record: &Record) -> Result<Taken> {
    let (Some(operation), Some(mut request)) = (record.operation.clone(), record.request.clone()) else {
        return Err(Error::new(
            ErrorKind::Internal,
            "a claim without its request was to be finished; report it",
        ));
    };
    rows::fill_body(rows, id, record.generation, &mut request)?;
    let Some(bytes) = request.bytes() else {
        return Err(Error::new(ErrorKind::Corrupt, "a stored request has no bytes; check the store"));
    };
    Ok(Taken { operation, request: bytes.to_vec(), lease_ms: record.policy.lease_ms, tries: record.tries })
}

/// Starts the threads that finish abandoned requests.
pub(super) fn start(running: &Arc<Running>, period: Duration, completer: Completer) -> Result<()> {
    let pass = CompleterPass::new(&completer).or_until(&running.shared.closing);
    let mut crew = Crew::new(&Arc::downgrade(running), &Arc::new(completer));
    let mut finishers = running.finishers.lock();
    finishers.extend(crew.hire_all()?);
    let shared = running.shared.clone();
    finishers.push(spawn("keyclaim-completer", move || run(&shared, period, &pass, crew))?);
    Ok(())
}

/// Waits for the tries that run and ends the completer's threads; what runs for too long is left behind.
pub(super) fn stop(running: &Running) {
    let are_over = running.shared.tries.wait();
    for thread in running.finishers.lock().drain(..) {
        // A handler may close the store, and whoever waits for it must not be waited for.
        if are_over && thread.thread().id() != thread::current().id() {
            drop(thread.join());
        }
    }
}

/// The thread that looks. Ends when the store closes; a poisoned store is passed by until it is reopened.
fn run(shared: &Shared, period: Duration, pass: &CompleterPass, mut crew: Crew) {
    let period = jittered(period, shared.id);
    let bell = Arc::new(Bell::default());
    shared.closing.watch(&bell);
    // Soon after opening, or a process that is restarted often would never finish anything.
    let mut next = after(period / 10);
    while !shared.closing.is_cancelled() {
        bell.wait_until(next);
        if shared.engine.check().is_ok() && !shared.takes_no_more() {
            let mut done = CompleterReport::default();
            let feed = || {
                if shared.does(Part::Completer, Millis::from_duration(period))? {
                    feed(shared, pass, &mut crew, &mut done)
                } else {
                    Ok(())
                }
            };
            match catch_unwind(AssertUnwindSafe(feed)) {
                Ok(Ok(())) => log(&done),
                Ok(Err(error)) => {
                    tracing::warn!(target: "keyclaim", %error, "a pass of the completer failed; the next one goes on");
                }
                Err(_) => tracing::error!(target: "keyclaim", "a pass of the completer panicked; report it"),
            }
        }
        next = after(period);
    }
}

impl Tries {
    /// Waits for all that run, but for one on this thread, each as long as it is to be waited for; whether
    /// all of them are over.
    fn wait(&self) -> bool {
        let begun = timer::now();
        let mut running = self.running.lock();
        loop {
            let own = thread::current().id();
            let others = running.iter().filter(|(thread, _)| **thread != own);
            let Some(wait) = others.map(|(_, wait)| *wait).max() else {
                return running.is_empty();
            };
            let until = begun.checked_add(wait).unwrap_or_else(|| after(wait));
            if timer::now() < until {
                self.ended.wait_until(&mut running, until);
            } else {
                tracing::warn!(
                    target: "keyclaim", tries = running.len(),
                    "the store closes while abandoned requests are being finished; their leases end them"
                );
                return false;
            }
        }
    }
}

impl Drop for Try<'_> {
    fn drop(&mut self) {
        self.0.running.lock().remove(&thread::current().id());
        self.0.ended.notify_all();
    }
}
