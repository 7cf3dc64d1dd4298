//! Steps of a claim that reach outside the store: the intent before, the result after.
//!
//! ```text
//! claim.effect("charge", limit) -> what if it is in doubt? -> run(call)
//!     recorded as done or refused   ->  its stored result, and the call is not made
//!     new, or declared repeatable   ->  intent on disk -> call(downstream key) -> result on disk
//!     in doubt, can be asked about  ->  after limit and settling time: ask the other side
//!     in doubt otherwise            ->  the claim is held for a person
//! ```
//!
//! A step is in doubt when its intent is recorded and its result is not: the call may have happened.
//! What to do then has no default; an effect cannot be run before one of the three is chosen.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::claim::Claim;
use crate::machine::{Act, Blob, EffectAnswer, HoldReason, InDoubt, StepResult};
use crate::store::Ringing;
use crate::{Error, ErrorKind, Millis, Result};

/// A step that is named but says not yet what to do should it be in doubt.
#[must_use = "choose what happens in doubt, then run it"]
pub struct Effect<'a> {
    claim: &'a Claim,
    name: &'a str,
    limit: Duration,
}

/// A step that is ready to run; `A` asks what became of it, if it can be asked about.
#[must_use = "run it"]
pub struct ReadyEffect<'a, A> {
    effect: Effect<'a>,
    in_doubt: InDoubt,
    ask: A,
}

/// Asks nobody: the step is repeated or the claim held.
#[derive(Debug)]
pub struct NoAsk;

/// What a call is handed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Call {
    /// The key to send along: the same on every attempt of this intent.
    pub downstream_key: String,
    /// How long the call may take. A blocking call keeps to it by itself; an async one is cut off.
    pub limit: Duration,
}

/// How a step ended, now or on an earlier attempt.
#[derive(Clone, Eq, PartialEq)]
pub enum Effected {
    /// It happened, with this result.
    Done(Vec<u8>),
    /// It was refused for good, with this result.
    Refused(Vec<u8>),
}

/// Why a step has no result. Nothing was repeated.
#[derive(Debug)]
#[non_exhaustive]
pub enum EffectError<E> {
    /// The call failed, and nobody knows whether it happened. The step stays in doubt: abandon the
    /// claim, and the next attempt does what was chosen. If that is to hold, the claim is held already.
    InDoubt(E),
    /// The call was not over at its limit and was cut off; otherwise like `InDoubt`.
    CutOff,
    /// The call was never sent, and its intent is removed: run the effect again, or release the claim.
    NotSent,
    /// An earlier call may still be under way: run the effect again at this store time.
    Settling {
        /// When.
        until_ms: Millis,
    },
    /// The other side could not tell what happened, for this reason: ask again later.
    NotReconciled(E),
    /// The claim is held: stop. A person resolves it.
    Held(HoldReason),
    /// The store refused: `Fenced` if another attempt owns the key now, `Invalid` if the steps are not
    /// those that were recorded (the claim is then held), and whatever else a claim's commands may say.
    Store(Error),
}

impl Claim {
    /// Begins to word a step that calls another service and takes at most `limit`.
    ///
    /// The name is used once per intent, and steps come in the same order on every attempt.
    pub fn effect<'a>(&'a self, name: &'a str, limit: Duration) -> Effect<'a> {
        Effect { claim: self, name, limit }
    }

    /// Resolves once the store has found out that another attempt owns the key: stop working, and drop
    /// the result. It finds out when a renewal or a command is refused; it may never resolve.
    pub async fn lost(&self) {
        let bell = self.loss_bell();
        if !self.is_lost() {
            bell.await;
        }
    }

    /// Waits until the claim is lost, see [`Claim::lost`]; false if it was not by then.
    pub fn wait_lost(&self, timeout: Duration) -> bool {
        let bell = self.loss_bell();
        if !self.is_lost() {
            bell.wait(timeout);
        }
        self.is_lost()
    }
}

