//! The model: what the design says, as plainly as it can be said. It shares no code with the library.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest_state_machine::ReferenceStateMachine;

use super::words::{Ask, Doubt, End, Ending, KEYS, Operate, Own, POLICIES, Settings};

/// Everything there is: time, the last token given out, what the keys hold, who believes to own one.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) now: u64,
    last_token: u64,
    keys: BTreeMap<u8, Record>,
    pub(super) claims: Vec<Owner>,
    /// What the last thing asked must be answered.
    pub(super) answer: String,
    /// The token that the last operator named.
    pub(super) seen: u64,
}

/// A claim object in somebody's hands.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    pub(super) key: u8,
    pub(super) token: u64,
    /// How many recorded steps it has met.
    met: usize,
    pub(super) is_alive: bool,
}

#[derive(Clone, Debug)]
struct Record {
    generation: u64,
    token: u64,
    attempt: u32,
    nonce: Option<u8>,
    /// Its attempt was ended by a command, so nobody owns it any more.
    is_ended: bool,
    payload: u8,
    settings: Settings,
    created: u64,
    applied: u64,
    point: Option<(u8, usize)>,
    steps: Vec<Step>,
    state: State,
}

#[derive(Clone, Debug)]
struct Step {
    name: u8,
    may_repeat: bool,
    /// None is: begun by the attempt with this token, and in doubt from then on.
    end: Option<End>,
    token: u64,
    until: u64,
}

#[derive(Clone, Debug)]
enum State {
    InFlight { until: Option<u64>, is_resumable: bool },
    Held { why: &'static str },
    Complete { outcome: Ending, at: u64, until: u64 },
}

impl Model {
    /// What every key holds, in words.
    pub(super) fn view(&self) -> Vec<String> {
        let all = self.keys.iter().filter(|(_, record)| !self.is_gone(record));
        all.map(|(key, record)| format!("{key}: {}", record.view())).collect()
    }

    fn claim(
        &mut self,
        key: u8,
        payload: u8,
        policy: usize,
        nonce: Option<u8>,
        token: Option<u64>,
    ) -> String {
        let (now, settings) = (self.now, POLICIES[policy]);
        let Some(record) = self.find(key) else {
            return self.win(key, payload, settings, nonce, "Fresh");
        };
        if let State::Complete { until, .. } = record.state
            && now >= until
        {
            if record.settings.refuses_after_window {
                return "expired".into();
            }
            return self.win(key, payload, settings, nonce, "ReusedAfterWindow");
        }
        if record.payload != payload {
            return "mismatch".into();
        }
        match record.state.clone() {
            State::Complete { outcome: Ending::FailureToReattempt, .. } => {
                self.win_attempt(key, settings, nonce, "Reattempt")
            }
            State::Complete { outcome, at, until } => {
                format!("replay gen {} {outcome:?} at {at} until {until}", record.generation)
            }
            State::Held { why } => format!("held {why} token {}", record.token),
            State::InFlight { until, .. }
                if !record.is_ended
                    && ((nonce.is_some() && record.nonce == nonce) || token == Some(record.token)) =>
            {
                let renewed = record.settings.lease_ms.map(|lease_ms| now + lease_ms);
                let until = until.map(|until| renewed.unwrap_or(until).max(until));
                record.state = State::InFlight { until, is_resumable: false };
                self.tell(key, "Again")
            }
            State::InFlight { until: None, .. } => "in flight for 1000 until None".into(),
            State::InFlight { until: Some(until), .. } if now < until => {
                format!("in flight for {} until {:?}", (until - now).min(1_000), Some(until))
            }
            State::InFlight { is_resumable, .. } => {
                if is_resumable || record.has_recorded() || record.settings.reruns {
                    return self.win_attempt(key, settings, nonce, "Takeover");
                }
                record.state = State::Held { why: "Abandoned" };
                record.applied = now;
                format!("held Abandoned token {}", record.token)
            }
        }
    }

