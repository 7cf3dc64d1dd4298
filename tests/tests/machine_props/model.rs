//! The rules once more, dumber: a diary of what was applied to one key, and questions that read it
//! from the beginning. Nothing is stored that the diary does not say.

use keyclaim::machine::{
    Act, BeginEffect, ClaimCommand, Command, HoldReason, InDoubt, OperatorAct, OperatorCommand, OutcomeClass,
    OwnerCommand, StepResult,
};
use keyclaim::{AfterFailure, Millis};
use keyclaim_tests::machine_kit::{HORIZON, LEASE, WINDOW};

/// One line of the diary.
#[derive(Clone, Debug)]
enum Line {
    /// An attempt begins, as the first of its generation or a later one.
    Attempt {
        token: u64,
        nonce: u8,
        lease_ms: Option<u64>,
        claim_wrote: bool,
    },
    /// The request became known to whoever finishes abandoned ones.
    Finishable,
    ToldAgain,
    Numbered {
        seq: u64,
        act: Act,
    },
    Renewed {
        asked_ms: Option<u64>,
    },
    Pointed,
    Begun {
        name: String,
        repeatable: bool,
        until_ms: u64,
    },
    Done(String),
    Refused(String),
    NotSent(String),
    Completed {
        class: OutcomeClass,
    },
    Ended,
    /// The attempt before this line is a try of whoever finishes abandoned requests.
    Tried,
    Postponed {
        by_ms: u64,
    },
    Undone,
    Held(HoldReason),
    Resolved {
        token: u64,
    },
    Resumable,
    Extended {
        until_ms: u64,
    },
    Reported,
    BodyDropped,
}

/// A key: the diary of its generation, or nothing.
#[derive(Debug)]
pub(crate) struct Model {
    holds: bool,
    refuses: bool,
    request: u8,
    diary: Vec<(u64, Line)>,
    now_ms: u64,
    next: u64,
}

/// A step as the diary tells it.
#[derive(Clone, Debug)]
struct Step {
    name: String,
    repeatable: bool,
    end: &'static str,
    begun_by: u64,
    until_ms: u64,
}

type Word = &'static str;

impl Model {
    pub(crate) fn new(holds: bool, refuses: bool) -> Self {
        Self { holds, refuses, request: 0, diary: Vec::new(), now_ms: 0, next: 0 }
    }

    pub(crate) fn ask(&mut self, command: &Command, now_ms: u64, next: u64) -> Word {
        (self.now_ms, self.next) = (now_ms, next);
        if self.is_complete() && now_ms >= self.horizon_until() {
            self.diary.clear();
        }
        match command {
            Command::Claim(claim) => self.claim(claim),
            Command::Owner(owner) => self.owner(owner),
            Command::Operator(operator) => self.operator(operator),
            Command::TakeAbandoned { tries_max, .. } => self.take(*tries_max),
            Command::Untold { token, .. } => self.untold(token.0),
            Command::Sweep => self.sweep(),
        }
    }

    // What a claim finds: the table of the design, in its order.

    fn claim(&mut self, claim: &ClaimCommand) -> Word {
        if self.is_absent() {
            return self.begin_generation(claim, "fresh");
        }
        if self.is_complete() && self.now_ms >= self.window_until() {
            return if self.refuses { "expired" } else { self.begin_generation(claim, "reused") };
        }
        if claim.fingerprint.hash[0] != self.request {
            return "mismatch";
        }
        if let Some(class) = self.class() {
            let again = class == OutcomeClass::Failure(AfterFailure::Reattempt);
            return if again { self.begin_attempt(claim, "reattempt") } else { "replay" };
        }
        if self.is_held() {
            return "held";
        }
        let owns =
            claim.nonce.0[0] == self.nonce() || claim.token.is_some_and(|token| token.0 == self.token());
        if owns && !self.has_ended() {
            self.write(Line::ToldAgain);
            return "again";
        }
        if self.lease_until().is_none_or(|until_ms| self.now_ms < until_ms) {
            return "in_flight";
        }
        if self.has_recorded() || self.is_resumable() || !self.holds {
            return self.begin_attempt(claim, "takeover");
        }
        self.write(Line::Held(HoldReason::Abandoned));
        "held"
    }