impl<'a> Effect<'a> {
    /// In doubt it is called again with the same downstream key: the other side answers a repeated key
    /// with what it did the first time.
    pub fn repeat_in_doubt(self) -> ReadyEffect<'a, NoAsk> {
        ReadyEffect { effect: self, in_doubt: InDoubt::Repeat, ask: NoAsk }
    }

    /// In doubt the claim is held for a person.
    pub fn hold_in_doubt(self) -> ReadyEffect<'a, NoAsk> {
        ReadyEffect { effect: self, in_doubt: InDoubt::Hold, ask: NoAsk }
    }

    /// In doubt `ask` finds out what became of the call, once its limit and this settling time are over:
    /// by then the other side has it or will never have it.
    pub fn reconcile_in_doubt<A>(self, settle: Duration, ask: A) -> ReadyEffect<'a, A> {
        let in_doubt = InDoubt::Reconcile { settle_ms: Millis::from_duration(settle) };
        ReadyEffect { effect: self, in_doubt, ask }
    }

    fn run<E>(
        &self,
        in_doubt: InDoubt,
        call: impl FnOnce(Call) -> Result<StepResult, E>,
        ask: impl FnOnce(Call) -> Result<StepResult, EffectError<E>>,
    ) -> Result<Effected, EffectError<E>> {
        let result = match self.claim.begin_effect(self.name, self.limit, in_doubt)? {
            EffectAnswer::Run { .. } => match call(self.call()) {
                Ok(result) => result,
                Err(error) => {
                    if let Some(give_up) = Self::give_up(in_doubt) {
                        self.claim.say_last(give_up)?;
                    }
                    return Err(EffectError::InDoubt(error));
                }
            },
            EffectAnswer::Reconcile { .. } => ask(self.call())?,
            told => return known(told),
        };
        self.claim.finish_effect(self.name, result.clone())?;
        ended(result)
    }

    async fn run_async<E, C, A>(
        &self,
        in_doubt: InDoubt,
        call: impl FnOnce(Call) -> C,
        ask: impl FnOnce(Call) -> A,
    ) -> Result<Effected, EffectError<E>>
    where
        C: Future<Output = Result<StepResult, E>>,
        A: Future<Output = Result<StepResult, EffectError<E>>>,
    {
        let result = match self.claim.begin_effect_async(self.name, self.limit, in_doubt).await? {
            EffectAnswer::Run { .. } => {
                let failed = match self.within_limit(call(self.call())).await {
                    Some(Ok(result)) => Ok(result),
                    Some(Err(error)) => Err(EffectError::InDoubt(error)),
                    None => Err(EffectError::CutOff),
                };
                if let (Err(_), Some(give_up)) = (&failed, Self::give_up(in_doubt)) {
                    self.claim.say_last_async(give_up).await?;
                }
                failed?
            }
            EffectAnswer::Reconcile { .. } => {
                self.within_limit(ask(self.call())).await.unwrap_or(Err(EffectError::CutOff))?
            }
            told => return known(told),
        };
        self.claim.finish_effect_async(self.name, result.clone()).await?;
        ended(result)
    }

    fn call(&self) -> Call {
        Call { downstream_key: self.claim.downstream_key(self.name), limit: self.limit }
    }

    /// What is said at once of a call that failed: if nobody may repeat it, a person is to see it now
    /// and not when the next attempt meets it.
    fn give_up(in_doubt: InDoubt) -> Option<Act> {
        (in_doubt == InDoubt::Hold).then_some(Act::Hold { reason: HoldReason::StepInDoubt })
    }

    /// The future's output, or none if it is not over at the step's limit: it is dropped then.
    async fn within_limit<F: Future>(&self, future: F) -> Option<F::Output> {
        Limited { future: Box::pin(future), over: self.claim.bell_after(self.limit) }.await
    }
}

impl ReadyEffect<'_, NoAsk> {
    /// Makes the call, unless its result is known. Blocking: the call has to keep to its limit by itself.
    ///
    /// *Durability*: the intent is on disk before the call is made, the result when this returns.
    pub fn run<E>(
        self,
        call: impl FnOnce(Call) -> Result<StepResult, E>,
    ) -> Result<Effected, EffectError<E>> {
        self.effect.run(self.in_doubt, call, |_| Err(nobody_to_ask()))
    }

    /// Like [`ReadyEffect::run`], without blocking. The call is cut off at its limit; dropping this future
    /// leaves the step in doubt, as the death of the process would.
    pub async fn run_async<E, C>(self, call: impl FnOnce(Call) -> C) -> Result<Effected, EffectError<E>>
    where
        C: Future<Output = Result<StepResult, E>>,
    {
        self.effect.run_async(self.in_doubt, call, |_| std::future::ready(Err(nobody_to_ask()))).await
    }
}

