//! A verdict in the words of the table, with the values behind each word checked.

use keyclaim::machine::{
    Act, Answer, Applied, Body, Change, Command, Decision, DropReason, EffectAnswer, Facts, HoldReason,
    OwnerAnswer, OwnerCommand, Present, Record, Refusal, State, StepProgress, StepResult, Swept, Verdict,
    Won, WonKind,
};
use keyclaim::{AfterWindow, Generation, Millis, Token};
use keyclaim_tests::machine_kit::{HORIZON, LEASE, PAUSE, PAUSE_MAX, SETTLE, WINDOW};

use super::commands::{EXTENSION, NAMED_LEASE, NEW_LEASE, POSTPONED, before as record_before_the_win};
use super::states::NEXT;

/// What was asked, of what, and what came of it.
struct Seen<'a> {
    before: Option<&'a Record>,
    after: Option<&'a Record>,
    command: &'a Command,
    now_ms: u64,
}

pub(crate) fn describe(
    before: Option<&Record>,
    command: &Command,
    facts: Facts,
    verdict: &Verdict,
) -> String {
    let after = match &verdict.changes.record {
        Change::Put(record) => Some(&**record),
        Change::Keep => before,
        Change::Delete => None,
    };
    let seen = Seen { before, after, command, now_ms: facts.now_ms.0 };
    let mut words = vec![seen.answer(&verdict.answer)];
    match &verdict.changes.record {
        Change::Keep => {}
        Change::Delete => words.push("-".into()),
        Change::Put(record) => {
            record.check().expect("only sound records are written");
            words.extend(seen.written(record, &verdict.answer));
        }
    }
    if let Some(archived) = &verdict.changes.archive {
        assert_eq!(Some(&**archived), before, "what is archived is what was there");
        words.push("+archive".into());
    }
    let takes = matches!(
        &verdict.answer,
        Ok(Answer::Operator(_)
            | Answer::Decision(Decision::Won(Won {
                kind: WonKind::Fresh | WonKind::Takeover | WonKind::Reattempt | WonKind::ReusedAfterWindow,
                ..
            })))
    );
    assert_eq!(verdict.changes.took_token, takes, "wins and operators use up a token, nothing else does");
    words.join(" ")
}

