//! The moves of a history, and what every state that is reached must hold.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use keyclaim::machine::{
    Act, Answer, BeginEffect, Blob, Change, ClaimCommand, Command, Decision, EffectAnswer, InDoubt,
    OperatorAct, OutcomeClass, OwnerAnswer, OwnerCommand, Refusal, Replay, State, StepResult, WonKind,
    decide,
};
use keyclaim::{Abandoned, AfterFailure, Millis, Policy, Token, Writes};
use keyclaim_tests::machine_kit::{World, claim_with, hold, outcome, renew, say, some_writes, take};

use super::ghost::Ghost;

const LEASE: u64 = 2;
const WINDOW: u64 = 3;
const HORIZON: u64 = 6;
const LIMIT: u64 = 1;

/// One thing that happens. The number says which owner does it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Move {
    Claim(usize),
    /// A claim with writes whose caller was gone before it could be told.
    ClaimLost(usize),
    Take(usize),
    Renew(usize),
    Checkpoint(usize),
    Pay(usize),
    Mail(usize),
    Done(usize),
    NotSent(usize),
    Succeed(usize),
    Fail(usize),
    FailForNow(usize),
    Release(usize),
    Abandon(usize),
    Hold(usize),
    Resume,
    Resolve,
    Forget,
    Sweep,
    Wait(u64),
}

/// A state that some history reaches.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    world: World,
    owners: [Owner; 2],
    ghost: Ghost,
    policy: Policy,
}

/// What a claim object remembers.
#[derive(Clone, Debug, Default, Hash)]
struct Owner {
    token: Option<Token>,
    seq: u64,
    met: u32,
    open: Option<(String, u32)>,
}

impl Move {
    pub(crate) fn all() -> &'static [Self] {
        use Move::{
            Abandon, Checkpoint, Claim, ClaimLost, Done, Fail, FailForNow, Forget, Hold, Mail, NotSent, Pay,
            Release, Renew, Resolve, Resume, Succeed, Sweep, Take, Wait,
        };
        &[
            Claim(0),
            Claim(1),
            ClaimLost(1),
            Take(1),
            Renew(0),
            Renew(1),
            Checkpoint(0),
            Checkpoint(1),
            Pay(0),
            Pay(1),
            Mail(0),
            Mail(1),
            Done(0),
            Done(1),
            NotSent(0),
            NotSent(1),
            Succeed(0),
            Succeed(1),
            Fail(0),
            FailForNow(0),
            FailForNow(1),
            Release(0),
            Release(1),
            Abandon(0),
            Abandon(1),
            Hold(0),
            Hold(1),
            Resume,
            Resolve,
            Forget,
            Sweep,
            Wait(LIMIT),
            Wait(LEASE),
            Wait(HORIZON),
        ]
    }
}

impl Node {
    pub(crate) fn new(abandoned: Abandoned) -> Self {
        let policy = Policy::new(abandoned)
            .lease(Duration::from_millis(LEASE))
            .and_then(|policy| policy.replay_window(Duration::from_millis(WINDOW)))
            .and_then(|policy| policy.reaper_horizon(Duration::from_millis(HORIZON)))
            .expect("the times are in range");
        Self { world: World::new(), owners: Default::default(), ghost: Ghost::default(), policy }
    }

    /// The state after a move, or none if this move makes no sense here.
    pub(crate) fn after(&self, step: Move) -> Option<Self> {
        let mut node = self.clone();
        match step {
            Move::Claim(who) => node.claim(who),
            Move::ClaimLost(who) => node.claim_lost(who)?,
            Move::Take(who) => node.take(who)?,
            Move::Wait(ms) => {
                node.world.record.as_ref()?;
                node.world.now_ms += ms;
            }
            Move::Sweep => node.sweep(),
            Move::Resume => node.operate(OperatorAct::ResolveResumable(None))?,
            Move::Resolve => node.operate(OperatorAct::ResolveComplete(outcome(OutcomeClass::Success)))?,
            Move::Forget => node.operate(OperatorAct::Forget)?,
            Move::Renew(who) => node.say(who, &renew())?,
            Move::Checkpoint(who) => node.say(who, &node.point(who))?,
            Move::Pay(who) => node.say(who, &node.step(who, "pay", InDoubt::Hold))?,
            Move::Mail(who) => node.say(who, &node.step(who, "mail", InDoubt::Repeat))?,
            Move::Done(who) => node.say(who, &node.result(who, StepResult::Done(Blob(vec![1])))?)?,
            Move::NotSent(who) => node.say(who, &node.result(who, StepResult::NotSent)?)?,
            Move::Succeed(who) => node.say(who, &node.ending(who, OutcomeClass::Success))?,
            Move::Fail(who) => {
                node.say(who, &node.ending(who, OutcomeClass::Failure(AfterFailure::Replay)))?;
            }
            Move::FailForNow(who) => {
                node.say(who, &node.ending(who, OutcomeClass::Failure(AfterFailure::Reattempt)))?;
            }
            Move::Release(who) => node.say(who, &Act::Release)?,
            Move::Abandon(who) => node.say(who, &Act::Abandon)?,
            Move::Hold(who) => node.say(who, &hold())?,
        }
        Some(node)
    }

