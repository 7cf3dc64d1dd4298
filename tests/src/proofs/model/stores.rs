//! The real stores: both are asked the same, and both must answer as the model does.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use keyclaim::clock::ManualClock;
use keyclaim::machine::{
    Decision, EffectAnswer, InDoubt, Outcome, OutcomeClass, Response, StepProgress, StepResult,
};
use keyclaim::store::{Inspection, Standing, StepStanding, Which};
use keyclaim::{
    Abandoned, AfterFailure, AfterWindow, Claim, Error, ErrorKind, Id, Millis, Nonce, Options, Policy,
    Result, Store, Token,
};
use proptest_state_machine::StateMachineTest;

use super::rules::Model;
use super::words::{Ask, Doubt, End, Ending, Operate, Own, POLICIES};
use crate::request::{id, paying};

/// Both stores, on one clock.
pub(super) struct Stores {
    /// In memory; and, where there is a folder, on a file.
    sides: Vec<Side>,
    clock: ManualClock,
    now: u64,
    dir: Option<tempfile::TempDir>,
}

const SIDES: [&str; 2] = ["in memory", "on a file"];

struct Side {
    store: Store,
    claims: Vec<Option<Claim>>,
    base: Millis,
}

impl StateMachineTest for Stores {
    type SystemUnderTest = Self;
    type Reference = Model;

    fn init_test(_: &Model) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut stores = Self::in_memory();
        stores.sides.push(Side::new(open(dir.path(), &stores.clock)));
        Self { dir: Some(dir), ..stores }
    }

    fn apply(mut stores: Self, model: &Model, ask: Ask) -> Self {
        stores.clock.advance(model.now - stores.now);
        stores.now = model.now;
        if matches!(ask, Ask::Restart) {
            stores.sides.iter_mut().for_each(|side| side.claims.iter_mut().for_each(|claim| *claim = None));
            if let ([_, file], Some(dir)) = (&mut stores.sides[..], &stores.dir) {
                file.store.clone().close().unwrap();
                file.store = open(dir.path(), &stores.clock);
            }
        }
        for (side, name) in stores.sides.iter_mut().zip(SIDES) {
            let answer = side.answer(model, &ask);
            assert_eq!(answer, model.answer, "the store {name} and the model differ about {ask:?}");
        }
        super::note(&model.answer);
        stores
    }

    fn check_invariants(stores: &Self, model: &Model) {
        for (side, name) in stores.sides.iter().zip(SIDES) {
            assert_eq!(side.view(), model.view(), "the store {name} holds something else");
        }
    }
}

impl Stores {
    /// Without the one on a file.
    pub(super) fn in_memory() -> Self {
        let clock = ManualClock::new(1_700_000_000_000);
        let memory = Side::new(Store::in_memory(options(&clock)).unwrap());
        Self { sides: vec![memory], clock, now: 0, dir: None }
    }
}

impl Side {
    fn new(store: Store) -> Self {
        Self { base: store.now_ms(), store, claims: Vec::new() }
    }

    fn answer(&mut self, model: &Model, ask: &Ask) -> String {
        match ask {
            Ask::Claim { key, payload, policy, nonce, token_of } => {
                let token = token_of.map(|at| model.claims[at].token);
                let payload = [*payload];
                let mut request = paying(&name(*key), &payload).policy(settings(*policy));
                if let Some(nonce) = nonce {
                    request = request.nonce(Nonce([*nonce; 16]));
                }
                if let Some(token) = token {
                    request = request.token(Token(token));
                }
                match self.store.claim(&request) {
                    Ok(decision) => self.decided(decision),
                    Err(error) => failed(&error),
                }
            }
            Ask::Own { claim, act } => {
                let claim = self.claims[*claim].as_ref().expect("the model knows who is alive");
                self.own(claim, act).unwrap_or_else(|error| failed(&error))
            }
            Ask::Operate { key, act, .. } => {
                let token = self.operate(&id(&name(*key)), act, Token(model.seen));
                token.map_or_else(|error| failed(&error), |token| format!("token {token}"))
            }
            Ask::Drop { claim } => {
                self.claims[*claim] = None;
                String::new()
            }
            Ask::Advance { .. } | Ask::AdvanceTo { .. } | Ask::Restart => String::new(),
        }
    }

