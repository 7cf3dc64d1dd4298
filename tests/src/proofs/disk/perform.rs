//! Doing one action, and what it has changed by what was answered.

use std::time::Duration;

use keyclaim::machine::{Decision, EffectAnswer, InDoubt, WonKind};
use keyclaim::outbox::{Ending, RelayOptions, Settled};
use keyclaim::store::redb::ReadableTable;
use keyclaim::{
    Claim, Error, ErrorKind, Generation, Millis, Nonce, Reap, Store, Writes, Written, transaction_error,
};

use super::action::Action;
use super::drive::{Did, Driver, Fail, LEASE_MS, Owner};
use super::look::{OWN, TABLE, answer_bytes, name};
use super::values::{complete, done, outcome, row, step_told, text, with_writes, writes};
use super::world::{Bytes, Delta, Stands, StepTold, Told};
use crate::request::{id, request};

/// Longer than a step may take; nothing waits for it.
const STEP_LIMIT: Duration = Duration::from_millis(LEASE_MS / 2);

impl Driver {
    /// Does it. Asked again after an error of the store, the same action is the same command.
    pub(super) fn perform(&mut self, action: &Action, is_again: bool) -> Did {
        match action {
            Action::Claim { key, nonce, writes } => {
                let won = claim(self.store(), *key, *nonce, *writes)?;
                self.claimed(*key, *nonce, *writes, won)
            }
            Action::Conflict { key } => {
                let writes = Writes::new().put_if_absent(TABLE, name(*key).as_bytes(), b"never");
                match self.store().claim_with(&request(&name(*key)), &writes)? {
                    Written::Conflict(_) => Ok(Vec::new()),
                    Written::Done(told) => broken(format!("a conflict was told {}", told.name())),
                }
            }
            Action::Begin { key, step } => self.begin(*key, step),
            Action::Finish { .. }
            | Action::Checkpoint { .. }
            | Action::Complete { .. }
            | Action::Release { .. }
            | Action::Abandon { .. }
            | Action::Hold { .. }
            | Action::Renew { .. } => self.own(action),
            Action::Resolve { key, how, number } => self.resolve(*key, *how, *number),
            Action::Write { number } => self.write(*number, is_again),
            Action::Transaction { key, nonce, number } => self.transaction(*key, *nonce, *number),
            Action::Group(actions) => self.group_of(actions),
            Action::Lease => {
                let leased = self.store().outbox_lease(2, &RelayOptions::new())?;
                self.leased.extend(leased);
                Ok(Vec::new())
            }
            Action::End { is_published } => self.end_first(*is_published, is_again),
            Action::Reap => self.reap(is_again),
            Action::Reopen => {
                self.owners.clear();
                self.overtaken.clear();
                if let Some(store) = self.store.take() {
                    store.close()?;
                }
                let (options, clock) = self.options();
                self.clock = clock;
                self.store = Some(Store::on_disk(&self.disk, options)?);
                Ok(Vec::new())
            }
            Action::Pass(ms) => {
                self.clock.advance(*ms);
                self.passed_ms += ms;
                Ok(Vec::new())
            }
            Action::Stale => self.stale(),
        }
    }

    pub(super) fn claimed(
        &mut self,
        key: u64,
        nonce: Nonce,
        writes: Option<u64>,
        told: Written<Decision<Claim>>,
    ) -> Did {
        let before = self.world.told(key, self.now_ms()).cloned();
        let Written::Done(decision) = told else { return broken("an unconditional claim conflicts") };
        match (decision, before) {
            (Decision::Won(claim), before) => self.won(key, nonce, writes, claim, before.as_ref()),
            (
                Decision::InFlight { .. },
                Some(Told { stands: Stands::InFlight { nonce: its, lease_until_ms }, .. }),
            ) if its != Some(nonce) && lease_until_ms.is_none_or(|until_ms| self.now_ms() < until_ms) => {
                Ok(Vec::new())
            }
            (Decision::Held { .. }, Some(Told { stands: Stands::Held, .. })) => Ok(Vec::new()),
            (Decision::Replay(replay), Some(Told { stands: Stands::Complete { body, .. }, .. })) => {
                require(answer_bytes(&replay.response) == body, || format!("{}: another body", name(key)))?;
                Ok(Vec::new())
            }
            (other, before) => broken(format!("{} was told {} of {before:?}", name(key), other.name())),
        }
    }