    fn win(&mut self, key: u8, payload: u8, settings: Settings, nonce: Option<u8>, kind: &str) -> String {
        let (now, token) = (self.now, self.next_token());
        let until = settings.lease_ms.map(|lease_ms| now + lease_ms);
        let state = State::InFlight { until, is_resumable: false };
        let record = Record {
            generation: token,
            token,
            attempt: 1,
            nonce,
            is_ended: false,
            payload,
            settings,
            created: now,
            applied: now,
            point: None,
            steps: Vec::new(),
            state,
        };
        self.keys.insert(key, record);
        self.tell(key, kind)
    }

    fn win_attempt(&mut self, key: u8, settings: Settings, nonce: Option<u8>, kind: &str) -> String {
        let (now, token) = (self.now, self.next_token());
        let record = self.keys.get_mut(&key).expect("an attempt follows another");
        record.token = token;
        record.attempt += 1;
        record.nonce = nonce;
        record.is_ended = false;
        record.settings.lease_ms = settings.lease_ms;
        record.applied = now;
        let until = settings.lease_ms.map(|lease_ms| now + lease_ms);
        record.state = State::InFlight { until, is_resumable: false };
        self.tell(key, kind)
    }

    /// Hands the win out: from now on nobody else owns this token.
    fn tell(&mut self, key: u8, kind: &str) -> String {
        let record = &self.keys[&key];
        let token = record.token;
        self.claims.iter_mut().filter(|owner| owner.token == token).for_each(|owner| owner.is_alive = false);
        self.claims.push(Owner { key, token, met: 0, is_alive: true });
        let State::InFlight { until, .. } = record.state else { panic!("only what runs is handed out") };
        let steps: Vec<_> = record.steps.iter().map(Step::view).collect();
        format!(
            "won {kind} token {token} gen {} attempt {} until {until:?} point {:?} steps {steps:?}",
            record.generation,
            record.attempt,
            record.point.map(|(name, _)| name),
        )
    }

    fn own(&mut self, claim: usize, act: &Own) -> String {
        let now = self.now;
        let Owner { key, token, met, .. } = self.claims[claim];
        let Some(record) = self.find(key) else {
            return if matches!(act, Own::Release) { "ok".into() } else { "FENCED absent".into() };
        };
        let may_say = match record.state {
            State::InFlight { .. } => true,
            State::Held { .. } => matches!(act, Own::Complete { .. } | Own::Finish { .. } | Own::Hold),
            State::Complete { .. } => false,
        };
        if record.token != token || !may_say {
            return format!("FENCED {}", record.present());
        }
        match act {
            Own::Renew { lease_ms } => return record.renew(*lease_ms, now),
            Own::Begin { step, limit_ms, doubt } => {
                let (answer, met) = record.begin(*step, *limit_ms, *doubt, met, now);
                self.claims[claim].met = met;
                return answer;
            }
            Own::Finish { step, end } => {
                if !record.finish(Some(*step), *end) {
                    return "INVALID".into();
                }
                record.applied = now;
                self.claims[claim].met += usize::from(*end != End::NotSent);
                return "ok".into();
            }
            Own::Checkpoint { .. } | Own::Complete { .. } if record.open_until().is_some() => {
                return "INVALID".into();
            }
            // Steps were recorded that this attempt never met: another handler than the one before.
            Own::Checkpoint { .. } | Own::Complete { .. }
                if met.max(record.covered()) < record.steps.len() =>
            {
                return record.steps_changed(now);
            }
            Own::Checkpoint { point } => record.point = Some((*point, record.steps.len())),
            Own::Complete { outcome } => record.complete(*outcome, now),
            Own::Release if record.attempt == 1 && !record.has_recorded() => {
                self.keys.remove(&key);
                return "ok".into();
            }
            Own::Release | Own::Abandon => {
                let until = now.max(record.open_until().unwrap_or(0));
                record.state = State::InFlight { until: Some(until), is_resumable: false };
                record.is_ended = true;
            }
            Own::Hold if record.is_held() => {}
            Own::Hold => record.state = State::Held { why: "Owner" },
        }
        record.applied = now;
        "ok".into()
    }

