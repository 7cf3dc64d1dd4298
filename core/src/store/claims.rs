//! Claiming: at once, or waiting until the key is decided; blocking or async.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::queue::{Lane, Reply};
use super::request::ClaimRequest;
use super::shared::{Shared, lost};
use super::slot::Taker;
use super::timer;
use super::wait::{Bell, Ringing};
use super::{Running, Store};
use crate::claim::Claim;
use crate::fingerprint::Fingerprint;
use crate::key::Id;
use crate::machine::{self, Answer, Change, Command, Decision, Facts};
use crate::rows;
use crate::{Error, ErrorKind, Millis, Nonce, Result, Token, Writes, Written};

/// How long to wait for a key that is in flight.
#[derive(Clone, Debug)]
pub struct ClaimWait {
    timeout: Duration,
    cancel: Option<Cancel>,
}

/// Ends waits and passes of upkeep from outside, for good; clones end the same ones.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<CancelState>);

#[derive(Default)]
struct CancelState {
    is_cancelled: AtomicBool,
    bells: Mutex<Vec<Weak<Bell>>>,
}

impl ClaimWait {
    /// Waits at most this long.
    pub fn at_most(timeout: Duration) -> Self {
        Self { timeout, cancel: None }
    }

    /// Ends early when cancelled.
    #[must_use]
    pub fn or_until(mut self, cancel: &Cancel) -> Self {
        self.cancel = Some(cancel.clone());
        self
    }

    fn is_over(&self, deadline: Instant) -> bool {
        self.cancel.as_ref().is_some_and(Cancel::is_cancelled) || timer::now() >= deadline
    }

    fn watch(&self, bell: &Arc<Bell>) {
        if let Some(cancel) = &self.cancel {
            cancel.watch(bell);
        }
    }
}

impl Cancel {
    /// One that has not been cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether it has been cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::Acquire)
    }

    /// Rings this bell when cancelled. Ask afterwards whether it was cancelled before.
    pub(super) fn watch(&self, bell: &Arc<Bell>) {
        let mut bells = self.0.bells.lock();
        bells.retain(|bell| bell.strong_count() > 0);
        bells.push(Arc::downgrade(bell));
    }

    /// Ends every wait it was given to, now and from now on: they return what they last found.
    pub fn cancel(&self) {
        self.0.is_cancelled.store(true, Ordering::Release);
        let bells = std::mem::take(&mut *self.0.bells.lock());
        bells.iter().filter_map(Weak::upgrade).for_each(|bell| bell.ring());
    }
}

impl std::fmt::Debug for CancelState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cancelled: {}", self.is_cancelled.load(Ordering::Acquire))
    }
}

impl Store {
    /// Asks for the right to run. Answers at once; of all who ask with one key, one is told `Won`.
    ///
    /// *Durability*: a win is on disk when this returns. *Errors*: `Invalid` (nothing happened),
    /// `Busy` (the queue is full; ask again), `Unknown` (reopen, then ask again with the error's
    /// [`nonce`](Error::nonce)), `Closed`, `Poisoned`, `Corrupt`. There is no error on which the
    /// request may be run anyway.
    pub fn claim(&self, request: &ClaimRequest<'_>) -> Result<Decision<Claim>> {
        self.told(self.claim_uncounted(request))
    }

    /// Like [`Store::claim`], with writes that commit with the win. On a conflict nobody won, and nothing was
    /// written.
    ///
    /// They are applied once in a generation, with the first win that brings them: neither when the win is told
    /// again, nor by a takeover of an attempt that has committed them.
    pub fn claim_with(
        &self,
        request: &ClaimRequest<'_>,
        writes: &Writes,
    ) -> Result<Written<Decision<Claim>>> {
        self.told_written(self.with_uncounted(request, writes))
    }

    fn claim_uncounted(&self, request: &ClaimRequest<'_>) -> Result<Decision<Claim>> {
        self.with_uncounted(request, &Writes::new()).and_then(without_writes)
    }