    fn won(
        &mut self,
        key: u64,
        nonce: Nonce,
        writes: Option<u64>,
        claim: Claim,
        before: Option<&Told>,
    ) -> Did {
        let now_ms = self.now_ms();
        let kind = claim.kind();
        let goes_on = before.is_some_and(|told| matches!(told.stands, Stands::InFlight { .. }));
        let may_win = match before.map(|told| &told.stands) {
            None => true,
            Some(Stands::InFlight { nonce: Some(its), .. }) if *its == nonce => kind == WonKind::Again,
            Some(Stands::InFlight { lease_until_ms, .. }) => {
                // Again: the first asking was in doubt, and has taken it over.
                lease_until_ms.is_none_or(|until_ms| now_ms >= until_ms)
                    && matches!(kind, WonKind::Takeover | WonKind::Again)
            }
            Some(Stands::Held) => false,
            Some(Stands::Complete { window_until_ms, .. }) => now_ms >= *window_until_ms,
        };
        require(may_win, || format!("{} was won ({kind:?}) from {before:?}", name(key)))?;
        let is_same = goes_on && before.is_some_and(|told| told.token == claim.token());
        require(is_same || claim.token().0 > self.world.token, || {
            format!("{}: token {} after {}", name(key), claim.token(), self.world.token)
        })?;
        // A claim's own writes are applied once in a generation, whoever brings them.
        let wrote_before = goes_on && before.is_some_and(|told| told.wrote);
        let writes = writes.filter(|_| !wrote_before);
        let told = Told {
            generation: claim.generation(),
            token: claim.token(),
            attempt: claim.attempt(),
            wrote: wrote_before || writes.is_some(),
            steps: claim.steps().iter().map(|step| (step.name.clone(), step_told(&step.progress))).collect(),
            point: claim.point().map(|point| (point.name.clone(), point.data.0.clone())),
            stands: Stands::InFlight { nonce: Some(nonce), lease_until_ms: claim.lease_until_ms() },
        };
        if let Some(before) = before.filter(|_| goes_on) {
            let same = (&told.steps, &told.point, told.generation)
                == (&before.steps, &before.point, before.generation);
            require(same, || format!("{}: handed over {told:?} of {before:?}", name(key)))?;
        } else {
            let is_new = told.generation == Generation(told.token.0) && told.attempt == 1;
            require(is_new && told.steps.is_empty() && told.point.is_none(), || {
                format!("{}: new but {told:?}", name(key))
            })?;
        }
        let mut delta = Delta::of_key(key, Some(told));
        let is_clean = !goes_on && writes.is_none();
        if let Some(number) = writes {
            with_writes(&mut delta, key, number);
        }
        let owner = Owner { claim, met: 0, is_clean, is_open: false };
        if let Some(owner) = self.owners.insert(key, owner) {
            self.overtaken.push((key, owner.claim));
        }
        Ok(vec![delta])
    }

    fn begin(&mut self, key: u64, step: &str) -> Did {
        let now_ms = self.now_ms();
        let (Some(owner), Some(mut told)) = (self.owners.get_mut(&key), self.world.keys.get(&key).cloned())
        else {
            return Ok(Vec::new());
        };
        let recorded = told.steps.get(owner.met).map(|(_, step)| step.clone());
        let answer = match owner.claim.begin_effect(step, STEP_LIMIT, InDoubt::Repeat) {
            Err(error) => return self.refused(key, error),
            Ok(answer) => answer,
        };
        match (answer, recorded) {
            (EffectAnswer::Run { until_ms, .. }, None | Some(StepTold::Begun)) => {
                if owner.met == told.steps.len() {
                    told.steps.push((step.to_owned(), StepTold::Begun));
                }
                (owner.is_open, owner.is_clean) = (true, false);
                if let Stands::InFlight { lease_until_ms: Some(lease_ms), .. } = &mut told.stands {
                    *lease_ms = (*lease_ms).max(until_ms);
                }
                Ok(vec![Delta::of_key(key, Some(told))])
            }
            (EffectAnswer::Done { result, .. }, Some(StepTold::Done(recorded))) if result.0 == recorded => {
                owner.met += 1;
                Ok(Vec::new())
            }
            (EffectAnswer::Settling { until_ms }, Some(StepTold::Begun)) if now_ms < until_ms => {
                Ok(Vec::new())
            }
            (other, recorded) => broken(format!("{step} of {}: {other:?}, was {recorded:?}", name(key))),
        }
    }