    fn begin_generation(&mut self, claim: &ClaimCommand, word: Word) -> Word {
        self.diary.clear();
        self.request = claim.fingerprint.hash[0];
        self.begin_attempt(claim, word)
    }

    fn begin_attempt(&mut self, claim: &ClaimCommand, word: Word) -> Word {
        let endless = format!("{:?}", claim.policy).contains("lease_ms: None");
        let lease_ms = if endless { None } else { Some(LEASE) };
        let (nonce, claim_wrote) = (claim.nonce.0[0], !claim.writes.is_empty());
        self.write(Line::Attempt { token: self.next, nonce, lease_ms, claim_wrote });
        if claim.operation.is_some() {
            self.write(Line::Finishable);
        }
        word
    }

    // What an owner may say.

    fn owner(&mut self, owner: &OwnerCommand) -> Word {
        let act = &owner.act;
        if self.is_absent() {
            return if *act == Act::Release { "released" } else { "fenced" };
        }
        if owner.token.0 != self.token() {
            return "fenced";
        }
        let is_renewal = matches!(act, Act::Renew { .. });
        if let Some((seq, last)) = self.last_numbered()
            && !is_renewal
            && seq == owner.seq
        {
            return if last == *act { self.repeat(act) } else { "invalid" };
        }
        let may_be_said_when_held =
            matches!(act, Act::Complete { .. } | Act::FinishEffect { .. } | Act::Hold { .. });
        if self.is_complete() || (self.is_held() && !may_be_said_when_held) {
            return "fenced";
        }
        if !is_renewal && owner.seq <= self.last_numbered().map_or(0, |(seq, _)| seq) {
            return "invalid";
        }
        if !fits(act) {
            return "invalid";
        }
        let written = self.diary.len();
        let word = self.say(act);
        if self.diary.len() > written && !is_renewal {
            self.diary.insert(written, (self.now_ms, Line::Numbered { seq: owner.seq, act: act.clone() }));
        }
        word
    }

    fn repeat(&self, act: &Act) -> Word {
        let changed = self.hold_reason() == Some(HoldReason::StepsChanged);
        match act {
            Act::Checkpoint { .. } | Act::BeginEffect(_) | Act::Complete { .. } if changed => "steps changed",
            Act::Checkpoint { .. } => "checkpointed",
            Act::BeginEffect(_) => {
                if self.is_held() {
                    "step held"
                } else {
                    "run"
                }
            }
            Act::FinishEffect { .. } => "finished",
            Act::Complete { .. } => "completed",
            Act::Release | Act::Abandon | Act::Postpone { .. } => "abandoned",
            Act::Hold { .. } => "owner held",
            Act::Renew { .. } => unreachable!("a renewal has no number"),
        }
    }

    fn say(&mut self, act: &Act) -> Word {
        match act {
            // Abandoned: what follows is not put off.
            Act::Renew { lease_ms: None } if self.has_ended() => "renewed",
            Act::Renew { lease_ms } => {
                self.write(Line::Renewed { asked_ms: lease_ms.map(|Millis(ms)| ms) });
                "renewed"
            }
            Act::Checkpoint { met, .. } => self.settle(*met, Line::Pointed, "checkpointed"),
            Act::Complete { outcome, met, .. } => {
                self.settle(*met, Line::Completed { class: outcome.class }, "completed")
            }
            Act::BeginEffect(begin) => self.begin(begin),
            Act::FinishEffect { name, result } => {
                if self.open().is_none_or(|open| open.name != *name) {
                    return "invalid";
                }
                self.finish(name.clone(), result);
                "finished"
            }
            Act::Release if self.attempts() == 1 && !self.has_recorded() => {
                self.diary.clear();
                "released"
            }
            Act::Release | Act::Abandon => {
                self.write(Line::Ended);
                "abandoned"
            }
            Act::Postpone { until_ms } => {
                self.write(Line::Ended);
                let over_ms = self.lease_until().expect("it ended");
                let week_ms = 7 * 24 * 60 * 60 * 1_000;
                self.write(Line::Postponed { by_ms: until_ms.0.saturating_sub(over_ms).min(week_ms) });
                "abandoned"
            }
            Act::Hold { reason } => {
                self.write(Line::Held(self.hold_reason().unwrap_or(*reason)));
                "owner held"
            }
        }
    }