    /// Tells states apart.
    pub(crate) fn key(&self) -> u64 {
        let record = self.world.record.as_ref().map(|record| keyclaim::codec::encode(&[], record));
        let mut hasher = DefaultHasher::new();
        record.map(|bytes| bytes.expect("a record that was written is sound")).hash(&mut hasher);
        (self.world.now_ms, &self.owners, &self.ghost.issued, self.ghost.live).hash(&mut hasher);
        (&self.ghost.done, &self.ghost.ran, self.ghost.generation).hash(&mut hasher);
        self.ghost.replay.as_ref().map(|replay| (replay.class, replay.window_until_ms)).hash(&mut hasher);
        hasher.finish()
    }

    /// Asks of this state whatever must hold in every state.
    pub(crate) fn judge(&self) {
        self.stale_tokens_change_nothing();
        self.one_token_is_live_at_most();
        self.a_finished_request_is_replayed_until_its_window_ends();
        self.nothing_ends_by_time_alone();
    }

    fn claim_command(&self, number: u8) -> ClaimCommand {
        let mut claim = claim_with(number, self.policy);
        claim.operation = Some("charge".into());
        claim.request = Some(keyclaim::machine::Body::Here(Blob(vec![1])));
        claim
    }

    fn claim(&mut self, who: usize) {
        let number = if who == 0 { 1 } else { 2 };
        let command = Command::Claim(self.claim_command(number));
        let decision = self.world.decision(&command);
        self.ghost.decided(&decision);
        let Decision::Won(won) = decision else { return };
        if won.kind == WonKind::Again {
            assert_eq!(self.owners[who].token.unwrap_or(won.token), won.token);
        } else {
            self.owners[who] = Owner { token: Some(won.token), ..Owner::default() };
            let again = self.world.decision(&command);
            let Decision::Won(again) = again else { panic!("asked again it was told {again:?}") };
            assert_eq!((again.token, again.kind), (won.token, WonKind::Again));
        }
    }

    fn claim_lost(&mut self, who: usize) -> Option<()> {
        let before = self.world.record.clone();
        let mut claim = self.claim_command(3);
        claim.writes = if who == 1 { some_writes() } else { Writes::new() };
        let Ok(Answer::Decision(Decision::Won(won))) = self.world.ask(&Command::Claim(claim)) else {
            return None;
        };
        if won.kind == WonKind::Again {
            return None;
        }
        let ghost = self.ghost.clone();
        self.ghost.won(&won);
        let before = before.filter(|_| matches!(won.kind, WonKind::Takeover | WonKind::Reattempt));
        let untold = Command::Untold { token: won.token, before: before.map(Box::new) };
        assert_eq!(self.world.ask(&untold), Ok(Answer::Undone));
        let record = self.world.record.as_ref().expect("its writes are on record");
        assert!(record.wrote, "what was written is never forgotten");
        if record.token != won.token {
            let issued = std::mem::take(&mut self.ghost.issued);
            self.ghost = Ghost { issued, ..ghost };
        }
        Some(())
    }

    fn take(&mut self, who: usize) -> Option<()> {
        let answer = self.world.ask(&take(2));
        let Ok(Answer::Decision(decision)) = answer else {
            assert_eq!(answer, Ok(Answer::Nothing));
            return None;
        };
        self.ghost.decided(&decision);
        if let Decision::Won(won) = decision {
            self.owners[who] = Owner { token: Some(won.token), ..Owner::default() };
        }
        Some(())
    }