    /// What an owner says about its attempt.
    fn own(&mut self, action: &Action) -> Did {
        let (Action::Finish { key, .. }
        | Action::Checkpoint { key, .. }
        | Action::Complete { key, .. }
        | Action::Release { key }
        | Action::Abandon { key }
        | Action::Hold { key }
        | Action::Renew { key }) = action
        else {
            return Ok(Vec::new());
        };
        let (key, now_ms) = (*key, self.now_ms());
        let Some(owner) = self.owners.get_mut(&key) else { return Ok(Vec::new()) };
        let said = match action {
            Action::Finish { number, .. } => {
                owner.claim.finish_effect(&open_step(&self.world.keys, key), done(*number)).map(|()| None)
            }
            Action::Checkpoint { number, .. } => owner
                .claim
                .checkpoint_with(&format!("point-{number}"), &number.to_be_bytes(), writes(key, *number))
                .map(|written| require_done(&written)),
            Action::Complete { number, writes: true, .. } => owner
                .claim
                .complete_with(&outcome(*number), writes(key, *number))
                .map(|written| require_done(&written)),
            Action::Complete { number, .. } => owner.claim.complete(&outcome(*number)).map(|()| None),
            Action::Release { .. } => owner.claim.release().map(|()| None),
            Action::Abandon { .. } => owner.claim.abandon().map(|()| None),
            Action::Hold { .. } => owner.claim.hold().map(|()| None),
            _ => owner.claim.renew(None).map(|until_ms| until_ms.map(Ok)),
        };
        let told = match said {
            Err(error) => return self.refused(key, error),
            Ok(Some(Err(what))) => return broken(what),
            Ok(told) => told.and_then(Result::ok),
        };
        self.said(action, key, now_ms, told)
    }

    /// What follows from an owner's command that was applied.
    pub(super) fn said(
        &mut self,
        action: &Action,
        key: u64,
        now_ms: Millis,
        renewed_ms: Option<Millis>,
    ) -> Did {
        let Some(mut told) = self.world.keys.get(&key).cloned() else {
            return broken(format!("{} is new, and its owner was obeyed", name(key)));
        };
        let mut delta = Delta::default();
        let mut is_over = true;
        match action {
            Action::Finish { number, .. } => {
                if let Some((_, step)) = told.steps.last_mut() {
                    *step = StepTold::Done(number.to_be_bytes().to_vec());
                }
                is_over = false;
                if let Some(owner) = self.owners.get_mut(&key) {
                    (owner.is_open, owner.met) = (false, owner.met + 1);
                }
            }
            Action::Checkpoint { number, .. } => {
                told.point = Some((format!("point-{number}"), number.to_be_bytes().to_vec()));
                with_writes(&mut delta, key, *number);
                is_over = false;
                if let Some(owner) = self.owners.get_mut(&key) {
                    owner.is_clean = false;
                }
            }
            Action::Complete { number, writes, .. } => {
                told.complete(*number, now_ms);
                if *writes {
                    with_writes(&mut delta, key, *number);
                }
            }
            Action::Hold { .. } => told.stands = Stands::Held,
            Action::Abandon { .. } => told.stands = Stands::InFlight { nonce: None, lease_until_ms: None },
            Action::Renew { .. } => {
                if let Stands::InFlight { lease_until_ms, .. } = &mut told.stands {
                    *lease_until_ms = renewed_ms;
                }
                is_over = false;
            }
            _ => {}
        }
        if is_over && let Some(owner) = self.owners.remove(&key) {
            self.overtaken.push((key, owner.claim));
        }
        let told = if matches!(action, Action::Release { .. }) { None } else { Some(told) };
        Ok(vec![Delta { key: Some((key, told)), ..delta }])
    }

