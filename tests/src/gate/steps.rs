//! The three phases of an order: its row, a charge, a receipt by mail.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::Duration;

use keyclaim::machine::{Blob, Outcome, Response, StepResult};
use keyclaim::{Call, Claim, EffectError, Effected, Error, Writes, Written};
use tokio::runtime::Handle;

use super::client::{self, Asked};
use super::{Boundary, Doubt, Failure, Plant, Settings, Step, say};

/// Where the orders' rows are.
pub(super) const ORDERS: &str = "orders";
/// How long to wait before a step that has not settled is run again (arbitrary).
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What an attempt works with.
pub(super) struct Bench {
    pub(super) settings: Settings,
    pub(super) runtime: Handle,
}

/// One attempt of an order.
pub(super) struct Attempt<'a> {
    pub(super) bench: &'a Bench,
    pub(super) claim: &'a Claim,
    pub(super) key: &'a str,
    pub(super) stop: Option<Boundary>,
    /// Whether it waits until a step has settled, or ends.
    pub(super) waits: bool,
}

/// A step of an attempt, and the mistake that is made with it.
struct Stepping<'a> {
    attempt: &'a Attempt<'a>,
    step: Step,
    /// What a call that was made too early brought.
    early: RefCell<Option<Result<StepResult, Failure>>>,
    /// The result that nobody records.
    forgotten: RefCell<Option<StepResult>>,
}

impl Bench {
    fn provider(&self, step: Step) -> SocketAddr {
        match step {
            Step::Charge => self.settings.charges,
            Step::Mail => self.settings.mails,
        }
    }
}

impl Attempt<'_> {
    /// The answer, which names the order, the charge and the mail.
    pub(super) fn run(&self) -> Result<String, EffectError<Failure>> {
        let ended = self.phases();
        if ended.is_err() {
            // Whatever happened is on record. If another attempt owns the key, or the claim is held,
            // this is refused and changes nothing.
            drop(self.claim.abandon());
        }
        ended
    }

    fn phases(&self) -> Result<String, EffectError<Failure>> {
        self.reach(Boundary::Claimed);
        let order = self.ordered()?;
        self.reach(Boundary::Ordered);
        let charge = self.step(Step::Charge)?;
        self.reach(Boundary::Finished(Step::Charge));
        let mail = self.step(Step::Mail)?;
        self.reach(Boundary::Finished(Step::Mail));
        let answer = format!("{order} {charge} {mail}");
        self.claim.complete(&Outcome::success(Response::new(201, answer.as_str())))?;
        self.reach(Boundary::Completed);
        Ok(answer)
    }

    /// The order's row, made once: every later attempt goes on with the first one's.
    fn ordered(&self) -> Result<String, Error> {
        if let Some(point) = self.claim.point() {
            return Ok(String::from_utf8_lossy(&point.data.0).into_owned());
        }
        let order = format!("o{}", self.claim.token());
        // A row that is there already was made without its recovery point.
        let row = Writes::new().put_if_absent(ORDERS, self.key.as_bytes(), order.as_bytes());
        match self.claim.checkpoint_with("ordered", order.as_bytes(), row)? {
            Written::Done(()) => Ok(order),
            Written::Conflict(conflict) => {
                say(&format!("wrong {} its row is there before it: {conflict}", self.key));
                Ok(order)
            }
        }
    }

    /// The provider's name of what was booked, by this attempt or one before.
    fn step(&self, step: Step) -> Result<String, EffectError<Failure>> {
        loop {
            match Stepping::begin(self, step).told() {
                Ok(Effected::Done(name) | Effected::Refused(name)) => {
                    return Ok(String::from_utf8_lossy(&name).into_owned());
                }
                // It was asked about and did not happen: its intent is gone, so it is called now.
                Err(EffectError::NotSent) => {}
                Err(EffectError::Settling { .. }) if self.waits => sleep(LOOK_AGAIN),
                Err(error) => return Err(error),
            }
        }
    }

    fn reach(&self, here: Boundary) {
        stop_at(self.key, self.stop, here);
    }
}

