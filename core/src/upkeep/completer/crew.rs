//! The threads that run handlers, and one try from its takeover to its end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender};

use super::{Completer, Ended, Handler, Later, Takeover};
use crate::key::Id;
use crate::machine::{HoldReason, Present};
use crate::store::{Running, Took};
use crate::{Claim, Error, ErrorKind, Millis, Result};

/// At most as many threads as requests are finished at once, waiting for ids.
pub(crate) struct Crew {
    work: Work,
    /// None once no more come.
    tasks: Option<Sender<Id>>,
    ends: Receiver<End>,
    threads: Vec<JoinHandle<()>>,
    hired: usize,
    busy: usize,
}

/// What each thread is given. It keeps no store open while it waits.
#[derive(Clone)]
struct Work {
    running: Weak<Running>,
    completer: Arc<Completer>,
    tasks: Receiver<Id>,
    ended: Sender<End>,
}

/// What became of one id that was handed to a thread.
#[derive(Debug)]
pub(super) enum End {
    /// It was not taken: renewed, taken over or ended by somebody else since the look, or being closed.
    Passed,
    /// It was not taken: its operation has no handler here, as it turned out.
    NoHandler,
    /// It was held instead of tried, for this reason.
    HeldUntried(HoldReason),
    /// It was tried.
    Tried(Tried),
    /// It could not be taken: this row is damaged, or the medium failed.
    Failed(Error),
}

/// How one try ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Tried {
    Completed,
    Said,
    Later,
    Unsaid,
    Panicked,
    Held,
    Lost,
    /// The outcome, or what else was to be said, was refused as invalid.
    Refused,
    /// It could not be said, or nobody knows whether it was: the lease ends the attempt.
    Unheard,
}

impl Crew {
    /// One without threads: each is started when it is first needed.
    pub(crate) fn new(running: &Weak<Running>, completer: &Arc<Completer>) -> Self {
        let (sender, tasks) = crossbeam_channel::unbounded();
        let (ended, ends) = crossbeam_channel::unbounded();
        let work = Work { running: running.clone(), completer: completer.clone(), tasks, ended };
        Self { work, tasks: Some(sender), ends, threads: Vec::new(), hired: 0, busy: 0 }
    }

    /// Starts all threads, to be joined by the caller.
    pub(crate) fn hire_all(&mut self) -> Result<Vec<JoinHandle<()>>> {
        while self.hired < self.work.completer.concurrency {
            self.hire()?;
        }
        Ok(std::mem::take(&mut self.threads))
    }

    fn hire(&mut self) -> Result<()> {
        let work = self.work.clone();
        self.threads.push(crate::store::spawn("keyclaim-finisher", move || work.run())?);
        self.hired += 1;
        Ok(())
    }

    /// How many handlers run or are about to.
    pub(super) fn busy(&self) -> usize {
        self.busy
    }

    /// Hands an id to a thread; there must be one that is not busy.
    pub(super) fn give(&mut self, id: Id) -> Result<()> {
        if self.busy == self.hired {
            self.hire()?;
        }
        if self.tasks.as_ref().is_some_and(|tasks| tasks.send(id).is_ok()) {
            self.busy += 1;
        }
        Ok(())
    }

    /// Waits for the end of one of those that are busy; none if nobody is.
    pub(super) fn next_end(&mut self) -> Option<End> {
        if self.busy == 0 {
            return None;
        }
        self.busy -= 1;
        self.ends.recv().ok()
    }

    /// The next end that has come already.
    pub(super) fn try_next_end(&mut self) -> Option<End> {
        let end = self.ends.try_recv().ok()?;
        self.busy = self.busy.saturating_sub(1);
        Some(end)
    }

    /// No more come: the threads end when they are through.
    pub(super) fn dismiss(&mut self) {
        self.tasks = None;
    }

    pub(super) fn join(&mut self) {
        self.dismiss();
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }
}