    fn decided(&mut self, decision: Decision<Claim>) -> String {
        match decision {
            Decision::Won(claim) => {
                let point = claim.point().map(|point| {
                    assert_eq!(point.data.0, format!("data of {}", point.name).into_bytes());
                    number(&point.name)
                });
                let steps: Vec<_> =
                    claim.steps().iter().map(|step| self.step(&step.name, &step.progress)).collect();
                let answer = format!(
                    "won {:?} token {} gen {} attempt {} until {:?} point {point:?} steps {steps:?}",
                    claim.kind(),
                    claim.token(),
                    claim.generation(),
                    claim.attempt(),
                    self.maybe(claim.lease_until_ms()),
                );
                // Told again, the older object of the same win goes.
                for older in &mut self.claims {
                    if older.as_ref().is_some_and(|older| older.token() == claim.token()) {
                        *older = None;
                    }
                }
                self.claims.push(Some(claim));
                answer
            }
            Decision::Replay(replay) => {
                let body = replay.response.body.bytes().expect("every body of the model fits");
                let outcome = match replay.class {
                    OutcomeClass::Success => Ending::Success { body_len: body.len() },
                    OutcomeClass::Failure(AfterFailure::Replay) => Ending::Failure,
                    OutcomeClass::Failure(AfterFailure::Reattempt) => Ending::FailureToReattempt,
                };
                assert_eq!(replay.response, response(outcome).response, "replayed byte for byte");
                format!(
                    "replay gen {} {outcome:?} at {} until {}",
                    replay.generation,
                    self.at(replay.completed_ms),
                    self.at(replay.window_until_ms)
                )
            }
            Decision::InFlight { retry_after_ms, lease_until_ms } => {
                format!("in flight for {} until {:?}", retry_after_ms.0, self.maybe(lease_until_ms))
            }
            Decision::Mismatch { .. } => "mismatch".into(),
            Decision::Held { reason, token } => format!("held {reason:?} token {token}"),
            Decision::Expired => "expired".into(),
        }
    }

    fn own(&self, claim: &Claim, act: &Own) -> Result<String> {
        match act {
            Own::Renew { lease_ms } => {
                let until_ms = claim.renew(lease_ms.map(Duration::from_millis))?;
                return Ok(format!("lease until {:?}", self.maybe(until_ms)));
            }
            Own::Checkpoint { point } => {
                claim.checkpoint(&name(*point), format!("data of {}", name(*point)).as_bytes())
            }
            Own::Begin { step, limit_ms, doubt } => {
                let doubt = match doubt {
                    Doubt::Repeat => InDoubt::Repeat,
                    Doubt::Reconcile { settle_ms } => InDoubt::Reconcile { settle_ms: Millis(*settle_ms) },
                    Doubt::Hold => InDoubt::Hold,
                };
                let answer = claim.begin_effect(&name(*step), Duration::from_millis(*limit_ms), doubt)?;
                return Ok(self.effect(&answer));
            }
            Own::Finish { step, end } => claim.finish_effect(&name(*step), ended(*end)),
            Own::Complete { outcome } => claim.complete(&response(*outcome)),
            Own::Release => claim.release(),
            Own::Abandon => claim.abandon(),
            Own::Hold => claim.hold(),
        }?;
        Ok("ok".into())
    }

    fn effect(&self, answer: &EffectAnswer) -> String {
        let result = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match answer {
            EffectAnswer::Run { place, until_ms } => {
                format!("run place {place} until {}", self.at(*until_ms))
            }
            EffectAnswer::Done { place, result: of } => format!("Done place {place} {}", result(&of.0)),
            EffectAnswer::Refused { place, result: of } => format!("Refused place {place} {}", result(&of.0)),
            EffectAnswer::Settling { until_ms } => format!("settling until {}", self.at(*until_ms)),
            EffectAnswer::Reconcile { place } => format!("reconcile place {place}"),
            EffectAnswer::Held(reason) => format!("held {reason:?}"),
        }
    }

    fn operate(&self, id: &Id, act: &Operate, seen: Token) -> Result<Token> {
        match act {
            Operate::Complete { outcome } => self.store.resolve_complete(id, seen, response(*outcome)),
            Operate::Absent => self.store.resolve_absent(id, seen),
            Operate::Resumable { step } => self.store.resolve_resumable(id, seen, step.map(ended)),
            Operate::Forget => self.store.forget(id, seen),
            Operate::Extend { ms } => self.store.extend_window(id, seen, Duration::from_millis(*ms)),
        }
    }

