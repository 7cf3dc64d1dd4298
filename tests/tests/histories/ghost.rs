//! The second book: what has been answered so far, and what that forbids.

use keyclaim::machine::{Act, Answer, Decision, EffectAnswer, InDoubt, OwnerAnswer, Replay, Won, WonKind};
use keyclaim::{Generation, Token};

/// What was answered about one key, from the beginning.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ghost {
    /// Every token that was given out, in order.
    pub(crate) issued: Vec<Token>,
    /// The one token that is obeyed: the last one given out, or the one before a win that was undone.
    pub(crate) live: Option<Token>,
    /// The generation of the last win.
    pub(crate) generation: Option<Generation>,
    /// Steps of this generation whose result was recorded as done.
    pub(crate) done: Vec<String>,
    /// Steps of this generation that may run once, and ran.
    pub(crate) ran: Vec<String>,
    /// What must be replayed until its window is over.
    pub(crate) replay: Option<Replay>,
}

impl Ghost {
    pub(crate) fn won(&mut self, won: &Won) {
        if won.kind == WonKind::Again {
            assert_eq!(self.live, Some(won.token), "only the attempt that runs is told again");
            return;
        }
        self.issue(won.token);
        let is_new = matches!(won.kind, WonKind::Fresh | WonKind::ReusedAfterWindow);
        if is_new {
            assert_eq!(won.generation.0, won.token.0, "a generation is its first token");
            assert_eq!((won.attempt, won.steps.len()), (1, 0), "a new generation begins empty");
            self.forget();
        } else {
            assert_eq!(Some(won.generation), self.generation, "an attempt stays in its generation");
            for name in &self.done {
                assert!(won.steps.iter().any(|step| step.name == *name), "{name} was handed over");
            }
        }
        self.replay = None;
        self.generation = Some(won.generation);
    }

    pub(crate) fn issue(&mut self, token: Token) {
        assert!(self.issued.last().is_none_or(|last| *last < token), "tokens strictly increase");
        self.issued.push(token);
        self.live = Some(token);
    }

    /// The key is new for whoever comes next.
    pub(crate) fn forget(&mut self) {
        (self.done, self.ran, self.replay) = (Vec::new(), Vec::new(), None);
    }

    pub(crate) fn said(&mut self, act: &Act, answer: &OwnerAnswer) {
        match (act, answer) {
            (Act::BeginEffect(begin), OwnerAnswer::Effect(EffectAnswer::Run { .. })) => {
                assert!(!self.done.contains(&begin.name), "a step that is done is never run again");
                assert!(!self.ran.contains(&begin.name), "a step that may not be repeated ran twice");
                if begin.in_doubt != InDoubt::Repeat {
                    self.ran.push(begin.name.clone());
                }
            }
            (Act::BeginEffect(begin), OwnerAnswer::Effect(EffectAnswer::Done { .. })) => {
                assert!(self.done.contains(&begin.name), "only what is done is told as done");
            }
            (Act::FinishEffect { name, result }, OwnerAnswer::EffectFinished) => match result {
                keyclaim::machine::StepResult::NotSent => self.ran.retain(|ran| ran != name),
                _ => self.done.push(name.clone()),
            },
            (_, OwnerAnswer::Released) => self.forget(),
            _ => {}
        }
    }

    pub(crate) fn decided(&mut self, decision: &Decision) {
        match decision {
            Decision::Won(won) => self.won(won),
            Decision::Replay(replay) => assert_eq!(Some(replay), self.replay.as_ref(), "a replay is exact"),
            _ => {}
        }
    }

    pub(crate) fn answered(&mut self, answer: &Answer) {
        match answer {
            Answer::Decision(decision) => self.decided(decision),
            Answer::Operator(token) => self.issue(*token),
            _ => {}
        }
    }
}