    fn settle(&mut self, met: u32, line: Line, word: Word) -> Word {
        let met = met as usize;
        if self.open().is_some() || met > self.steps().len() {
            return "invalid";
        }
        if met.max(self.covered()) < self.steps().len() {
            self.write(Line::Held(HoldReason::StepsChanged));
            return "steps changed";
        }
        self.write(line);
        word
    }

    fn begin(&mut self, begin: &BeginEffect) -> Word {
        let (steps, met) = (self.steps(), begin.met as usize);
        let mut expected = vec![met];
        if met < self.covered() {
            expected.push(self.covered());
        }
        let recorded = expected.iter().find_map(|at| steps.get(*at).filter(|step| step.name == begin.name));
        let Some(step) = recorded.cloned() else {
            let is_new = expected.contains(&steps.len()) && steps.iter().all(|step| step.name != begin.name);
            return match (is_new, self.open()) {
                (false, _) => {
                    self.write(Line::Held(HoldReason::StepsChanged));
                    "steps changed"
                }
                (true, Some(_)) => "invalid",
                (true, None) => self.run(begin, begin.in_doubt == InDoubt::Repeat),
            };
        };
        if step.end != "open" {
            return step.end;
        }
        match begin.in_doubt {
            InDoubt::Repeat if step.repeatable => {
                let mine = step.begun_by == self.token();
                if mine || self.now_ms >= step.until_ms { self.run(begin, true) } else { "settling" }
            }
            InDoubt::Reconcile { settle_ms } => {
                if self.now_ms >= step.until_ms + settle_ms.0 {
                    "reconcile"
                } else {
                    "settling"
                }
            }
            InDoubt::Repeat | InDoubt::Hold => {
                self.write(Line::Held(HoldReason::StepInDoubt));
                "step held"
            }
        }
    }

    fn run(&mut self, begin: &BeginEffect, repeatable: bool) -> Word {
        let until_ms = self.now_ms + begin.limit_ms.0;
        self.write(Line::Begun { name: begin.name.clone(), repeatable, until_ms });
        "run"
    }

    fn finish(&mut self, name: String, result: &StepResult) {
        self.write(match result {
            StepResult::Done(_) => Line::Done(name),
            StepResult::Refused(_) => Line::Refused(name),
            StepResult::NotSent => Line::NotSent(name),
        });
    }

    // What a person may decide.

    fn operator(&mut self, operator: &OperatorCommand) -> Word {
        if self.is_absent() || operator.seen.0 != self.token() {
            return "fenced";
        }
        let token = self.next;
        match &operator.act {
            OperatorAct::Forget => self.diary.clear(),
            OperatorAct::ExtendWindow(Millis(span_ms)) => {
                let fits = (1..=keyclaim::limits::HORIZON_MS_MAX).contains(span_ms);
                if !self.is_complete() || self.now_ms >= self.window_until() || !fits {
                    return "invalid";
                }
                self.write(Line::Extended { until_ms: self.now_ms + span_ms });
                self.write(Line::Resolved { token });
            }
            _ if !self.is_held() => return "invalid",
            OperatorAct::ResolveAbsent => self.diary.clear(),
            OperatorAct::ResolveComplete(outcome) => {
                self.write(Line::Completed { class: outcome.class });
                self.write(Line::Resolved { token });
            }
            OperatorAct::ResolveResumable(result) => {
                if let Some(result) = result {
                    let Some(open) = self.open() else { return "invalid" };
                    self.finish(open.name, result);
                }
                self.write(Line::Resumable);
                self.write(Line::Resolved { token });
            }
        }
        "operator"
    }