impl Seen<'_> {
    fn answer(&self, answer: &Result<Answer, Refusal>) -> String {
        let word = match answer {
            Err(Refusal::Fenced(present)) => {
                assert!(*present == self.present(), "fenced by {present}");
                "Fenced"
            }
            Err(Refusal::Invalid(text)) => {
                assert!(text.contains("; "), "a reason says what to do: {text}");
                "Invalid"
            }
            Err(Refusal::StepsChanged) => "StepsChanged",
            Ok(Answer::Decision(decision)) => self.decision(decision),
            Ok(Answer::OtherScheme(fingerprint)) => {
                assert_eq!(Some(fingerprint), self.before.map(|record| &record.fingerprint));
                "OtherScheme"
            }
            Ok(Answer::Owner(answer)) => self.owner(answer),
            Ok(Answer::Operator(token)) => {
                assert_eq!(*token, Token(NEXT));
                "Operator"
            }
            Ok(Answer::Swept(Swept::NotDue)) => "NotDue",
            Ok(Answer::Swept(Swept::Tombstone)) => "Tombstone",
            Ok(Answer::Swept(Swept::Removed)) => "Removed",
            Ok(Answer::Swept(Swept::Unfinished)) => "Unfinished",
            Ok(Answer::Nothing) => "Nothing",
            Ok(Answer::Undone) => "Undone",
            Ok(other) => panic!("the table has no word for {other:?}"),
        };
        word.to_owned()
    }

    /// A finished record past its horizon is absent.
    fn present(&self) -> Present {
        match self.before {
            Some(Record { state: State::Complete { completed_ms, .. }, token, .. }) => {
                if self.now_ms < completed_ms.0 + HORIZON {
                    Present::Complete(*token)
                } else {
                    Present::Absent
                }
            }
            Some(Record { state: State::Held { .. }, token, .. }) => Present::Held(*token),
            Some(Record { state: State::InFlight { .. }, token, .. }) => Present::InFlight(*token),
            None => Present::Absent,
        }
    }

    fn decision(&self, decision: &Decision) -> &'static str {
        match decision {
            Decision::Won(won) => self.won(won),
            Decision::Replay(replay) => {
                let record = self.before.expect("a replay is of a record");
                let State::Complete { outcome, completed_ms, window_until_ms } = &record.state else {
                    panic!("a replay of what is not complete")
                };
                assert_eq!((&replay.response, replay.class), (&outcome.response, outcome.class));
                assert_eq!((replay.completed_ms, replay.window_until_ms), (*completed_ms, *window_until_ms));
                assert_eq!(replay.generation, record.generation);
                "Replay"
            }
            Decision::InFlight { retry_after_ms, lease_until_ms } => {
                assert_eq!(*lease_until_ms, lease(self.before));
                let rest_ms = lease_until_ms.map_or(u64::MAX, |until_ms| until_ms.0 - self.now_ms);
                assert_eq!(retry_after_ms.0, rest_ms.min(1_000));
                assert!(retry_after_ms.0 > 0);
                "InFlight"
            }
            Decision::Mismatch { .. } => "Mismatch",
            Decision::Held { reason, token } => {
                let record = self.after.expect("what is held is there");
                assert_eq!((&State::Held { reason: *reason }, record.token), (&record.state, *token));
                "Held"
            }
            Decision::Expired => "Expired",
        }
    }

    fn won(&self, won: &Won) -> &'static str {
        let record = self.after.expect("what is won is there");
        assert_eq!(
            (won.token, won.generation, won.attempt),
            (record.token, record.generation, record.attempt)
        );
        assert_eq!((&won.point, &won.steps), (&record.point, &record.steps));
        assert_eq!(won.lease_until_ms, lease(Some(record)));
        match won.kind {
            WonKind::Fresh => "Fresh",
            WonKind::Again => "Again",
            WonKind::Takeover => "Takeover",
            WonKind::Reattempt => "Reattempt",
            WonKind::ReusedAfterWindow => "Reused",
            other => panic!("the table has no word for {other:?}"),
        }
    }

    fn owner(&self, answer: &OwnerAnswer) -> &'static str {
        match answer {
            OwnerAnswer::Renewed { lease_until_ms } => {
                assert_eq!(*lease_until_ms, lease(self.after));
                "Renewed"
            }
            OwnerAnswer::Checkpointed => "Checkpointed",
            OwnerAnswer::Effect(effect) => self.effect(effect),
            OwnerAnswer::EffectFinished => "Finished",
            OwnerAnswer::Completed => "Completed",
            OwnerAnswer::Released => "Released",
            OwnerAnswer::Abandoned => "Abandoned",
            OwnerAnswer::Held => "OwnerHeld",
        }
    }

    fn effect(&self, effect: &EffectAnswer) -> &'static str {
        let steps = &self.after.expect("a step is on a record").steps;
        let at = |place: u32| &steps[place as usize].progress;
        match effect {
            EffectAnswer::Run { place, until_ms } => {
                let StepProgress::Begun { token, until_ms: recorded_ms } = at(*place) else {
                    panic!("it runs without an intent on record")
                };
                assert_eq!((recorded_ms, *token), (until_ms, self.after.expect("there").token));
                "Run"
            }
            EffectAnswer::Done { place, result } => {
                assert_eq!(*at(*place), StepProgress::Done(result.clone()));
                "Done"
            }
            EffectAnswer::Refused { place, result } => {
                assert_eq!(*at(*place), StepProgress::Refused(result.clone()));
                "Refused"
            }
            EffectAnswer::Settling { until_ms } => {
                let Some((_, limit_ms)) = self.before.and_then(Record::open_step) else {
                    panic!("only what is in doubt settles")
                };
                assert!([0, SETTLE].contains(&(until_ms.0 - limit_ms.0)) && self.now_ms < until_ms.0);
                "Settling"
            }
            EffectAnswer::Reconcile { place } => {
                assert!(matches!(at(*place), StepProgress::Begun { .. }));
                "Reconcile"
            }
            EffectAnswer::Held(_) => "StepHeld",
        }
    }

    fn written(&self, record: &Record, answer: &Result<Answer, Refusal>) -> Vec<String> {
        if self.is_back(record) {
            return vec!["back".into()];
        }
        let Some(before) = self.before.filter(|before| before.generation == record.generation) else {
            return vec![self.new_record(record)];
        };
        let mut words = Vec::new();
        let mut field = |word: &str, differs: bool| {
            if differs {
                words.push(word.to_owned());
            }
        };
        assert_eq!(before.fingerprint, record.fingerprint, "a generation keeps its fingerprint");
        assert_eq!(before.created_ms, record.created_ms, "a generation began once");
        field("token", before.token != record.token);
        field("attempt", before.attempt != record.attempt);
        field("nonce", before.nonce != record.nonce);
        field("policy", before.policy != record.policy);
        field("applied", before.applied_ms != record.applied_ms);
        field("reported", before.reported_ms != record.reported_ms);
        field("last", before.last != record.last);
        field("operation", before.operation != record.operation);
        field("request", before.request != record.request);
        field("point", before.point != record.point);
        // The instant just before its limit is where an intent of 1 ms begun again looks the same.
        let runs = matches!(answer, Ok(Answer::Owner(OwnerAnswer::Effect(EffectAnswer::Run { .. }))));
        field("steps", runs || before.steps != record.steps);
        field("wrote", before.wrote != record.wrote);
        field("tries", before.tries != record.tries);
        field("pause", before.pause_ms != record.pause_ms);
        self.check_values(before, record);
        words.extend(self.state(before, record, answer));
        if let Some(first) = words.first_mut() {
            first.insert(0, '~');
        } else {
            words.push("~".into());
        }
        words
    }

    fn is_back(&self, record: &Record) -> bool {
        matches!(self.command, Command::Untold { before: Some(_), .. })
            && self.before.is_some_and(|before| record_before_the_win(before) == *record)
    }

    fn new_record(&self, record: &Record) -> String {
        let Command::Claim(claim) = self.command else { panic!("only a claim makes a record") };
        let lease_until_ms = Some(Millis(self.now_ms + NEW_LEASE));
        let expected = Record {
            generation: Generation(NEXT),
            token: Token(NEXT),
            attempt: 1,
            nonce: Some(claim.nonce),
            fingerprint: claim.fingerprint.clone(),
            policy: claim.policy,
            created_ms: Millis(self.now_ms),
            applied_ms: Millis(self.now_ms),
            reported_ms: None,
            last: None,
            operation: None,
            request: None,
            point: None,
            steps: Vec::new(),
            wrote: false,
            events: 0,
            tries: 0,
            pause_ms: Millis(0),
            state: State::InFlight { lease_until_ms, resumable: false },
        };
        assert_eq!(*record, expected);
        "new".into()
    }

    /// Whatever changed has the one value that the rules allow.
    fn check_values(&self, before: &Record, record: &Record) {
        let is = |unchanged: bool, right: bool, name: &str| {
            assert!(unchanged || right, "wrong {name}: {record:#?}");
        };
        is(before.token == record.token, record.token == Token(NEXT), "token");
        is(before.attempt == record.attempt, record.attempt == before.attempt + 1, "attempt");
        let claimed = match self.command {
            Command::Claim(claim) => Some(claim.nonce),
            Command::TakeAbandoned { nonce, .. } => Some(*nonce),
            _ => None,
        };
        is(before.nonce == record.nonce, record.nonce == claimed, "nonce");
        is(before.applied_ms == record.applied_ms, record.applied_ms.0 == self.now_ms, "applied");
        is(
            before.reported_ms == record.reported_ms,
            record.reported_ms == Some(Millis(self.now_ms)),
            "reported",
        );
        is(before.request == record.request, record.request.is_none(), "request");
        let last = match self.command {
            Command::Owner(owner) => Some(Applied { seq: owner.seq, digest: owner.digest }),
            Command::Claim(_) if before.token == record.token => Some(Applied { seq: 0, digest: [0; 16] }),
            _ => None,
        };
        is(before.last == record.last, record.last == last, "last");
        let (tries, pause_ms) = match self.command {
            Command::TakeAbandoned { .. } => (before.tries + 1, half_of_bound(before.tries)),
            Command::Owner(OwnerCommand { act: Act::Postpone { .. }, .. }) => {
                (before.tries, POSTPONED - lease(Some(record)).expect("it ended").0)
            }
            _ => (0, 0),
        };
        is(before.tries == record.tries, record.tries == tries, "tries");
        is(before.pause_ms == record.pause_ms, record.pause_ms == Millis(pause_ms), "pause");
        self.check_point(before, record);
        self.check_steps(before, record);
    }

    fn check_point(&self, before: &Record, record: &Record) {
        let Command::Owner(owner) = self.command else { return };
        match (&owner.act, &record.point) {
            (Act::Checkpoint { name, data, met, .. }, Some(point)) if before.point != record.point => {
                assert_eq!((&point.name, &point.data, point.covers), (name, data, *met));
            }
            (_, point) => assert!(point.is_none() || *point == before.point),
        }
    }

    fn check_steps(&self, before: &Record, record: &Record) {
        if before.steps == record.steps || record.steps.is_empty() {
            return;
        }
        let last = record.steps.last().expect("there are steps");
        match self.command {
            Command::Owner(owner) => match &owner.act {
                Act::BeginEffect(begin) => {
                    assert_eq!(last.name, begin.name);
                    let until_ms = Millis(self.now_ms + begin.limit_ms.0);
                    assert_eq!(last.progress, StepProgress::Begun { token: record.token, until_ms });
                }
                Act::FinishEffect { result: StepResult::Done(bytes), .. } => {
                    assert_eq!(last.progress, StepProgress::Done(bytes.clone()));
                }
                Act::FinishEffect { result: StepResult::Refused(bytes), .. } => {
                    assert_eq!(last.progress, StepProgress::Refused(bytes.clone()));
                }
                other => panic!("{other:?} changes no steps"),
            },
            Command::Operator(_) => assert!(matches!(last.progress, StepProgress::Done(_))),
            other => panic!("{other:?} changes no steps"),
        }
    }

    fn state(&self, before: &Record, record: &Record, answer: &Result<Answer, Refusal>) -> Vec<String> {
        let mut words = Vec::new();
        match (&before.state, &record.state) {
            (
                State::InFlight { lease_until_ms: was, resumable: before_resumable },
                State::InFlight { lease_until_ms, resumable },
            ) => {
                if matches!(answer, Ok(Answer::Owner(OwnerAnswer::Abandoned) | Answer::Undone)) {
                    words.push(self.ended(record, lease_until_ms.expect("it ended")));
                } else if was != lease_until_ms {
                    assert_eq!(lease_until_ms.map(|until_ms| until_ms.0), Some(self.lease_asked(record)));
                    words.push("lease".into());
                }
                if before_resumable != resumable {
                    words.push(if *resumable { "resumable" } else { "unresumable" }.into());
                }
            }
            (_, State::InFlight { lease_until_ms, resumable }) => {
                let is_resolved = matches!(self.command, Command::Operator(_));
                assert_eq!(*resumable, is_resolved);
                let open_ms = record.open_step().map_or(0, |(_, until_ms)| until_ms.0);
                let until_ms = if is_resolved { self.now_ms.max(open_ms) } else { self.now_ms + NEW_LEASE };
                assert_eq!(*lease_until_ms, Some(Millis(until_ms)));
                words.push("flight".into());
            }
            (State::Held { .. }, State::Held { .. }) => assert_eq!(before.state, record.state),
            (_, State::Held { reason }) => {
                assert_eq!(*reason, self.reason(answer), "{:?}", self.command);
                words.push("held".into());
            }
            (State::Complete { .. }, State::Complete { .. }) => words.push(self.complete(before, record)),
            (_, State::Complete { outcome, completed_ms, window_until_ms }) => {
                assert_eq!((completed_ms.0, window_until_ms.0), (self.now_ms, self.now_ms + WINDOW));
                assert_eq!(Some(outcome), self.outcome());
                assert_eq!(record.policy.after_window(AfterWindow::Reuse), before.policy);
                words.push("complete".into());
            }
        }
        words
    }

    fn complete(&self, before: &Record, record: &Record) -> String {
        let (
            State::Complete { outcome: was, window_until_ms: was_ms, completed_ms: then_ms },
            State::Complete { outcome, window_until_ms, completed_ms },
        ) = (&before.state, &record.state)
        else {
            unreachable!("both are complete")
        };
        assert_eq!(then_ms, completed_ms);
        if was_ms != window_until_ms {
            assert_eq!((was, window_until_ms.0), (outcome, self.now_ms + EXTENSION));
            return "window".into();
        }
        let Body::Here(bytes) = &was.response.body else { panic!("the body was gone before") };
        let (len, hash) = (bytes.0.len() as u64, HASH_OF_BODY);
        assert!(outcome.response.headers.is_empty());
        assert_eq!((outcome.response.status, outcome.class), (was.response.status, was.class));
        match &outcome.response.body {
            Body::Dropped { len: dropped, hash: kept, why: DropReason::WindowOver } => {
                assert_eq!((*dropped, hex(kept)), (len, hash.to_owned()));
            }
            other => panic!("the body was to be dropped: {other:?}"),
        }
        "body".into()
    }

    fn ended(&self, record: &Record, until_ms: Millis) -> String {
        let open_ms = record.open_step().map_or(0, |(_, until_ms)| until_ms.0);
        assert_eq!(until_ms.0, self.now_ms.max(open_ms));
        if until_ms.0 > self.now_ms { "limit".into() } else { "over".into() }
    }

    fn lease_asked(&self, record: &Record) -> u64 {
        let open_ms = record.open_step().map_or(0, |(_, until_ms)| until_ms.0);
        match self.command {
            Command::Claim(_) if record.token == Token(NEXT) => self.now_ms + NEW_LEASE,
            Command::Owner(owner) => match &owner.act {
                Act::Renew { lease_ms: Some(_) } => open_ms.max(self.now_ms + NAMED_LEASE),
                Act::BeginEffect(_) => open_ms,
                _ => open_ms.max(self.now_ms + LEASE),
            },
            _ => self.now_ms + LEASE,
        }
    }

    fn reason(&self, answer: &Result<Answer, Refusal>) -> HoldReason {
        match (self.command, answer) {
            (_, Err(Refusal::StepsChanged)) => HoldReason::StepsChanged,
            (Command::Owner(owner), _) if matches!(owner.act, Act::BeginEffect(_)) => HoldReason::StepInDoubt,
            (Command::Owner(_), _) => HoldReason::Owner,
            (Command::TakeAbandoned { tries_max: 0 | 2, .. }, _)
                if self.before.is_some_and(|record| record.has_recorded() || may_rerun(record)) =>
            {
                HoldReason::TriedTooOften
            }
            _ => HoldReason::Abandoned,
        }
    }

    fn outcome(&self) -> Option<&keyclaim::machine::Outcome> {
        match self.command {
            Command::Owner(owner) => match &owner.act {
                Act::Complete { outcome, .. } => Some(outcome),
                _ => None,
            },
            Command::Operator(operator) => match &operator.act {
                keyclaim::machine::OperatorAct::ResolveComplete(outcome) => Some(outcome),
                _ => None,
            },
            _ => None,
        }
    }
}

/// The BLAKE3 of the bytes 00 ff c3 28, as blake3 1.8 prints it.
const HASH_OF_BODY: &str = "ad297b31e5e682d99ab39c25bb0f5733616f03eed1a556bb82bbb7868dc8e771";

fn may_rerun(record: &Record) -> bool {
    let reruns = keyclaim_tests::machine_kit::policy(keyclaim::Abandoned::Rerun);
    matches!(record.state, State::InFlight { resumable: true, .. }) || record.policy == reruns
}

/// The pause in the middle of its bound, after one more try than these.
fn half_of_bound(tries_before: u32) -> u64 {
    match tries_before {
        0 => PAUSE / 2,
        2 => PAUSE_MAX / 2,
        other => panic!("no state of the table has {other} tries"),
    }
}

fn lease(record: Option<&Record>) -> Option<Millis> {
    match record?.state {
        State::InFlight { lease_until_ms, .. } => lease_until_ms,
        State::Held { .. } | State::Complete { .. } => None,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}