    fn operate(&mut self, key: u8, act: &Operate, is_stale: bool) -> String {
        let (now, token) = (self.now, self.last_token + 1);
        let Some(record) = self.find(key) else { return "FENCED absent".into() };
        if is_stale {
            return format!("FENCED {}", record.present());
        }
        let is_held = record.is_held();
        match act {
            Operate::Forget => drop(self.keys.remove(&key)),
            Operate::Extend { ms } => match &mut record.state {
                State::Complete { until, .. } if now < *until => *until = (*until).max(now + ms),
                _ => return "INVALID".into(),
            },
            _ if !is_held => return "INVALID".into(),
            Operate::Absent => drop(self.keys.remove(&key)),
            Operate::Complete { outcome } => record.complete(*outcome, now),
            Operate::Resumable { step } => {
                if let Some(end) = step
                    && !record.finish(None, *end)
                {
                    return "INVALID".into();
                }
                let until = now.max(record.open_until().unwrap_or(0));
                record.state = State::InFlight { until: Some(until), is_resumable: true };
            }
        }
        self.last_token = token;
        if let Some(record) = self.keys.get_mut(&key) {
            (record.token, record.is_ended, record.applied) = (token, true, now);
        }
        format!("token {token}")
    }

    /// The token that an operator saw: the current one, unless it is a stale one.
    fn seen(&self, key: u8, is_stale: bool) -> u64 {
        let current = self.keys.get(&key).map_or(1, |record| record.token);
        if is_stale { current - 1 } else { current }
    }

    /// The instants at which something about this key ends.
    fn deadlines(&self, key: u8) -> Vec<u64> {
        let Some(record) = self.keys.get(&key) else { return Vec::new() };
        let mut all: Vec<u64> = record.open_until().into_iter().collect();
        match record.state {
            State::InFlight { until, .. } => all.extend(until),
            State::Complete { until, .. } => all.extend([until, record.horizon()]),
            State::Held { .. } => {}
        }
        all.retain(|at| *at > self.now);
        all
    }

    fn find(&mut self, key: u8) -> Option<&mut Record> {
        if self.keys.get(&key).is_some_and(|record| self.is_gone(record)) {
            self.keys.remove(&key);
        }
        self.keys.get_mut(&key)
    }

    /// A finished record past its horizon counts as absent.
    fn is_gone(&self, record: &Record) -> bool {
        matches!(record.state, State::Complete { .. }) && self.now >= record.horizon()
    }

    fn next_token(&mut self) -> u64 {
        self.last_token += 1;
        self.last_token
    }

    /// The step that this owner comes to next, and the one it has begun, if it has.
    fn next_steps(&self, claim: usize) -> (u8, Option<u8>) {
        let Owner { key, met, .. } = self.claims[claim];
        let Some(record) = self.keys.get(&key) else { return (0, None) };
        let new = (0..3).find(|name| record.steps.iter().all(|step| step.name != *name)).unwrap_or(0);
        let next = record.steps.get(met).map_or(new, |step| step.name);
        let open = record.steps.last().filter(|step| step.end.is_none() && step.token == record.token);
        (next, open.map(|step| step.name))
    }

    /// Whether this claim's attempt runs and is the current one.
    fn owns(&self, claim: usize) -> bool {
        let Owner { key, token, .. } = self.claims[claim];
        let record = self.keys.get(&key).filter(|record| record.token == token);
        record.is_some_and(|record| matches!(record.state, State::InFlight { .. }))
    }

    fn alive(&self) -> Vec<usize> {
        (0..self.claims.len()).filter(|at| self.claims[*at].is_alive).collect()
    }
}

impl Record {
    fn has_recorded(&self) -> bool {
        self.point.is_some() || !self.steps.is_empty()
    }

    fn is_held(&self) -> bool {
        matches!(self.state, State::Held { .. })
    }

    fn covered(&self) -> usize {
        self.point.map_or(0, |(_, covered)| covered)
    }

    fn open_until(&self) -> Option<u64> {
        self.steps.last().filter(|step| step.end.is_none()).map(|step| step.until)
    }