    fn with_uncounted(
        &self,
        request: &ClaimRequest<'_>,
        writes: &Writes,
    ) -> Result<Written<Decision<Claim>>> {
        let mut asking = Asking::new(&self.running, request, writes)?;
        loop {
            if let Some(decision) = asking.look()? {
                return Ok(Written::Done(decision));
            }
            let command = asking.named()?;
            let reply = self.running.shared.ask(Lane::Claims, request.id(), || (command, ()));
            if let Some(decision) = asking.hear(reply)? {
                return Ok(decision);
            }
        }
    }

    /// Like [`Store::claim`], without blocking the thread it is polled on, on any runtime: it waits for no
    /// commit and no lock, though the look at the key may read a page from disk.
    ///
    /// Dropped before it is ready, it leaves no key stuck: a win that nobody is told of is undone.
    pub async fn claim_async(&self, request: &ClaimRequest<'_>) -> Result<Decision<Claim>> {
        self.told(self.claim_uncounted_async(request).await)
    }

    /// Like [`Store::claim_with`], without blocking; see [`Store::claim_async`].
    pub async fn claim_with_async(
        &self,
        request: &ClaimRequest<'_>,
        writes: &Writes,
    ) -> Result<Written<Decision<Claim>>> {
        self.told_written(self.with_uncounted_async(request, writes).await)
    }

    async fn claim_uncounted_async(&self, request: &ClaimRequest<'_>) -> Result<Decision<Claim>> {
        self.with_uncounted_async(request, &Writes::new()).await.and_then(without_writes)
    }

    async fn with_uncounted_async(
        &self,
        request: &ClaimRequest<'_>,
        writes: &Writes,
    ) -> Result<Written<Decision<Claim>>> {
        let mut asking = Asking::new(&self.running, request, writes)?;
        loop {
            if let Some(decision) = asking.look()? {
                return Ok(Written::Done(decision));
            }
            let shared = &self.running.shared;
            let reply = match shared.ask_later(Lane::Claims, request.id(), asking.named()?) {
                Ok(taker) => Told { shared, id: request.id(), taker }.await,
                Err(error) => Err(error),
            };
            if let Some(decision) = asking.hear(reply)? {
                return Ok(decision);
            }
        }
    }

    /// Like [`Store::claim`], but waits while the key is in flight: until it is complete, released,
    /// held, or its lease is over. When the wait is over first, the answer is the last `InFlight`.
    pub fn claim_wait(&self, request: &ClaimRequest<'_>, wait: &ClaimWait) -> Result<Decision<Claim>> {
        self.told(self.wait_uncounted(request, wait))
    }

    fn wait_uncounted(&self, request: &ClaimRequest<'_>, wait: &ClaimWait) -> Result<Decision<Claim>> {
        let shared = &self.running.shared;
        shared.engine.check()?;
        let deadline = timer::after(wait.timeout);
        let request = request.clone().nonce(own_nonce(request)?);
        for looks in 0.. {
            // The place is taken before asking: what is decided in between rings.
            let ticket = shared.waiters.join(request.id().encode());
            wait.watch(ticket.bell());
            let told = self.claim_uncounted(&request);
            match shared.look_again(&told, looks, wait.is_over(deadline)) {
                Some(at) => ticket.bell().wait_until(at.min(deadline)),
                None => return told,
            }
        }
        Err(lost())
    }

    /// Like [`Store::claim_wait`], without blocking the thread it is polled on, on any runtime.
    pub async fn claim_wait_async(
        &self,
        request: &ClaimRequest<'_>,
        wait: &ClaimWait,
    ) -> Result<Decision<Claim>> {
        self.told(self.wait_uncounted_async(request, wait).await)
    }

    /// Counts what a call returned. Only here, so that a call counts once, however often it had to ask.
    fn told(&self, told: Result<Decision<Claim>>) -> Result<Decision<Claim>> {
        match &told {
            Ok(decision) => self.running.shared.stats.told(decision, Claim::kind),
            Err(_) => self.running.shared.stats.claim_failed(),
        }
        told
    }

