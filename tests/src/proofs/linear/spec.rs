//! What a key may answer, one command at a time: written from the documentation, and calling nothing of the store.
//!
//! The rules compare store time with deadlines, and the store time at which a call was decided is known only to lie
//! within the call, and by what answers tell. So times are spans. What a call that was told nothing has left behind,
//! its token and its lease, is a span as well, until an answer shows it. Nothing is said about the times of two
//! calls that overlap: a commit's time is that of its beginning, and a look beside it may be later and see what was
//! before.

use std::time::Duration;

use keyclaim::{Abandoned, Policy};

use super::history::{Act, Answer, Kind, Look, Op, Operation, Stands};

/// The lengths that the policy of the histories sets.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Rules {
    /// Of a lease.
    pub lease_ms: u64,
    /// From completion.
    pub window_ms: u64,
    /// From completion: then the key is new.
    pub horizon_ms: u64,
}

impl Rules {
    /// The policy that sets them.
    ///
    /// # Panics
    /// If a length is out of bounds.
    pub fn policy(self) -> Policy {
        Policy::new(Abandoned::Rerun)
            .lease(Duration::from_millis(self.lease_ms))
            .and_then(|policy| policy.replay_window(Duration::from_millis(self.window_ms)))
            .and_then(|policy| policy.reaper_horizon(Duration::from_millis(self.horizon_ms)))
            .expect("in bounds")
    }
}

/// A number that is known to lie in here, both ends included.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Span {
    low: u64,
    high: u64,
}

