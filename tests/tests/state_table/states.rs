//! The states of the table, written out: what is stored, and which deadlines matter.

use keyclaim::machine::{
    Applied, Blob, Body, DropReason, HoldReason, OutcomeClass, Point, Record, State, Step, StepProgress,
};
use keyclaim::{Abandoned, AfterFailure, AfterWindow, Generation, Millis, Token};
use keyclaim_tests::machine_kit::{
    HORIZON, LEASE, LIMIT, SETTLE, T0, WINDOW, bytes, nonce, outcome, policy, print,
};

/// The current token of every record.
pub(crate) const OWN: u64 = 7;
/// The token that the next win gets.
pub(crate) const NEXT: u64 = 9;
/// For how long after the last try the next one waits.
pub(crate) const PAUSED: u64 = 1_234;
/// The nonce of the current attempt.
pub(crate) const OWN_NONCE: u8 = 7;
/// The number and the digest of the last command applied, where there is one.
pub(crate) const LAST: Applied = Applied { seq: 2, digest: [2; 16] };

/// A state by its name.
pub(crate) struct Situation {
    pub(crate) name: &'static str,
    pub(crate) record: Option<Record>,
    /// Before this instant the record cannot be in this state.
    pub(crate) from_ms: u64,
    pub(crate) deadlines: Vec<(&'static str, u64)>,
}

impl Situation {
    /// Just before, at and just after every deadline.
    pub(crate) fn instants(&self) -> Vec<u64> {
        let around = self.deadlines.iter().flat_map(|(_, at)| [at - 1, *at, at + 1]);
        let mut instants: Vec<u64> = around.chain([self.from_ms]).filter(|at| *at >= self.from_ms).collect();
        instants.sort_unstable();
        instants.dedup();
        instants
    }

    /// When the named deadline of this state is; one that it does not have never comes.
    pub(crate) fn deadline(&self, name: &str) -> u64 {
        self.deadlines.iter().find(|(known, _)| *known == name).map_or(u64::MAX, |(_, at)| *at)
    }

    pub(crate) fn told(&self, now_ms: u64) -> String {
        let near = self.deadlines.iter().find(|(_, at)| now_ms.abs_diff(*at) <= 1);
        near.map_or_else(
            || format!("T0+{}", now_ms - T0),
            |(name, at)| match now_ms.cmp(at) {
                std::cmp::Ordering::Less => format!("{name}-1"),
                std::cmp::Ordering::Equal => (*name).to_owned(),
                std::cmp::Ordering::Greater => format!("{name}+1"),
            },
        )
    }
}

pub(crate) fn all() -> Vec<Situation> {
    let mut all = vec![Situation { name: "absent", record: None, from_ms: T0, deadlines: vec![] }];
    for (rerun, hold, change) in IN_FLIGHT {
        all.push(in_flight(rerun, Abandoned::Rerun, *change));
        all.push(in_flight(hold, Abandoned::Hold, *change));
    }
    all.push(held("held.free", HoldReason::Owner, None));
    all.push(held("held.open", HoldReason::StepInDoubt, Some(open(OWN, false))));
    all.push(held("held.tried", HoldReason::TriedTooOften, None));
    for (reuse, refuse, class, is_tombstone) in COMPLETE {
        all.push(complete(reuse, AfterWindow::Reuse, *class, *is_tombstone));
        all.push(complete(refuse, AfterWindow::Refuse, *class, *is_tombstone));
    }
    all
}

/// The static name of a state.
pub(crate) fn name(name: &str) -> &'static str {
    all().iter().find(|state| state.name == name).expect("select() found it").name
}

type Change = fn(&mut Record);

/// What an attempt in flight can look like, each under both abandoned policies.
const IN_FLIGHT: &[(&str, &str, Change)] = &[
    ("free.rerun", "free.hold", |_| {}),
    ("endless.rerun", "endless.hold", endless),
    ("endpoint.rerun", "endpoint.hold", |record| {
        endless(record);
        recorded(record);
    }),
    ("bare.rerun", "bare.hold", |record| (record.operation, record.request) = (None, None)),
    ("point.rerun", "point.hold", recorded),
    ("wrote.rerun", "wrote.hold", |record| record.wrote = true),
    ("second.rerun", "second.hold", second),
    ("ended.rerun", "ended.hold", |record| {
        (record.nonce, record.last) = (None, Some(LAST));
        record.state = State::InFlight { lease_until_ms: Some(Millis(T0)), resumable: false };
    }),
    ("ended.paused.rerun", "ended.paused.hold", |record| {
        second(record);
        (record.attempt, record.nonce, record.last) = (3, None, Some(LAST));
        (record.tries, record.pause_ms) = (2, Millis(PAUSED));
        record.state = State::InFlight { lease_until_ms: Some(Millis(T0)), resumable: false };
    }),
    ("resumable.rerun", "resumable.hold", |record| {
        second(record);
        record.nonce = None;
        record.state = State::InFlight { lease_until_ms: Some(Millis(T0)), resumable: true };
    }),
    ("done.rerun", "done.hold", |record| {
        record.last = Some(LAST);
        record.steps = vec![paid()];
    }),
    ("open.rerun.safe", "open.hold.safe", |record| {
        record.last = Some(LAST);
        record.steps = vec![open(OWN, true)];
    }),
    ("open.rerun.once", "open.hold.once", |record| {
        record.last = Some(LAST);
        record.steps = vec![open(OWN, false)];
    }),
    ("left.rerun.safe", "left.hold.safe", |record| {
        second(record);
        record.steps = vec![open(5, true)];
    }),
    ("left.rerun.once", "left.hold.once", |record| {
        second(record);
        record.steps = vec![open(5, false)];
    }),
];