    fn horizon(&self) -> u64 {
        let horizon = self.applied + self.settings.horizon_ms;
        if let State::Complete { until, .. } = self.state { horizon.max(until) } else { horizon }
    }

    fn renew(&mut self, asked_ms: Option<u64>, now: u64) -> String {
        if let State::InFlight { until, .. } = self.state
            && self.is_ended
            && asked_ms.is_none()
        {
            return format!("lease until {until:?}");
        }
        self.settings.lease_ms = asked_ms.or(self.settings.lease_ms);
        let open_until = self.open_until().unwrap_or(0);
        let renewed = self.settings.lease_ms.map(|lease_ms| (now + lease_ms).max(open_until));
        if let State::InFlight { until, .. } = &mut self.state {
            *until = match (renewed, *until) {
                (Some(renewed), Some(until)) if asked_ms.is_none() => Some(renewed.max(until)),
                (renewed, until) => renewed.or(until),
            };
            return format!("lease until {until:?}");
        }
        unreachable!("only what runs is renewed")
    }

    fn complete(&mut self, outcome: Ending, now: u64) {
        if matches!(outcome, Ending::Success { .. }) {
            self.steps.clear();
            self.point = None;
        }
        self.state = State::Complete { outcome, at: now, until: now + self.settings.window_ms };
    }

    /// Recorded steps are met in their order, from the start or from the recovery point.
    fn begin(&mut self, name: u8, limit: u64, doubt: Doubt, met: usize, now: u64) -> (String, usize) {
        let starts = [met, met.max(self.covered())];
        let is_named = |at: &usize| self.steps.get(*at).is_some_and(|step| step.name == name);
        let is_known = self.steps.iter().any(|step| step.name == name);
        if let Some(at) = starts.into_iter().find(is_named) {
            return self.meet(at, limit, doubt, met, now);
        }
        if is_known || !starts.contains(&self.steps.len()) {
            return (self.steps_changed(now), met);
        }
        let (may_repeat, at) = (doubt == Doubt::Repeat, self.steps.len());
        self.steps.push(Step { name, may_repeat, end: None, token: self.token, until: 0 });
        (self.run(at, limit, now), at)
    }

    /// What becomes of a step that was begun before.
    fn meet(&mut self, at: usize, limit: u64, doubt: Doubt, met: usize, now: u64) -> (String, usize) {
        let step = &self.steps[at];
        if let Some(end) = step.end {
            return (format!("{end:?} place {at} result"), at + 1);
        }
        let is_mine = step.token == self.token;
        match doubt {
            Doubt::Repeat if step.may_repeat && (is_mine || now >= step.until) => {
                (self.run(at, limit, now), at)
            }
            Doubt::Repeat if step.may_repeat => (format!("settling until {}", step.until), met),
            Doubt::Reconcile { settle_ms } if now < step.until + settle_ms => {
                (format!("settling until {}", step.until + settle_ms), met)
            }
            Doubt::Reconcile { .. } => (format!("reconcile place {at}"), at),
            Doubt::Repeat | Doubt::Hold => {
                self.state = State::Held { why: "StepInDoubt" };
                self.applied = now;
                ("held StepInDoubt".into(), met)
            }
        }
    }

    fn run(&mut self, at: usize, limit: u64, now: u64) -> String {
        let step_until = now + limit;
        (self.steps[at].token, self.steps[at].until, self.applied) = (self.token, step_until, now);
        if let State::InFlight { until: Some(until), .. } = &mut self.state {
            *until = (*until).max(step_until);
        }
        format!("run place {at} until {step_until}")
    }

    fn finish(&mut self, name: Option<u8>, end: End) -> bool {
        let Some(step) = self.steps.last_mut().filter(|step| step.end.is_none()) else { return false };
        if name.is_some_and(|name| name != step.name) {
            return false;
        }
        step.end = Some(end);
        if end == End::NotSent {
            self.steps.pop();
        }
        true
    }

    fn steps_changed(&mut self, now: u64) -> String {
        self.state = State::Held { why: "StepsChanged" };
        self.applied = now;
        "INVALID".into()
    }