    fn sweep(&mut self) {
        let before = self.world.record.clone();
        let over =
            self.ghost.replay.as_ref().is_some_and(|replay| self.world.now_ms >= replay.window_until_ms.0);
        self.world.ask(&Command::Sweep).expect("a sweep is never refused");
        if self.world.record.is_none() && before.is_some() {
            assert!(over, "only what is finished and past its window is removed");
            self.ghost.forget();
        }
    }

    fn operate(&mut self, act: OperatorAct) -> Option<()> {
        let record = self.world.record.clone()?;
        let forgets = matches!(act, OperatorAct::Forget);
        let completes = matches!(act, OperatorAct::ResolveComplete(_));
        let answer = self.world.operate(record.token, act).ok()?;
        self.ghost.answered(&answer);
        if forgets {
            self.ghost.forget();
        }
        if completes {
            self.remember_the_outcome();
        }
        Some(())
    }

    fn point(&self, who: usize) -> Act {
        Act::Checkpoint {
            name: "half".into(),
            data: Blob(vec![1]),
            met: self.owners[who].met,
            writes: Writes::new(),
        }
    }

    fn step(&self, who: usize, name: &str, in_doubt: InDoubt) -> Act {
        let begin =
            BeginEffect { name: name.into(), limit_ms: Millis(LIMIT), in_doubt, met: self.owners[who].met };
        Act::BeginEffect(begin)
    }

    fn result(&self, who: usize, result: StepResult) -> Option<Act> {
        let (name, _) = self.owners[who].open.clone()?;
        Some(Act::FinishEffect { name, result })
    }

    fn ending(&self, who: usize, class: OutcomeClass) -> Act {
        Act::Complete { outcome: outcome(class), met: self.owners[who].met, writes: Writes::new() }
    }

    /// An owner says something with its next number, and asks again at once.
    fn say(&mut self, who: usize, act: &Act) -> Option<()> {
        let token = self.owners[who].token?;
        let seq = if matches!(act, Act::Renew { .. }) { 0 } else { self.owners[who].seq + 1 };
        let command = say(token, seq, act.clone());
        let is_live = self.world.record.as_ref().is_some_and(|record| record.token == token);
        let verdict = self.world.verdict(&command);
        if !is_live {
            assert_eq!(verdict.changes.record, Change::Keep, "a stale token changes nothing");
        }
        if seq > 0 {
            let again = self.world.verdict(&command);
            assert_eq!(again.answer, verdict.answer, "the same again gets the same answer: {command:?}");
            assert_eq!(again.changes, keyclaim::machine::Changes::default(), "and writes nothing");
        }
        match verdict.answer {
            Ok(Answer::Owner(answer)) => {
                self.owners[who].seq = seq.max(self.owners[who].seq);
                // A release of what is absent is answered and releases nothing.
                let released_nothing =
                    answer == OwnerAnswer::Released && verdict.changes.record == Change::Keep;
                if is_live && !released_nothing {
                    self.ghost.said(act, &answer);
                }
                self.learn(who, act, &answer);
            }
            Ok(other) => panic!("{other:?} is no answer to an owner"),
            Err(Refusal::Fenced(_)) if !is_live => {
                self.owners[who] = Owner { open: None, ..self.owners[who].clone() }
            }
            Err(Refusal::StepsChanged) => self.owners[who].seq += 1,
            Err(_) => return None,
        }
        Some(())
    }

    fn learn(&mut self, who: usize, act: &Act, answer: &OwnerAnswer) {
        let owner = &mut self.owners[who];
        match (act, answer) {
            (Act::BeginEffect(begin), OwnerAnswer::Effect(EffectAnswer::Run { place, .. })) => {
                owner.open = Some((begin.name.clone(), *place));
            }
            (_, OwnerAnswer::Effect(EffectAnswer::Done { place, .. })) => owner.met = place + 1,
            (Act::FinishEffect { result, .. }, _) => {
                let place = owner.open.take().map(|(_, place)| place);
                if let (StepResult::Done(_), Some(place)) = (result, place) {
                    owner.met = place + 1;
                }
            }
            (Act::Complete { .. }, OwnerAnswer::Completed) => self.remember_the_outcome(),
            _ => {}
        }
    }