/// What a finished request can look like, each under both choices for after its window.
const COMPLETE: &[(&str, &str, OutcomeClass, bool)] = &[
    ("success.reuse", "success.refuse", OutcomeClass::Success, false),
    ("tombstone.reuse", "tombstone.refuse", OutcomeClass::Success, true),
    ("failure.reuse", "failure.refuse", OutcomeClass::Failure(AfterFailure::Replay), false),
    ("retry.reuse", "retry.refuse", OutcomeClass::Failure(AfterFailure::Reattempt), false),
];

fn in_flight(name: &'static str, abandoned: Abandoned, change: Change) -> Situation {
    let mut record = base(abandoned);
    change(&mut record);
    let State::InFlight { lease_until_ms, .. } = record.state else { unreachable!("in flight") };
    let mut deadlines = vec![("horizon", T0 + HORIZON)];
    if let Some(until_ms) = lease_until_ms {
        deadlines.push(("lease", until_ms.0));
    }
    if record.pause_ms > Millis(0) {
        deadlines.push(("pause", T0 + record.pause_ms.0));
    }
    if let Some((_, until_ms)) = record.open_step() {
        deadlines.extend([("limit", until_ms.0), ("settle", until_ms.0 + SETTLE)]);
    }
    Situation { name, record: Some(record), from_ms: T0 + 1, deadlines }
}

fn held(name: &'static str, reason: HoldReason, step: Option<Step>) -> Situation {
    let mut record = base(Abandoned::Hold);
    if reason == HoldReason::TriedTooOften {
        (record.tries, record.pause_ms) = (3, Millis(PAUSED));
    }
    record.last = Some(LAST);
    record.steps.extend(step);
    record.state = State::Held { reason };
    let mut deadlines = vec![("horizon", T0 + HORIZON)];
    if let Some((_, until_ms)) = record.open_step() {
        deadlines.extend([("limit", until_ms.0), ("settle", until_ms.0 + SETTLE)]);
    }
    Situation { name, record: Some(record), from_ms: T0 + 1, deadlines }
}

fn complete(name: &'static str, after: AfterWindow, class: OutcomeClass, is_tombstone: bool) -> Situation {
    let mut record = base(Abandoned::Hold);
    record.policy = record.policy.after_window(after);
    (record.last, record.request) = (Some(LAST), None);
    let mut outcome = outcome(class);
    if is_tombstone {
        outcome.response.headers.clear();
        outcome.response.body = Body::Dropped { len: 4, hash: [4; 32], why: DropReason::WindowOver };
    }
    if class != OutcomeClass::Success {
        record.steps = vec![paid()];
    }
    record.state =
        State::Complete { outcome, completed_ms: Millis(T0), window_until_ms: Millis(T0 + WINDOW) };
    let from_ms = if is_tombstone { T0 + WINDOW } else { T0 + 1 };
    let deadlines = vec![("window", T0 + WINDOW), ("horizon", T0 + HORIZON)];
    Situation { name, record: Some(record), from_ms, deadlines }
}

fn base(abandoned: Abandoned) -> Record {
    Record {
        generation: Generation(OWN),
        token: Token(OWN),
        attempt: 1,
        nonce: Some(nonce(OWN_NONCE)),
        fingerprint: print(1),
        policy: policy(abandoned),
        created_ms: Millis(T0),
        applied_ms: Millis(T0),
        reported_ms: None,
        last: None,
        operation: Some("charge".into()),
        request: Some(Body::Here(bytes("request"))),
        point: None,
        steps: Vec::new(),
        wrote: false,
        events: 0,
        tries: 0,
        pause_ms: Millis(0),
        state: State::InFlight { lease_until_ms: Some(Millis(T0 + LEASE)), resumable: false },
    }
}

fn endless(record: &mut Record) {
    record.policy = record.policy.no_lease();
    record.state = State::InFlight { lease_until_ms: None, resumable: false };
}

fn recorded(record: &mut Record) {
    record.last = Some(LAST);
    record.point = Some(Point { name: "start".into(), data: bytes("data"), covers: 0 });
}

fn second(record: &mut Record) {
    (record.generation, record.attempt) = (Generation(5), 2);
}

fn paid() -> Step {
    Step { name: "pay".into(), repeatable: true, progress: StepProgress::Done(Blob(vec![1])) }
}

fn open(token: u64, repeatable: bool) -> Step {
    let progress = StepProgress::Begun { token: Token(token), until_ms: Millis(T0 + LIMIT) };
    Step { name: "pay".into(), repeatable, progress }
}