impl<A> ReadyEffect<'_, A> {
    /// Makes the call, unless its result is known or can be asked for. Otherwise like the `run` of a step
    /// that is not asked about.
    pub fn run_or_ask<E>(
        self,
        call: impl FnOnce(Call) -> Result<StepResult, E>,
    ) -> Result<Effected, EffectError<E>>
    where
        A: FnOnce(Call) -> Result<StepResult, E>,
    {
        self.effect.run(self.in_doubt, call, |handed| (self.ask)(handed).map_err(EffectError::NotReconciled))
    }

    /// Like [`ReadyEffect::run_or_ask`], without blocking; call and question are cut off at the limit.
    pub async fn run_or_ask_async<E, C, F>(
        self,
        call: impl FnOnce(Call) -> C,
    ) -> Result<Effected, EffectError<E>>
    where
        C: Future<Output = Result<StepResult, E>>,
        A: FnOnce(Call) -> F,
        F: Future<Output = Result<StepResult, E>>,
    {
        let ask = |handed| async { (self.ask)(handed).await.map_err(EffectError::NotReconciled) };
        self.effect.run_async(self.in_doubt, call, ask).await
    }
}

impl<E> From<Error> for EffectError<E> {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl<E: fmt::Display> fmt::Display for EffectError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InDoubt(error) => write!(f, "the call failed and may have happened: {error}"),
            Self::CutOff => f.write_str("the call was cut off at its limit and may have happened"),
            Self::NotSent => f.write_str("the call was not sent; run the effect again, or release the claim"),
            Self::Settling { until_ms } => {
                write!(f, "an earlier call may still be under way; run the effect again at {} ms", until_ms.0)
            }
            Self::NotReconciled(error) => write!(f, "nobody could tell what became of the call: {error}"),
            Self::Held(reason) => write!(f, "the claim is held ({reason:?}); a person has to resolve it"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl<E: StdError + 'static> StdError for EffectError<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::InDoubt(error) | Self::NotReconciled(error) => Some(error),
            Self::Store(error) => Some(error),
            Self::CutOff | Self::NotSent | Self::Settling { .. } | Self::Held(_) => None,
        }
    }
}

impl fmt::Debug for Effected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A step's result is customer data.
        match self {
            Self::Done(bytes) => write!(f, "Done({} bytes)", bytes.len()),
            Self::Refused(bytes) => write!(f, "Refused({} bytes)", bytes.len()),
        }
    }
}

/// A future with an end.
struct Limited<F> {
    future: Pin<Box<F>>,
    over: Ringing,
}

impl<F: Future> Future for Limited<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(output) = self.future.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        Pin::new(&mut self.over).poll(context).map(|()| None)
    }
}

fn ended<E>(result: StepResult) -> Result<Effected, EffectError<E>> {
    match result {
        StepResult::Done(Blob(bytes)) => Ok(Effected::Done(bytes)),
        StepResult::Refused(Blob(bytes)) => Ok(Effected::Refused(bytes)),
        StepResult::NotSent => Err(EffectError::NotSent),
    }
}

/// What needs no call.
fn known<E>(told: EffectAnswer) -> Result<Effected, EffectError<E>> {
    match told {
        EffectAnswer::Done { result: Blob(bytes), .. } => Ok(Effected::Done(bytes)),
        EffectAnswer::Refused { result: Blob(bytes), .. } => Ok(Effected::Refused(bytes)),
        EffectAnswer::Settling { until_ms } => Err(EffectError::Settling { until_ms }),
        EffectAnswer::Held(reason) => Err(EffectError::Held(reason)),
        EffectAnswer::Run { .. } | EffectAnswer::Reconcile { .. } => Err(nobody_to_ask()),
    }
}

fn nobody_to_ask<E>() -> EffectError<E> {
    let message = "a step that nobody can be asked about was to be asked about; report it";
    EffectError::Store(Error::new(ErrorKind::Internal, message))
}