    /// An owner was refused: right only if it was overtaken.
    fn refused(&mut self, key: u64, error: Error) -> Did {
        if error.kind() != ErrorKind::Fenced {
            return Err(error.into());
        }
        let told = self.world.keys.get(&key);
        broken(format!("the owner of {} is fenced: {:?}, told {told:?}", name(key), error.present()))
    }

    fn resolve(&mut self, key: u64, how: u64, number: u64) -> Did {
        let now_ms = self.now_ms();
        let Some(mut told) = self.world.told(key, now_ms).cloned() else { return Ok(Vec::new()) };
        let (id, seen) = (id(&name(key)), told.token);
        let is_open = matches!(told.steps.last(), Some((_, StepTold::Begun)));
        let token = match how {
            0 => self.store().resolve_absent(&id, seen)?,
            1 => self.store().resolve_complete(&id, seen, outcome(number))?,
            _ => self.store().resolve_resumable(&id, seen, is_open.then(|| done(number)))?,
        };
        require(token.0 > self.world.token, || format!("token {token} after {}", self.world.token))?;
        told.token = token;
        if how == 1 {
            told.complete(number, now_ms);
        } else {
            told.stands = Stands::InFlight { nonce: None, lease_until_ms: None };
        }
        if let Some((_, step)) = told.steps.last_mut().filter(|_| how == 2 && is_open) {
            *step = StepTold::Done(number.to_be_bytes().to_vec());
        }
        let key = Some((key, (how != 0).then_some(told)));
        Ok(vec![Delta { key, token: token.0, ..Delta::default() }])
    }

    /// A writing by itself is no claim: asked again, it finds that it happened by its condition.
    fn write(&mut self, number: u64, is_again: bool) -> Did {
        let (row, value) = (format!("alone-{number}"), text(number));
        let written =
            self.store().write(&Writes::new().put_if_absent(TABLE, row.as_bytes(), value.as_bytes()))?;
        require(written.is_done() || is_again, || format!("{row} was there"))?;
        Ok(vec![Delta { rows: vec![(row, Bytes(value.into_bytes()))], ..Delta::default() }])
    }

    fn transaction(&mut self, key: u64, nonce: Nonce, number: u64) -> Did {
        let mut won = None;
        self.store().transaction::<_, Error>(|t| {
            let claim = match t.claim(&request(&name(key)).nonce(nonce))? {
                Decision::Won(claim) => claim,
                // It committed when it was in doubt.
                Decision::Replay(_) => return Ok(()),
                other => {
                    won = Some(Err(format!("{} in a transaction: {}", name(key), other.name())));
                    return Ok(());
                }
            };
            let mut own = t.open_table(OWN)?;
            let had = own.get(key).map_err(transaction_error)?.map_or(0, |row| row.value());
            own.insert(key, had.max(number)).map_err(transaction_error)?;
            drop(own);
            let _ = t.write(&row(key, number))?;
            t.complete(&claim, &outcome(number))?;
            won = Some(Ok(claim.token()));
            Ok(())
        })?;
        let found = self.store().inspect(&id(&name(key)))?;
        let token = match (won, found) {
            (Some(Err(what)), _) => return broken(what),
            (Some(Ok(token)), Some(found)) if found.token == token => token,
            (None, Some(found)) => found.token,
            (_, found) => return broken(format!("{} was completed, and is {found:?}", name(key))),
        };
        require(token.0 > self.world.token, || format!("token {token} after {}", self.world.token))?;
        let told = Told {
            generation: Generation(token.0),
            token,
            attempt: 1,
            wrote: false,
            steps: Vec::new(),
            point: None,
            stands: complete(number, self.now_ms()),
        };
        let rows = vec![(name(key), Bytes(text(number).into_bytes()))];
        Ok(vec![Delta { rows, own: Some((key, number)), ..Delta::of_key(key, Some(told)) }])
    }