impl<'a> Stepping<'a> {
    fn begin(attempt: &'a Attempt<'a>, step: Step) -> Self {
        let this = Self { attempt, step, early: RefCell::default(), forgotten: RefCell::default() };
        if this.plant() == Some(Plant::CallBeforeIntent) {
            this.early.replace(Some(this.call(&attempt.claim.downstream_key(step.name()))));
        }
        this
    }

    /// Runs the effect in the way that the provider's abilities ask for.
    fn told(&self) -> Result<Effected, EffectError<Failure>> {
        let settings = &self.attempt.bench.settings;
        let effect = self.attempt.claim.effect(self.step.name(), settings.limit);
        let settle = match self.plant() {
            Some(Plant::NoSettling) => Duration::ZERO,
            _ => settings.settle,
        };
        let told = match settings.doubt {
            _ if self.plant() == Some(Plant::RepeatInDoubt) => {
                effect.repeat_in_doubt().run(|call| self.called(&call))
            }
            Doubt::Repeat => effect.repeat_in_doubt().run(|call| self.called(&call)),
            Doubt::Reconcile => effect
                .reconcile_in_doubt(settle, |call: Call| self.ask(&call.downstream_key))
                .run_or_ask(|call| self.called(&call)),
            Doubt::Hold => effect.hold_in_doubt().run(|call| self.called(&call)),
        };
        match (told, self.forgotten.take()) {
            (Err(EffectError::NotSent), Some(StepResult::Done(Blob(name)))) => Ok(Effected::Done(name)),
            (told, _) => told,
        }
    }

    /// What runs between the intent and the result.
    fn called(&self, call: &Call) -> Result<StepResult, Failure> {
        let result = self.early.take().unwrap_or_else(|| self.call(&call.downstream_key))?;
        if self.plant() == Some(Plant::ForgetResult) {
            self.forgotten.replace(Some(result));
            return Ok(StepResult::NotSent);
        }
        Ok(result)
    }

    fn call(&self, downstream_key: &str) -> Result<StepResult, Failure> {
        self.attempt.reach(Boundary::Intended(self.step));
        let Bench { settings, runtime } = self.attempt.bench;
        let booking = client::book(self.provider(), self.asked(downstream_key));
        let name = runtime.block_on(async { tokio::time::timeout(settings.patience, booking).await? })?;
        self.attempt.reach(Boundary::Answered(self.step));
        Ok(StepResult::Done(Blob::from(name.into_bytes())))
    }

    fn ask(&self, downstream_key: &str) -> Result<StepResult, Failure> {
        let asked = client::ask(self.provider(), self.asked(downstream_key));
        Ok(match self.attempt.bench.runtime.block_on(asked)? {
            Some(name) => StepResult::Done(Blob::from(name.into_bytes())),
            None => StepResult::NotSent,
        })
    }

    fn asked(&self, downstream_key: &str) -> Asked<'_> {
        let token = self.attempt.claim.token();
        let suffix = match self.plant() {
            Some(Plant::KeyOfAttempt) => format!("-{token}"),
            _ => String::new(),
        };
        let downstream_key = format!("{downstream_key}{suffix}");
        Asked { reference: self.attempt.key, downstream_key, token: token.0 }
    }

    fn provider(&self) -> SocketAddr {
        self.attempt.bench.provider(self.step)
    }

    fn plant(&self) -> Option<Plant> {
        self.attempt.bench.settings.plant
    }
}

/// What nobody may do: run an order that another attempt owns.
pub(super) fn run_unclaimed(bench: &Bench, key: &str) -> Result<(), Failure> {
    for step in [Step::Charge, Step::Mail] {
        let asked = Asked { reference: key, downstream_key: "-".into(), token: 0 };
        bench.runtime.block_on(client::book(bench.provider(step), asked))?;
    }
    Ok(())
}

/// Stops this thread here, for good, if that was asked for: not even a limit ends the wait.
pub(super) fn stop_at(key: &str, stop: Option<Boundary>, here: Boundary) {
    if stop == Some(here) {
        say(&format!("at {key} {here}"));
        loop {
            std::thread::park();
        }
    }
}