    // Upkeep.

    fn take(&mut self, tries_max: u32) -> Word {
        let over = self.lease_until().is_some_and(|until_ms| self.now_ms >= until_ms + self.pause());
        if self.is_absent() || self.is_held() || self.is_complete() || !over || !self.can_be_finished() {
            return "nothing";
        }
        let may = self.has_recorded() || self.is_resumable() || !self.holds;
        if !may || self.tries() >= tries_max as usize {
            let reason = if may { HoldReason::TriedTooOften } else { HoldReason::Abandoned };
            self.write(Line::Held(reason));
            return "held";
        }
        let lease_ms = self.lease_ms();
        self.write(Line::Attempt { token: self.next, nonce: 9, lease_ms, claim_wrote: false });
        self.write(Line::Tried);
        "takeover"
    }

    fn untold(&mut self, token: u64) -> Word {
        let was_told =
            self.since_attempt().any(|(_, line)| matches!(line, Line::ToldAgain | Line::Numbered { .. }));
        if self.is_absent()
            || self.token() != token
            || self.is_held()
            || self.is_complete()
            || self.has_ended()
            || was_told
        {
            return "nothing";
        }
        if self.attempts() == 1 && !self.has_recorded() {
            self.diary.clear();
        } else {
            self.write(Line::Undone);
        }
        "undone"
    }

    fn sweep(&mut self) -> Word {
        if self.is_absent() {
            return "removed";
        }
        if let Some(class) = self.class() {
            let dropped = self.has(|line| matches!(line, Line::BodyDropped));
            if class != OutcomeClass::Success || self.now_ms < self.window_until() || dropped {
                return "not due";
            }
            self.write(Line::BodyDropped);
            return "tombstone";
        }
        if self.now_ms < self.horizon_until() {
            return "not due";
        }
        self.write(Line::Reported);
        "unfinished"
    }

    // Questions to the diary.

    fn write(&mut self, line: Line) {
        self.diary.push((self.now_ms, line));
    }

    fn has(&self, is: impl Fn(&Line) -> bool) -> bool {
        self.diary.iter().any(|(_, line)| is(line))
    }

    fn is_absent(&self) -> bool {
        self.diary.is_empty()
    }

    /// The lines that decide where the record stands; the last of them wins.
    fn standing(&self) -> Option<&Line> {
        self.diary.iter().rev().map(|(_, line)| line).find(|line| {
            matches!(line, Line::Attempt { .. } | Line::Completed { .. } | Line::Held(_) | Line::Resumable)
        })
    }

    fn is_complete(&self) -> bool {
        matches!(self.standing(), Some(Line::Completed { .. }))
    }

    fn class(&self) -> Option<OutcomeClass> {
        match self.standing() {
            Some(Line::Completed { class }) => Some(*class),
            _ => None,
        }
    }

    fn hold_reason(&self) -> Option<HoldReason> {
        match self.standing() {
            Some(Line::Held(reason)) => Some(*reason),
            _ => None,
        }
    }

    fn is_held(&self) -> bool {
        self.hold_reason().is_some()
    }

    fn token(&self) -> u64 {
        self.diary
            .iter()
            .rev()
            .find_map(|(_, line)| match line {
                Line::Attempt { token, .. } | Line::Resolved { token } => Some(*token),
                _ => None,
            })
            .expect("a diary begins with an attempt")
    }

    fn attempts(&self) -> usize {
        self.diary.iter().filter(|(_, line)| matches!(line, Line::Attempt { .. })).count()
    }