    fn present(&self) -> String {
        let state = match self.state {
            State::InFlight { .. } => "in flight",
            State::Held { .. } => "held",
            State::Complete { .. } => "complete",
        };
        format!("{state} with token {}", self.token)
    }

    fn view(&self) -> String {
        let state = match self.state {
            State::InFlight { until, .. } => format!("in flight until {until:?}"),
            State::Held { why } => format!("held {why}"),
            State::Complete { outcome, at, until } => {
                let (class, len) = match outcome {
                    Ending::Success { body_len } => ("success", body_len),
                    Ending::Failure => ("failure", 2),
                    Ending::FailureToReattempt => ("failure to reattempt", 2),
                };
                format!("complete {class} len {len} at {at} until {until}")
            }
        };
        format!(
            "{state} token {} gen {} attempt {} created {} applied {} horizon {} point {:?} steps {:?}",
            self.token,
            self.generation,
            self.attempt,
            self.created,
            self.applied,
            self.horizon(),
            self.point.map(|(name, _)| name),
            self.steps.iter().map(Step::view).collect::<Vec<_>>(),
        )
    }
}

impl Step {
    fn view(&self) -> String {
        match self.end {
            None => format!("{} begun until {}", self.name, self.until),
            Some(end) => format!("{} {end:?}", self.name),
        }
    }
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Ask;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self::default()).boxed()
    }

    fn transitions(model: &Self) -> BoxedStrategy<Ask> {
        let alive = model.alive();
        let some_claim = if alive.is_empty() {
            Just(None).boxed()
        } else {
            // Mostly those who own their key now; the others are stale, and told so.
            let owners: Vec<_> = alive.iter().copied().filter(|at| model.owns(*at)).collect();
            let owners = if owners.is_empty() { alive.clone() } else { owners };
            prop_oneof![6 => prop::sample::select(owners), 1 => prop::sample::select(alive)]
                .prop_map(Some)
                .boxed()
        };
        let claim =
            (0..KEYS, 0..8_u8, 0..POLICIES.len(), prop::option::weighted(0.3, 0..2_u8), some_claim.clone())
                .prop_flat_map(|(key, payload, policy, nonce, owner)| {
                    prop::bool::weighted(0.2).prop_map(move |with_token| Ask::Claim {
                        key,
                        // Seven of eight ask for the same.
                        payload: payload / 7,
                        policy,
                        nonce,
                        token_of: owner.filter(|_| with_token),
                    })
                });
        let time = prop_oneof![
            1 => (0_u64..1_500).prop_map(|ms| Ask::Advance { ms }),
            3 => (0..KEYS, 0..2_usize, 0..2_u64)
                .prop_map(|(key, deadline, before)| Ask::AdvanceTo { key, deadline, before }),
        ];
        // Whoever is asked to resolve looks at what is held.
        let held: Vec<_> =
            model.keys.iter().filter(|(_, record)| record.is_held()).map(|(key, _)| *key).collect();
        let resolves = if held.is_empty() { 2 } else { 8 };
        let keys = if held.is_empty() { (0..KEYS).collect() } else { held };
        let keys = prop_oneof![4 => prop::sample::select(keys), 1 => 0..KEYS];
        let operate = (keys, any_operate(), prop::bool::weighted(0.2))
            .prop_map(|(key, act, is_stale)| Ask::Operate { key, act, is_stale });
        let hints: Vec<_> = (0..model.claims.len()).map(|claim| model.next_steps(claim)).collect();
        let own = (some_claim, prop::bool::weighted(0.05), claim.clone()).prop_flat_map(
            move |(owner, drops, claim)| match owner {
                Some(claim) if drops => Just(Ask::Drop { claim }).boxed(),
                Some(claim) => any_own(hints[claim]).prop_map(move |act| Ask::Own { claim, act }).boxed(),
                None => Just(claim).boxed(),
            },
        );
        prop_oneof![8 => claim, 18 => own, 4 => time, resolves => operate, 1 => Just(Ask::Restart)].boxed()
    }

    fn preconditions(model: &Self, ask: &Ask) -> bool {
        let is_alive = |at: &usize| model.claims.get(*at).is_some_and(|owner| owner.is_alive);
        match ask {
            Ask::Own { claim, .. } | Ask::Drop { claim } => is_alive(claim),
            Ask::Claim { token_of, .. } => token_of.as_ref().is_none_or(is_alive),
            _ => true,
        }
    }

    fn apply(mut model: Self, ask: &Ask) -> Self {
        model.answer = match ask {
            Ask::Claim { key, payload, policy, nonce, token_of } => {
                let token = token_of.map(|at| model.claims[at].token);
                model.claim(*key, *payload, *policy, *nonce, token)
            }
            Ask::Own { claim, act } => model.own(*claim, act),
            Ask::Operate { key, act, is_stale } => {
                model.seen = model.seen(*key, *is_stale);
                model.operate(*key, act, *is_stale)
            }
            Ask::Drop { claim } => {
                model.claims[*claim].is_alive = false;
                String::new()
            }
            Ask::Advance { ms } => {
                model.now += ms;
                String::new()
            }
            Ask::AdvanceTo { key, deadline, before } => {
                let deadlines = model.deadlines(*key);
                let at = deadlines.get(deadline % deadlines.len().max(1)).map_or(model.now, |at| at - before);
                model.now = model.now.max(at);
                String::new()
            }
            Ask::Restart => {
                model.claims.iter_mut().for_each(|owner| owner.is_alive = false);
                String::new()
            }
        };
        model
    }
}