    fn view(&self) -> Vec<String> {
        let page = self.store.list(id("any").scope(), Which::All, None, 100).unwrap();
        assert!(page.next.is_none() && page.damaged.is_empty());
        let rows = page.rows.iter().map(|(key, found)| {
            let name = String::from_utf8(key.as_bytes().to_vec()).unwrap();
            assert_eq!(self.store.inspect(&id(&name)).unwrap().as_ref(), Some(found));
            format!("{}: {}", number(&name), self.inspected(found))
        });
        rows.collect()
    }

    fn inspected(&self, found: &Inspection) -> String {
        let state = match found.standing {
            Standing::InFlight { lease_until_ms } => {
                format!("in flight until {:?}", self.maybe(lease_until_ms))
            }
            Standing::Held { reason } => format!("held {reason:?}"),
            Standing::Complete { class, body_len, completed_ms, window_until_ms, .. } => {
                let class = match class {
                    OutcomeClass::Success => "success",
                    OutcomeClass::Failure(AfterFailure::Replay) => "failure",
                    OutcomeClass::Failure(AfterFailure::Reattempt) => "failure to reattempt",
                };
                let (at, until) = (self.at(completed_ms), self.at(window_until_ms));
                format!("complete {class} len {body_len} at {at} until {until}")
            }
            _ => panic!("the model knows no other standing"),
        };
        let steps = found.steps.iter().map(|(step, standing)| match standing {
            StepStanding::Begun { until_ms } => {
                format!("{} begun until {}", number(step), self.at(*until_ms))
            }
            other => format!("{} {other:?}", number(step)),
        });
        format!(
            "{state} token {} gen {} attempt {} created {} applied {} horizon {} point {:?} steps {:?}",
            found.token,
            found.generation,
            found.attempt,
            self.at(found.created_ms),
            self.at(found.applied_ms),
            self.at(found.horizon_until_ms),
            found.point.as_deref().map(number),
            steps.collect::<Vec<_>>(),
        )
    }

    fn step(&self, step: &str, progress: &StepProgress) -> String {
        match progress {
            StepProgress::Begun { until_ms, .. } => {
                format!("{} begun until {}", number(step), self.at(*until_ms))
            }
            StepProgress::Done(_) => format!("{} Done", number(step)),
            StepProgress::Refused(_) => format!("{} Refused", number(step)),
        }
    }

    fn at(&self, at: Millis) -> u64 {
        at.since(self.base).0
    }

    fn maybe(&self, at: Option<Millis>) -> Option<u64> {
        at.map(|at| self.at(at))
    }
}

fn open(dir: &Path, clock: &ManualClock) -> Store {
    Store::open(dir.join("store"), options(clock)).unwrap()
}

fn options(clock: &ManualClock) -> Options {
    let options = Options::new(Abandoned::Rerun).clock(Arc::new(clock.clone())).renew_leases_max(0);
    super::planted().into_iter().fold(options, Options::plant)
}

fn settings(policy: usize) -> Policy {
    let settings = POLICIES[policy];
    let policy = Policy::new(if settings.reruns { Abandoned::Rerun } else { Abandoned::Hold });
    let policy = match settings.lease_ms {
        Some(lease_ms) => policy.lease(Duration::from_millis(lease_ms)).unwrap(),
        None => policy.no_lease(),
    };
    policy
        .replay_window(Duration::from_millis(settings.window_ms))
        .and_then(|policy| policy.reaper_horizon(Duration::from_millis(settings.horizon_ms)))
        .unwrap()
        .after_window(if settings.refuses_after_window { AfterWindow::Refuse } else { AfterWindow::Reuse })
}

fn response(outcome: Ending) -> Outcome {
    let failure = Response::new(500, "no").header("a", "1").header("a", "2");
    match outcome {
        Ending::Success { body_len } => {
            Outcome::success(Response::new(201, vec![b'x'; body_len]).header("location", "/1"))
        }
        Ending::Failure => Outcome::failure(failure, AfterFailure::Replay),
        Ending::FailureToReattempt => Outcome::failure(failure, AfterFailure::Reattempt),
    }
}

fn ended(end: End) -> StepResult {
    match end {
        End::Done => StepResult::Done(b"result".as_slice().into()),
        End::Refused => StepResult::Refused(b"result".as_slice().into()),
        End::NotSent => StepResult::NotSent,
    }
}

fn failed(error: &Error) -> String {
    match (error.kind(), error.present()) {
        (ErrorKind::Fenced, Some(present)) => format!("FENCED {present}"),
        (kind, _) => kind.to_string(),
    }
}

fn name(number: u8) -> String {
    format!("n{number}")
}

fn number(name: &str) -> u8 {
    name.trim_start_matches('n').parse().expect("the model gives numbers for names")
}