    fn told_written(&self, told: Result<Written<Decision<Claim>>>) -> Result<Written<Decision<Claim>>> {
        match told {
            Ok(Written::Done(decision)) => self.told(Ok(decision)).map(Written::Done),
            Ok(Written::Conflict(conflict)) => {
                self.running.shared.stats.claim_conflicted();
                Ok(Written::Conflict(conflict))
            }
            Err(error) => self.told(Err(error)).map(Written::Done),
        }
    }

    async fn wait_uncounted_async(
        &self,
        request: &ClaimRequest<'_>,
        wait: &ClaimWait,
    ) -> Result<Decision<Claim>> {
        let shared = &self.running.shared;
        shared.engine.check()?;
        let deadline = timer::after(wait.timeout);
        let request = request.clone().nonce(own_nonce(request)?);
        for looks in 0.. {
            let ticket = shared.waiters.join(request.id().encode());
            wait.watch(ticket.bell());
            let told = self.claim_uncounted_async(&request).await;
            match shared.look_again(&told, looks, wait.is_over(deadline)) {
                Some(at) => {
                    shared.ring_at(at.min(deadline), ticket.bell());
                    Ringing(ticket.bell().clone()).await;
                }
                None => return told,
            }
        }
        Err(lost())
    }
}

/// One call of claim, from its first look to its answer.
pub(super) struct Asking<'a> {
    running: &'a Arc<Running>,
    request: &'a ClaimRequest<'a>,
    id: Vec<u8>,
    command: Command,
    lease_ms: Option<Millis>,
}

impl<'a> Asking<'a> {
    pub(super) fn new(
        running: &'a Arc<Running>,
        request: &'a ClaimRequest<'a>,
        writes: &Writes,
    ) -> Result<Self> {
        let shared = &running.shared;
        if request.id().key().as_bytes().len() > shared.options.key_len_max {
            return Err(Error::invalid(format!(
                "the key has over {} bytes; mint a shorter one",
                shared.options.key_len_max
            )));
        }
        if request.stored_len() > shared.options.body_len_max {
            return Err(Error::invalid(
                "the request to store is over the body limit; raise the limit or store less of it",
            ));
        }
        let policy = request.policy_or(shared.options.policy);
        let command = request.command(request.nonce.unwrap_or(UNNAMED), policy, writes)?;
        let id = request.id().encode();
        Ok(Self { running, request, id, command: Command::Claim(command), lease_ms: policy.lease_ms })
    }

    /// The fast path: what a short snapshot decides without writing. A possible win goes to the
    /// writer, which decides anew.
    fn look(&mut self) -> Result<Option<Decision<Claim>>> {
        // Ends: the second scheme is the record's own. Should the record change meanwhile, the writer decides.
        for _ in 0..2 {
            let shared = &self.running.shared;
            let (id, command) = (&self.id, &self.command);
            let answer = shared.read(|rows| {
                let Some(record) = rows.planted().before(rows::load(rows, id)?, command) else {
                    return Ok(None);
                };
                // Read after the snapshot was taken, so that no record in it is from a later instant.
                let facts =
                    Facts { now_ms: shared.now_ms(), next_token: Token(u64::MAX), owner_lives_here: false };
                let verdict = machine::decide(Some(&record), command, facts);
                match (verdict.answer, verdict.changes.record) {
                    (Ok(Answer::Decision(Decision::Won(_))), _) | (_, Change::Put(_) | Change::Delete) => {
                        Ok(None)
                    }
                    (Ok(mut answer), Change::Keep) => {
                        rows::fill(rows, id, &mut answer)?;
                        rows.planted().answer(&mut answer);
                        Ok(Some(answer))
                    }
                    (Err(refusal), Change::Keep) => Err(refusal.into()),
                }
            })?;
            match answer {
                None => return Ok(None),
                Some(Answer::OtherScheme(stored)) => {
                    if let Some(mismatch) = self.change_scheme(&stored) {
                        return Ok(Some(self.give(mismatch)));
                    }
                }
                Some(Answer::Decision(decision)) => return Ok(Some(self.give(decision))),
                Some(_) => return Err(Error::misdelivered("a claim")),
            }
        }
        Ok(None)
    }