impl Work {
    fn run(&self) {
        for id in &self.tasks {
            let running = self.running.upgrade();
            let end = match &running {
                Some(running) => catch_unwind(AssertUnwindSafe(|| one(running, &self.completer, id))),
                None => Ok(End::Passed),
            };
            let end = end.unwrap_or_else(|_| {
                let message = "a bug in keyclaim kept an abandoned request from being finished; report it";
                End::Failed(Error::new(ErrorKind::Internal, message))
            });
            drop(self.ended.send(end));
            // Behind the answer: it may be the last handle, and then this thread closes the store, which
            // waits for whoever awaits this end.
            drop(running);
        }
    }
}

/// Takes over one abandoned request and finishes it.
fn one(running: &Arc<Running>, completer: &Completer, id: Id) -> End {
    let shared = &running.shared;
    let Some(_busy) = shared.begin_try(completer.close_wait) else { return End::Passed };
    let (claim, taken) = match running.take_abandoned(completer, id) {
        Ok(Took::Won(won)) => *won,
        Ok(Took::Held(reason)) => return End::HeldUntried(reason),
        Ok(Took::Nothing) => return End::Passed,
        Err(error) => return End::Failed(error),
    };
    let Some(handler) = completer.handlers.get(&taken.operation) else {
        // It became another operation's between look and takeover. Nothing was run.
        drop(claim.abandon());
        return End::NoHandler;
    };
    let takeover = Takeover { claim, taken, store: running.lend(), closing: shared.closing() };
    let tried = run(handler, &takeover);
    tracing::debug!(
        target: "keyclaim", id = %takeover.claim.id().short_hash(), token = takeover.claim.token().0,
        tries = takeover.tries(), ?tried, "a try at an abandoned request ended"
    );
    End::Tried(tried)
}

fn run(handler: &Handler, takeover: &Takeover) -> Tried {
    let claim = &takeover.claim;
    let answer = catch_unwind(AssertUnwindSafe(|| handler(takeover)));
    let (said, tried) = match answer {
        Ok(Ok(Ended::Complete(outcome))) => (claim.complete(&outcome), Tried::Completed),
        Ok(Ok(Ended::Hold)) => (claim.hold(), Tried::Held),
        // Also a step that failed may have ended the claim, by holding it.
        Ok(Ok(Ended::Said) | Err(_)) if claim.is_over() => return Tried::Said,
        Ok(Ok(Ended::Said)) => (claim.postpone(Millis(0)), Tried::Unsaid),
        Ok(Err(Later { not_before_ms })) => (claim.postpone(not_before_ms), Tried::Later),
        Err(_) => {
            tracing::error!(
                target: "keyclaim", id = %claim.id().short_hash(), token = claim.token().0,
                "the handler of an abandoned request panicked; it is tried again"
            );
            if claim.is_over() {
                return Tried::Said;
            }
            (claim.postpone(Millis(0)), Tried::Panicked)
        }
    };
    match said {
        Ok(()) => tried,
        Err(error) => unsaid(claim, &error),
    }
}

/// What a try that could not say its end came to.
fn unsaid(claim: &Claim, error: &Error) -> Tried {
    match error.kind() {
        ErrorKind::Fenced => match error.present() {
            // Its own hold, as by a step in doubt, ended it.
            Some(Present::Held(token)) if token == claim.token() => Tried::Held,
            Some(Present::Complete(token)) if token == claim.token() => Tried::Said,
            _ => Tried::Lost,
        },
        ErrorKind::Invalid => {
            tracing::error!(
                target: "keyclaim", id = %claim.id().short_hash(), %error,
                "what a handler said was refused; it is tried again"
            );
            match claim.postpone(Millis(0)) {
                Ok(()) => Tried::Refused,
                Err(error) if error.kind() == ErrorKind::Invalid => Tried::Unheard,
                Err(error) => unsaid(claim, &error),
            }
        }
        _ => Tried::Unheard,
    }
}