    fn remember_the_outcome(&mut self) {
        let record = self.world.record.as_ref().expect("it was completed");
        let State::Complete { outcome, .. } = &record.state else { panic!("it was completed") };
        self.ghost.replay = Some(Replay {
            generation: self.ghost.generation.expect("it was won"),
            class: outcome.class,
            response: keyclaim_tests::machine_kit::outcome(outcome.class).response,
            completed_ms: Millis(self.world.now_ms),
            window_until_ms: Millis(self.world.now_ms + WINDOW),
        });
    }

    fn stale_tokens_change_nothing(&self) {
        let current = self.world.record.as_ref().map(|record| record.token);
        let never = Token(self.world.next);
        for token in self.ghost.issued.iter().chain([&never]).filter(|token| Some(**token) != current) {
            for act in
                [renew(), self.point(0), self.ending(1, OutcomeClass::Success), Act::Abandon, Act::Release]
            {
                let is_release = act == Act::Release;
                let verdict = decide(self.world.record.as_ref(), &late(*token, act), self.world.facts());
                assert_eq!(verdict.changes.record, Change::Keep);
                let fenced = matches!(verdict.answer, Err(Refusal::Fenced(_)));
                assert!(fenced || (is_release && verdict.answer == Ok(Answer::Owner(OwnerAnswer::Released))));
            }
        }
    }

    fn one_token_is_live_at_most(&self) {
        let obeyed = |token: &&Token| {
            let verdict = decide(self.world.record.as_ref(), &late(**token, hold()), self.world.facts());
            verdict.answer.is_ok()
        };
        assert!(self.ghost.issued.iter().filter(obeyed).count() <= 1);
    }

    fn a_finished_request_is_replayed_until_its_window_ends(&self) {
        let Some(replay) = &self.ghost.replay else { return };
        let decision = self.clone().world.decision(&Command::Claim(self.claim_command(8)));
        if self.world.now_ms >= replay.window_until_ms.0 {
            assert!(matches!(decision, Decision::Won(won) if won.generation != replay.generation));
        } else if replay.class == OutcomeClass::Failure(AfterFailure::Reattempt) {
            assert!(matches!(decision, Decision::Won(won) if won.kind == WonKind::Reattempt));
        } else {
            assert_eq!(decision, Decision::Replay(replay.clone()));
        }
    }

    fn nothing_ends_by_time_alone(&self) {
        let Some(record) = &self.world.record else { return };
        let unfinished = matches!(record.state, State::Held { .. }) || record.has_recorded();
        if matches!(record.state, State::Complete { .. }) {
            return;
        }
        for later in [0, LEASE, HORIZON, 1_000_000] {
            let mut world = self.world.clone();
            world.now_ms += later;
            let swept = world.verdict(&Command::Sweep);
            assert_ne!(swept.changes.record, Change::Delete, "unfinished things are never swept");
            let decision = world.decision(&Command::Claim(self.claim_command(8)));
            match (&record.state, decision) {
                (State::Held { reason }, Decision::Held { reason: told, .. }) => assert_eq!(*reason, told),
                (State::InFlight { .. }, Decision::InFlight { .. }) => {}
                (State::InFlight { resumable, .. }, Decision::Held { .. }) => {
                    assert!(!unfinished && !resumable && self.policy_holds());
                }
                (State::InFlight { resumable, .. }, Decision::Won(won)) => {
                    assert_eq!((won.generation, won.kind), (record.generation, WonKind::Takeover));
                    assert_eq!((&won.steps, &won.point), (&record.steps, &record.point));
                    assert!(unfinished || *resumable || !self.policy_holds(), "an abandoned one was rerun");
                }
                (state, decision) => panic!("{state:?} ended by time alone: {decision:?}"),
            }
        }
    }

    fn policy_holds(&self) -> bool {
        format!("{:?}", self.policy).contains("abandoned: Hold")
    }
}

/// A command with a number that nobody has used; no digest is compared with it.
fn late(token: Token, act: Act) -> Command {
    Command::Owner(OwnerCommand { token, seq: 99, digest: [0; 16], act })
}