    /// What the writer said; none if it is to be asked again under another scheme.
    pub(super) fn hear(&mut self, reply: Result<Reply>) -> Result<Option<Written<Decision<Claim>>>> {
        match reply.and_then(|reply| reply.answer) {
            Ok(Answer::Decision(decision)) => Ok(Some(Written::Done(self.give(decision)))),
            Ok(Answer::Conflict(conflict)) => Ok(Some(Written::Conflict(conflict))),
            Ok(Answer::OtherScheme(stored)) => {
                Ok(self.change_scheme(&stored).map(|mismatch| Written::Done(self.give(mismatch))))
            }
            Ok(_) => Err(Error::misdelivered("a claim")),
            Err(error) => Err(match &self.command {
                Command::Claim(claim) if error.kind() == ErrorKind::Unknown => error.asked_with(claim.nonce),
                _ => error,
            }),
        }
    }

    /// What goes to the writer: the claim under a nonce that is this call's own.
    pub(super) fn named(&mut self) -> Result<Command> {
        if let Command::Claim(claim) = &mut self.command
            && claim.nonce == UNNAMED
        {
            claim.nonce = own_nonce(self.request)?;
        }
        Ok(self.command.clone())
    }

    /// Words the claim under a record's scheme; a mismatch if it cannot be, as then it is another request.
    fn change_scheme(&mut self, stored: &Fingerprint) -> Option<Decision> {
        let Command::Claim(claim) = &mut self.command else { return None };
        if let Some(fingerprint) = self.request.under(&stored.scheme) {
            claim.fingerprint = fingerprint;
            return None;
        }
        Some(Decision::Mismatch { stored: stored.prefix(), asked: claim.fingerprint.prefix() })
    }

    fn give(&self, decision: Decision) -> Decision<Claim> {
        decision
            .map_won(|won| Claim::begin(self.running.clone(), self.request.id().clone(), won, self.lease_ms))
    }
}

/// A claim on its way to the writer. Whoever stops waiting for it leaves no win behind.
struct Told<'a> {
    shared: &'a Shared,
    id: &'a Id,
    taker: Taker<Reply>,
}

impl Future for Told<'_> {
    type Output = Result<Reply>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<Reply>> {
        std::pin::Pin::new(&mut self.taker).poll(context).map(|reply| reply.ok_or_else(lost))
    }
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if self.shared.engine.is_inherited() {
            // The parent's own future takes the answer.
            return;
        }
        if let Some(Reply { untold: Some(untold), .. }) = self.taker.renounce() {
            self.shared.let_go(self.id.clone(), untold);
        }
    }
}

impl Shared {
    /// When a waiter looks again by itself: at the end of the lease, or soon. None if it was told a
    /// decision, or its wait is over. That too many were woken at once is no reason to give up.
    fn look_again(&self, told: &Result<Decision<Claim>>, looks: u32, is_over: bool) -> Option<Instant> {
        let rest = match told {
            _ if is_over => return None,
            Ok(Decision::InFlight { lease_until_ms, .. }) => {
                lease_until_ms.map(|until_ms| until_ms.since(self.now_ms()).to_duration())
            }
            Err(error) if error.kind() == ErrorKind::Busy => error.retry_after(),
            Ok(_) | Err(_) => return None,
        };
        let soon = self.look_again_after(looks);
        Some(timer::after(rest.unwrap_or(soon).min(soon)))
    }
}

/// A claim's nonce until it needs one: most are answered by a look, and randomness is a call to the
/// system. A record with this nonce looks like a win, and any win is left to the writer.
const UNNAMED: Nonce = Nonce([0; 16]);

pub(super) fn without_writes(told: Written<Decision<Claim>>) -> Result<Decision<Claim>> {
    match told {
        Written::Done(decision) => Ok(decision),
        Written::Conflict(_) => Err(Error::misdelivered("a claim without writes")),
    }
}

fn own_nonce(request: &ClaimRequest<'_>) -> Result<Nonce> {
    request.nonce.map_or_else(Nonce::random, Ok)
}