/// One key between two commands.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Spec {
    rules: Rules,
    /// The highest token that was given out here, at least.
    token_top: u64,
    state: State,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum State {
    New,
    Used(Record),
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Record {
    token: Span,
    generation: Span,
    attempt: u32,
    payload: u8,
    point: Option<u64>,
    /// The current attempt's last command.
    last: Option<u64>,
    state: Progress,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Progress {
    InFlight { nonce: Option<u64>, until: Span },
    Held,
    Complete { body: u64, at: Span },
}

impl Span {
    fn exact(number: u64) -> Self {
        Self { low: number, high: number }
    }

    fn above(number: u64) -> Self {
        Self { low: number + 1, high: u64::MAX }
    }

    fn plus(self, by: u64) -> Self {
        Self { low: self.low + by, high: self.high.saturating_add(by) }
    }

    fn has(self, number: u64) -> bool {
        (self.low..=self.high).contains(&number)
    }

    /// Whether it must be this number: a token that nobody was told is nobody's.
    fn is(self, number: u64) -> bool {
        self == Self::exact(number)
    }
}

impl Spec {
    /// A key that was never used.
    pub fn new(rules: Rules) -> Self {
        Self { rules, token_top: 0, state: State::New }
    }

    /// What the key may be after this operation; nothing if it cannot have been told what it was told here. One
    /// that was told nothing is asked for what it left behind if it took effect.
    pub fn after(&self, operation: &Operation) -> Vec<Self> {
        let at = At { spec: self.clone(), now_ms: operation.from_ms, to_ms: operation.to_ms };
        match (&operation.op, &operation.answer) {
            (op, Answer::Unknown) => at.left_by(op),
            (Op::Claim { nonce, payload }, answer) => {
                at.claimed(*nonce, *payload, answer).into_iter().collect()
            }
            (Op::Own { token, number, act }, answer) => {
                at.said(*token, *number, *act, answer).into_iter().collect()
            }
            (Op::Resolve { seen, absent }, answer) => {
                at.resolved(*seen, *absent, answer).into_iter().collect()
            }
            (Op::Inspect, Answer::Seen(look)) => at.seen(look.as_ref()).into_iter().collect(),
            (Op::Inspect | Op::RenewLate { .. }, _) => Vec::new(),
        }
    }
}

/// The key at the earliest time of a decision that must have been made by `to_ms`.
struct At {
    spec: Spec,
    now_ms: u64,
    to_ms: u64,
}

impl At {
    /// The decision was made at this time or later.
    fn from(mut self, ms: u64) -> Option<Self> {
        self.now_ms = self.now_ms.max(ms);
        (self.now_ms <= self.to_ms).then_some(self)
    }

    /// The decision was made at exactly this time.
    fn at(self, ms: u64) -> Option<Self> {
        if ms < self.now_ms { None } else { self.from(ms) }
    }

    /// When it was decided.
    fn when(&self) -> Span {
        Span { low: self.now_ms, high: self.to_ms }
    }

    fn rules(&self) -> Rules {
        self.spec.rules
    }

    fn used(mut self, record: Record) -> Spec {
        self.spec.state = State::Used(record);
        self.spec
    }

    fn new_key(mut self) -> Spec {
        self.spec.state = State::New;
        self.spec
    }

    fn record(&self) -> Option<Record> {
        match &self.spec.state {
            State::New => None,
            State::Used(record) => Some(record.clone()),
        }
    }

    /// The token of a win or an operator, and that it is higher than all before.
    fn take_token(&mut self, token: u64) -> bool {
        let record_low = self.record().map_or(0, |record| record.token.low);
        let is_higher = token > self.spec.token_top.max(record_low);
        self.spec.token_top = self.spec.token_top.max(token);
        is_higher
    }

    fn claimed(self, nonce: u64, payload: u8, answer: &Answer) -> Option<Spec> {
        match answer {
            Answer::Won { token, generation, attempt, kind, until_ms, point } => {
                let won = Won { token: *token, generation: *generation, attempt: *attempt, point: *point };
                match kind {
                    Kind::Again => self.won_again(nonce, payload, won, *until_ms),
                    Kind::Takeover => self.taken_over(nonce, payload, won, *until_ms),
                    Kind::Fresh | Kind::Reused => self.won_new(nonce, payload, *kind, won, *until_ms),
                }
            }
            Answer::InFlight { until_ms } => {
                let mut record = self.record()?;
                let Progress::InFlight { nonce: its, until } = &mut record.state else { return None };
                let is_before = self.now_ms < *until_ms;
                if !until.has(*until_ms) || !is_before || *its == Some(nonce) || record.payload != payload {
                    return None;
                }
                *until = Span::exact(*until_ms);
                Some(self.used(record))
            }
            Answer::Replay { body, completed_ms } => {
                let mut record = self.record()?;
                let Progress::Complete { body: its, at } = &mut record.state else { return None };
                let is_in_window = self.now_ms < completed_ms + self.rules().window_ms;
                if its != body || !at.has(*completed_ms) || !is_in_window || record.payload != payload {
                    return None;
                }
                *at = Span::exact(*completed_ms);
                Some(self.used(record))
            }
            Answer::Mismatch => {
                let record = self.record()?;
                let is_used = match record.state {
                    Progress::Complete { at, .. } => {
                        self.now_ms < at.high.saturating_add(self.rules().window_ms)
                    }
                    Progress::InFlight { .. } | Progress::Held => true,
                };
                (is_used && record.payload != payload).then(|| self.used(record))
            }
            Answer::Held { token } => {
                let mut record = self.record()?;
                let is_it =
                    record.state == Progress::Held && record.payload == payload && record.token.has(*token);
                record.token = Span::exact(*token);
                is_it.then(|| self.used(record))
            }
            _ => None,
        }
    }

    fn won_new(mut self, nonce: u64, payload: u8, kind: Kind, won: Won, until_ms: u64) -> Option<Spec> {
        self = self.free(kind)?;
        let until = self.lease(until_ms)?;
        if !self.take_token(won.token) {
            return None;
        }
        let is_new = won.generation == won.token && won.attempt == 1 && won.point.is_none();
        is_new.then(|| self.used(Record::new(Span::exact(won.token), payload, nonce, until)))
    }

    /// The lease of a win that is told with this end. If its commit came late, the store lets the lease run anew
    /// before it tells: what it ended at first is not told, but others may have seen it.
    fn lease(&self, until_ms: u64) -> Option<Span> {
        let low = self.now_ms + self.rules().lease_ms;
        (low <= until_ms).then_some(Span { low, high: until_ms })
    }

    /// When a claim that is told this kind of win begins a new intent.
    fn free(self, kind: Kind) -> Option<Self> {
        let after_ms = match kind {
            Kind::Fresh => self.rules().horizon_ms,
            _ => self.rules().window_ms,
        };
        match self.spec.state {
            State::New => (kind == Kind::Fresh).then_some(self),
            State::Used(Record { state: Progress::Complete { at, .. }, .. }) => self.from(at.low + after_ms),
            State::Used(_) => None,
        }
    }

    fn won_again(mut self, nonce: u64, payload: u8, won: Won, until_ms: u64) -> Option<Spec> {
        let mut record = self.record()?;
        let anew = self.lease(until_ms)?;
        let Progress::InFlight { nonce: its, until } = &mut record.state else { return None };
        // Its lease runs anew, never shorter than before.
        *until = Span { low: until.low.max(anew.low), high: until_ms };
        let is_it = until.low <= until.high
            && *its == Some(nonce)
            && record.payload == payload
            && record.token.has(won.token)
            && (record.generation.has(won.generation) && record.attempt == won.attempt)
            && (won.attempt > 1 || won.generation == won.token)
            && record.point == won.point;
        record.token = Span::exact(won.token);
        record.generation = Span::exact(won.generation);
        self.spec.token_top = self.spec.token_top.max(won.token);
        is_it.then(|| self.used(record))
    }

    fn taken_over(mut self, nonce: u64, payload: u8, won: Won, until_ms: u64) -> Option<Spec> {
        let mut record = self.record()?;
        let Progress::InFlight { nonce: its, until } = record.state else { return None };
        self = self.from(until.low)?;
        let anew = self.lease(until_ms)?;
        let is_it = its != Some(nonce)
            && record.payload == payload
            && record.generation.has(won.generation)
            && record.attempt + 1 == won.attempt
            && record.point == won.point
            && self.take_token(won.token);
        record.take_over(Span::exact(won.token), nonce, anew);
        record.generation = Span::exact(won.generation);
        is_it.then(|| self.used(record))
    }

    fn said(self, token: u64, number: u64, act: Act, answer: &Answer) -> Option<Spec> {
        let is_release = act == Act::Release;
        let current = self.record().filter(|record| record.token.is(token));
        // Finished and past its horizon is as absent.
        let may_be_gone = match &self.spec.state {
            State::New => true,
            State::Used(record) => self.is_past_horizon(record),
        };
        let Some(mut record) = current else {
            let is_right = match answer {
                Answer::Fenced => !(is_release && self.spec.state == State::New),
                Answer::Done => is_release && may_be_gone,
                _ => false,
            };
            return is_right.then_some(self.spec);
        };
        if record.last == Some(number) {
            return (*answer == Answer::Done).then_some(self.spec);
        }
        match (act, record.state, answer) {
            (Act::Renew, Progress::InFlight { nonce, until }, Answer::Renewed { until_ms }) => {
                let lease_ms = self.rules().lease_ms;
                // After it was abandoned a renewal moves nothing.
                let moves = nonce.is_some();
                let at = if until.has(*until_ms) { self } else { self.at(until_ms.checked_sub(lease_ms)?)? };
                let is_right = !moves || (*until_ms >= at.now_ms + lease_ms && *until_ms >= until.low);
                if !is_right || (!moves && !until.has(*until_ms)) {
                    return None;
                }
                record.state = Progress::InFlight { nonce, until: Span::exact(*until_ms) };
                Some(at.used(record))
            }
            (
                Act::Release | Act::Abandon | Act::Renew | Act::Checkpoint(_),
                Progress::Held,
                Answer::Fenced,
            )
            | (_, Progress::Complete { .. }, Answer::Fenced) => Some(self.spec),
            (Act::Release, Progress::Complete { .. }, Answer::Done) if may_be_gone => Some(self.spec),
            (act, _, Answer::Done) => {
                let after = record.after(number, act, self.when())?;
                Some(match after {
                    Some(record) => self.used(record),
                    None => self.new_key(),
                })
            }
            _ => None,
        }
    }

    fn is_past_horizon(&self, record: &Record) -> bool {
        matches!(record.state, Progress::Complete { at, .. } if self.to_ms >= at.low + self.rules().horizon_ms)
    }

    fn resolved(mut self, seen: u64, absent: bool, answer: &Answer) -> Option<Spec> {
        let current = self.record().filter(|record| record.token.is(seen));
        match (current, answer) {
            (None, Answer::Fenced) => Some(self.spec),
            (Some(record), Answer::Fenced) if self.is_past_horizon(&record) => Some(self.spec),
            (Some(record), Answer::NotHeld) if record.state != Progress::Held => Some(self.spec),
            (Some(mut record), Answer::Resolved { token }) if record.state == Progress::Held => {
                if !self.take_token(*token) {
                    return None;
                }
                if absent {
                    return Some(self.new_key());
                }
                record.resume(Span::exact(*token), self.when());
                Some(self.used(record))
            }
            _ => None,
        }
    }

    fn seen(self, look: Option<&Look>) -> Option<Spec> {
        let Some(look) = look else {
            return match &self.spec.state {
                State::New => Some(self.spec),
                State::Used(record) if self.is_past_horizon(record) => Some(self.spec),
                State::Used(_) => None,
            };
        };
        let mut record = self.record()?;
        let is_it = record.token.has(look.token)
            && record.generation.has(look.generation)
            && (record.attempt, record.point) == (look.attempt, look.point);
        record.token = Span::exact(look.token);
        record.generation = Span::exact(look.generation);
        let (is_state, state) = match (record.state, look.stands) {
            (Progress::InFlight { nonce, until }, Stands::InFlight(until_ms)) => {
                (until.has(until_ms), Progress::InFlight { nonce, until: Span::exact(until_ms) })
            }
            (Progress::Held, Stands::Held) => (true, Progress::Held),
            (Progress::Complete { body, at }, Stands::Complete(at_ms)) => {
                (at.has(at_ms), Progress::Complete { body, at: Span::exact(at_ms) })
            }
            (state, _) => (false, state),
        };
        record.state = state;
        (is_it && is_state).then(|| self.used(record))
    }

    /// What a command that was told nothing may have left behind.
    fn left_by(self, op: &Op) -> Vec<Spec> {
        match op {
            Op::Claim { nonce, payload } => self.left_by_claim(*nonce, *payload),
            Op::Own { token, number, act } => {
                let Some(record) = self.record().filter(|record| record.token.is(*token)) else {
                    return Vec::new();
                };
                if record.last == Some(*number) {
                    return Vec::new();
                }
                if let (Act::Renew, Progress::InFlight { nonce: Some(nonce), .. }) = (act, record.state) {
                    return self.left_by_renewal(nonce);
                }
                match record.after(*number, *act, self.when()) {
                    Some(Some(record)) => vec![self.used(record)],
                    Some(None) => vec![self.new_key()],
                    None => Vec::new(),
                }
            }
            Op::Resolve { seen, absent } => {
                let held =
                    self.record().filter(|record| record.token.is(*seen) && record.state == Progress::Held);
                match held {
                    None => Vec::new(),
                    Some(_) if *absent => vec![self.new_key()],
                    Some(mut record) => {
                        record.resume(Span::above(*seen), self.when());
                        vec![self.used(record)]
                    }
                }
            }
            Op::RenewLate { nonce } => self.left_by_renewal(*nonce),
            Op::Inspect => Vec::new(),
        }
    }

    /// The lease of the attempt that this nonce has won runs anew, never shorter than before.
    fn left_by_renewal(self, nonce: u64) -> Vec<Spec> {
        let Some(mut record) = self.record() else { return Vec::new() };
        let Progress::InFlight { nonce: its, until } = &mut record.state else { return Vec::new() };
        if *its != Some(nonce) {
            return Vec::new();
        }
        let anew = self.when().plus(self.rules().lease_ms);
        *until = Span { low: until.low.max(anew.low), high: until.high.max(anew.high) };
        vec![self.used(record)]
    }

    fn left_by_claim(self, nonce: u64, payload: u8) -> Vec<Spec> {
        let rules = self.rules();
        let token_low = self.spec.token_top.max(self.record().map_or(0, |record| record.token.low));
        let new = |at: Self| {
            let until = at.when().plus(rules.lease_ms);
            at.used(Record::new(Span::above(token_low), payload, nonce, until))
        };
        let Some(mut record) = self.record() else { return vec![new(self)] };
        match record.state {
            Progress::Complete { at, .. } => {
                self.from(at.low + rules.window_ms).map(new).into_iter().collect()
            }
            _ if record.payload != payload => Vec::new(),
            Progress::Held => Vec::new(),
            Progress::InFlight { nonce: Some(its), .. } if its == nonce => self.left_by_renewal(nonce),
            Progress::InFlight { until, .. } => {
                let Some(at) = self.from(until.low) else { return Vec::new() };
                record.take_over(Span::above(token_low), nonce, at.when().plus(rules.lease_ms));
                vec![at.used(record)]
            }
        }
    }
}

/// What a win tells besides its kind and its lease.
#[derive(Clone, Copy)]
struct Won {
    token: u64,
    generation: u64,
    attempt: u32,
    point: Option<u64>,
}

impl Record {
    fn new(token: Span, payload: u8, nonce: u64, until: Span) -> Self {
        let state = Progress::InFlight { nonce: Some(nonce), until };
        Self { token, generation: token, attempt: 1, payload, point: None, last: None, state }
    }

    fn take_over(&mut self, token: Span, nonce: u64, until: Span) {
        self.attempt += 1;
        (self.token, self.last) = (token, None);
        self.state = Progress::InFlight { nonce: Some(nonce), until };
    }

    /// As a person lets the next claim go on with it, at once.
    fn resume(&mut self, token: Span, when: Span) {
        (self.token, self.last) = (token, None);
        self.state = Progress::InFlight { nonce: None, until: when };
    }

    /// What the owner's command leaves, if it is obeyed: a record or a new key.
    #[allow(clippy::option_option, reason = "refused, gone, or there")]
    fn after(mut self, number: u64, act: Act, when: Span) -> Option<Option<Self>> {
        self.last = Some(number);
        self.state = match (act, self.state) {
            (Act::Checkpoint(point), state @ Progress::InFlight { .. }) => {
                self.point = Some(point);
                state
            }
            (Act::Complete(body), Progress::InFlight { .. } | Progress::Held) => {
                self.point = None;
                Progress::Complete { body, at: when }
            }
            (Act::Hold, Progress::InFlight { .. } | Progress::Held) => Progress::Held,
            (Act::Release, Progress::InFlight { .. }) if self.attempt == 1 && self.point.is_none() => {
                return Some(None);
            }
            (Act::Release | Act::Abandon, Progress::InFlight { .. }) => {
                Progress::InFlight { nonce: None, until: when }
            }
            _ => return None,
        };
        Some(Some(self))
    }
}