    /// The tries since an outcome or a person last began a new count.
    fn tries(&self) -> usize {
        let begins = |line: &(u64, Line)| matches!(line.1, Line::Completed { .. } | Line::Resolved { .. });
        let at = self.diary.iter().rposition(begins).unwrap_or(0);
        self.diary.iter().skip(at).filter(|(_, line)| matches!(line, Line::Tried)).count()
    }

    /// How long after the end of an attempt the next try waits.
    fn pause(&self) -> u64 {
        let (mut pause, mut tries) = (0, 0);
        for (_, line) in &self.diary {
            match line {
                Line::Completed { .. } | Line::Resolved { .. } => (pause, tries) = (0, 0),
                // The middle of a bound of 800 that doubles up to 3,000.
                Line::Tried => {
                    tries += 1;
                    pause = [0, 400, 800][..].get(tries).copied().unwrap_or(1_500);
                }
                Line::Postponed { by_ms } => pause = pause.max(*by_ms),
                _ => {}
            }
        }
        pause
    }

    fn since_attempt(&self) -> impl DoubleEndedIterator<Item = &(u64, Line)> {
        let at = self.diary.iter().rposition(|(_, line)| matches!(line, Line::Attempt { .. })).unwrap_or(0);
        self.diary.iter().skip(at)
    }

    /// The last numbered command for the current token.
    fn last_numbered(&self) -> Option<(u64, Act)> {
        let last = self.diary.iter().rev().map(|(_, line)| line).find(|line| {
            matches!(line, Line::Attempt { .. } | Line::Resolved { .. } | Line::Numbered { .. })
        });
        match last {
            Some(Line::Numbered { seq, act }) => Some((*seq, act.clone())),
            _ => None,
        }
    }

    fn nonce(&self) -> u8 {
        match self.since_attempt().next() {
            Some((_, Line::Attempt { nonce, .. })) => *nonce,
            _ => 0,
        }
    }

    /// Whether the attempt ended by command, its owner's or a person's.
    fn has_ended(&self) -> bool {
        self.since_attempt().any(|(_, line)| matches!(line, Line::Ended | Line::Resolved { .. }))
    }

    fn is_resumable(&self) -> bool {
        let last = self
            .since_attempt()
            .rev()
            .find(|(_, line)| matches!(line, Line::Resumable | Line::Undone | Line::ToldAgain));
        matches!(last, Some((_, Line::Resumable | Line::Undone)))
    }

    fn lease_ms(&self) -> Option<u64> {
        self.since_attempt().fold(None, |lease_ms, (_, line)| match line {
            Line::Attempt { lease_ms, .. } => *lease_ms,
            Line::Renewed { asked_ms: Some(asked_ms) } => Some(*asked_ms),
            _ => lease_ms,
        })
    }

    fn lease_until(&self) -> Option<u64> {
        let (mut until, mut length) = (None::<u64>, None);
        let mut open_until = self.left_open_until().unwrap_or(0);
        for (at_ms, line) in self.since_attempt() {
            match line {
                Line::Attempt { lease_ms, .. } => {
                    length = *lease_ms;
                    until = length.map(|length| at_ms + length);
                }
                Line::ToldAgain => {
                    if let (Some(before), Some(length)) = (until, length) {
                        until = Some(before.max(at_ms + length));
                    }
                }
                Line::Renewed { asked_ms } => {
                    length = asked_ms.or(length);
                    let renewed = length.map(|length| open_until.max(at_ms + length));
                    until = match (renewed, until) {
                        (None, until) => until,
                        (Some(renewed), Some(until)) if asked_ms.is_none() => Some(renewed.max(until)),
                        (renewed, _) => renewed,
                    };
                }
                Line::Begun { until_ms, .. } => {
                    open_until = *until_ms;
                    until = until.map(|until| until.max(*until_ms));
                }
                Line::Done(_) | Line::Refused(_) | Line::NotSent(_) => open_until = 0,
                Line::Ended | Line::Undone | Line::Resumable => until = Some(open_until.max(*at_ms)),
                _ => {}
            }
        }
        until
    }