    fn end_first(&mut self, is_published: bool, is_again: bool) -> Did {
        let Some(delivery) = self.leased.first().cloned() else { return Ok(Vec::new()) };
        let ending = if is_published {
            Ending::Published
        } else {
            Ending::Failed(keyclaim::outbox::PublishError::again("not now"))
        };
        let settled = self.store().outbox_end(&[(&delivery, ending)], &RelayOptions::new())?;
        let is_over = self.now_ms() >= delivery.lease_until_ms;
        let payload = String::from_utf8_lossy(delivery.event.payload()).into_owned();
        let mut delta = Delta::default();
        match settled.into_iter().next() {
            Some(Ok(Settled::Published)) => delta.published.push(payload),
            Some(Ok(Settled::Again { .. })) => {}
            Some(Err(error)) if error.kind() == ErrorKind::Fenced && is_again && is_published => {
                // Applied when it was in doubt, or leased anew since: the count tells.
                if self.store().outbox()?.events < self.world.events.len() as u64 {
                    delta.published.push(payload);
                }
            }
            Some(Err(error)) if error.kind() == ErrorKind::Fenced && (is_over || is_again) => {}
            other => return broken(format!("the end of a delivery was told {other:?}")),
        }
        self.leased.remove(0);
        Ok(vec![delta])
    }

    fn reap(&mut self, is_again: bool) -> Did {
        let now_ms = self.now_ms();
        let past: Vec<u64> =
            self.world.keys.iter().filter(|(_, told)| told.is_past(now_ms)).map(|(key, _)| *key).collect();
        let reaped = self.store().reap(&Reap::new())?;
        require(reaped.removed == past.len() as u64 || is_again, || {
            format!("{} records were removed, {} are past their horizon", reaped.removed, past.len())
        })?;
        require(reaped.reindexed + reaped.damaged + reaped.failed == 0, || format!("reaped {reaped:?}"))?;
        Ok(vec![Delta { reaped: past, ..Delta::default() }])
    }

    /// An overtaken owner is fenced, and changes nothing (P1).
    fn stale(&mut self) -> Did {
        let at = usize::try_from(self.draws.below(self.overtaken.len().max(1) as u64)).unwrap_or_default();
        let Some((key, claim)) = self.overtaken.get(at) else { return Ok(Vec::new()) };
        let is_current = self.world.keys.get(key).is_some_and(|told| told.token == claim.token());
        if is_current {
            return Ok(Vec::new());
        }
        match claim.complete_with(&outcome(0), writes(*key, 0)) {
            Err(error) if error.kind() == ErrorKind::Fenced => Ok(Vec::new()),
            Err(error) => Err(error.into()),
            Ok(told) => broken(format!("a stale owner of {} was told {told:?}", name(*key))),
        }
    }
}

impl From<Error> for Fail {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

fn claim(
    store: &Store,
    key: u64,
    nonce: Nonce,
    wanted: Option<u64>,
) -> Result<Written<Decision<Claim>>, Error> {
    let wanted = wanted.map_or_else(Writes::new, |number| writes(key, number));
    store.claim_with(&request(&name(key)).nonce(nonce), &wanted)
}

fn open_step(keys: &std::collections::BTreeMap<u64, Told>, key: u64) -> String {
    keys.get(&key).and_then(|told| told.steps.last()).map(|(name, _)| name.clone()).unwrap_or_default()
}

/// None if it was done.
fn require_done(written: &Written) -> Option<Result<Millis, String>> {
    (!written.is_done()).then(|| Err("a condition that holds conflicts".to_owned()))
}

pub(super) fn require(holds: bool, what: impl FnOnce() -> String) -> Result<(), Fail> {
    if holds { Ok(()) } else { Err(Fail::Broken(what())) }
}

pub(super) fn broken<T>(what: impl Into<String>) -> Result<T, Fail> {
    Err(Fail::Broken(what.into()))
}