/// Half of all steps are those that a handler would come to next; the others are mistakes.
fn any_own((next, begun): (u8, Option<u8>)) -> BoxedStrategy<Own> {
    let next = prop_oneof![4 => Just(next), 1 => 0..3_u8];
    let open = prop_oneof![6 => Just(begun.unwrap_or(0)), 1 => 0..3_u8];
    let (begins, finishes) = if begun.is_some() { (2, 12) } else { (9, 1) };
    let doubt = prop_oneof![
        3 => Just(Doubt::Repeat),
        2 => Just(Doubt::Reconcile { settle_ms: 200 }),
        2 => Just(Doubt::Reconcile { settle_ms: 0 }),
        1 => Just(Doubt::Hold),
    ];
    prop_oneof![
        1 => prop::option::of(prop::sample::select(vec![1, 700, 3_000]))
            .prop_map(|lease_ms| Own::Renew { lease_ms }),
        2 => (0..2_u8).prop_map(|point| Own::Checkpoint { point }),
        begins => (next, prop::sample::select(vec![100, 900, 2_500]), doubt)
            .prop_map(|(step, limit_ms, doubt)| Own::Begin { step, limit_ms, doubt }),
        finishes => (open, any_end()).prop_map(|(step, end)| Own::Finish { step, end }),
        3 => any_ending().prop_map(|outcome| Own::Complete { outcome }),
        1 => Just(Own::Release),
        3 => Just(Own::Abandon),
        1 => Just(Own::Hold),
    ]
    .boxed()
}

fn any_operate() -> BoxedStrategy<Operate> {
    prop_oneof![
        any_ending().prop_map(|outcome| Operate::Complete { outcome }),
        Just(Operate::Absent),
        prop::option::of(any_end()).prop_map(|step| Operate::Resumable { step }),
        Just(Operate::Forget),
        prop::sample::select(vec![1, 6_000]).prop_map(|ms| Operate::Extend { ms }),
    ]
    .boxed()
}

fn any_end() -> impl Strategy<Value = End> + Clone {
    prop_oneof![2 => Just(End::Done), 2 => Just(End::Refused), 1 => Just(End::NotSent)]
}

fn any_ending() -> impl Strategy<Value = Ending> + Clone {
    prop_oneof![
        prop::sample::select(vec![0, 5, 20_000]).prop_map(|body_len| Ending::Success { body_len }),
        Just(Ending::Failure),
        Just(Ending::FailureToReattempt),
    ]
}