    /// The limit of a step that earlier attempts left open.
    fn left_open_until(&self) -> Option<u64> {
        let at = self.diary.len() - self.since_attempt().count();
        steps(&self.diary[..at]).last().filter(|step| step.end == "open").map(|step| step.until_ms)
    }

    fn steps(&self) -> Vec<Step> {
        steps(&self.diary)
    }

    fn open(&self) -> Option<Step> {
        self.steps().last().filter(|step| step.end == "open").cloned()
    }

    fn covered(&self) -> usize {
        let at = self.diary.iter().rposition(|(_, line)| matches!(line, Line::Pointed));
        at.map_or(0, |at| steps(&self.diary[..at]).len())
    }

    fn has_recorded(&self) -> bool {
        let marked = |line: &Line| matches!(line, Line::Pointed | Line::Attempt { claim_wrote: true, .. });
        !self.steps().is_empty() || self.has(marked)
    }

    fn can_be_finished(&self) -> bool {
        let completed =
            self.diary.iter().rposition(|(_, line)| matches!(line, Line::Completed { .. })).unwrap_or(0);
        self.diary.iter().skip(completed).any(|(_, line)| matches!(line, Line::Finishable))
    }

    fn window_until(&self) -> u64 {
        self.diary.iter().fold(0, |until, (at_ms, line)| match line {
            Line::Completed { .. } => at_ms + WINDOW,
            Line::Extended { until_ms } => until.max(*until_ms),
            _ => until,
        })
    }

    /// The horizon counts from the last applied command, for what is unfinished also from its last report.
    fn horizon_until(&self) -> u64 {
        let counts = |line: &&(u64, Line)| match line.1 {
            Line::ToldAgain | Line::Renewed { .. } | Line::Undone | Line::BodyDropped => false,
            Line::Reported => !self.is_complete(),
            _ => true,
        };
        let last_ms = self.diary.iter().rev().find(counts).map_or(0, |(at_ms, _)| *at_ms);
        let window_ms = if self.is_complete() { self.window_until() } else { 0 };
        (last_ms + HORIZON).max(window_ms)
    }
}

/// The steps of a diary, in order.
fn steps(diary: &[(u64, Line)]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut token = 0;
    for (_, line) in diary {
        let end = |name: &String, word: Word, steps: &mut Vec<Step>| {
            steps.iter_mut().filter(|step| step.name == *name).for_each(|step| step.end = word);
        };
        match line {
            Line::Attempt { token: new, .. } | Line::Resolved { token: new } => token = *new,
            Line::Begun { name, repeatable, until_ms } => {
                let begun = Step {
                    name: name.clone(),
                    repeatable: *repeatable,
                    end: "open",
                    begun_by: token,
                    until_ms: *until_ms,
                };
                steps.retain(|step| step.name != *name);
                steps.push(begun);
            }
            Line::Done(name) => end(name, "done", &mut steps),
            Line::Refused(name) => end(name, "refused", &mut steps),
            Line::NotSent(name) => steps.retain(|step| step.name != *name),
            _ => {}
        }
    }
    steps
}

/// Whether what is said is within the limits.
fn fits(act: &Act) -> bool {
    match act {
        Act::Renew { lease_ms } => {
            lease_ms.is_none_or(|ms| (1..=keyclaim::limits::LEASE_MS_MAX).contains(&ms.0))
        }
        Act::Checkpoint { name, .. } | Act::FinishEffect { name, .. } => !name.is_empty(),
        Act::BeginEffect(begin) => {
            !begin.name.is_empty() && (1..=keyclaim::limits::STEP_MS_MAX).contains(&begin.limit_ms.0)
        }
        _ => true,
    }
}
