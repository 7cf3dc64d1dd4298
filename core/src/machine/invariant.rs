//! What must be true of every record, checked just before it is written and just after it is read.

use super::record::{Body, OutcomeClass, Record, State, StepProgress};
use crate::limits::STEPS_MAX;

impl Record {
    /// Checks what is true of every record the machine makes; the error names the rule that is broken.
    ///
    /// Kept in release builds: a wrong record here charges a card twice.
    pub fn check(&self) -> Result<(), &'static str> {
        let rule = |holds: bool, rule: &'static str| if holds { Ok(()) } else { Err(rule) };
        rule(self.token.0 > 0 && self.generation.0 > 0, "tokens begin at 1")?;
        rule(self.generation.0 <= self.token.0, "a generation is its first token")?;
        rule(self.attempt > 0, "attempts begin at 1")?;
        rule(self.created_ms <= self.applied_ms, "no command was applied before its generation began")?;
        rule(self.policy.window_ms <= self.policy.horizon_ms, "a horizon is not shorter than the window")?;
        rule(self.policy.window_ms.0 > 0, "a window is not empty")?;
        rule(self.policy.lease_ms.is_none_or(|lease_ms| lease_ms.0 > 0), "a lease is not empty")?;
        self.check_steps()?;
        match &self.state {
            State::InFlight { .. } | State::Held { .. } => Ok(()),
            State::Complete { outcome, completed_ms, window_until_ms } => {
                let is_success = outcome.class == OutcomeClass::Success;
                rule(
                    completed_ms < window_until_ms || window_until_ms.0 == u64::MAX,
                    "a window is not empty",
                )?;
                rule(self.request.is_none(), "a request is kept until complete")?;
                rule(!is_success || self.steps.is_empty(), "a success needs no steps any more")?;
                rule(
                    !matches!(outcome.response.body, Body::Here(ref bytes) if bytes.0.len() > crate::limits::BODY_LEN_MAX),
                    "a body is bounded",
                )
            }
        }
    }

    fn check_steps(&self) -> Result<(), &'static str> {
        let rule = |holds: bool, rule: &'static str| if holds { Ok(()) } else { Err(rule) };
        rule(self.steps.len() <= STEPS_MAX, "steps are bounded")?;
        let covers = self.point.as_ref().map_or(0, |point| point.covers as usize);
        rule(covers <= self.steps.len(), "a recovery point covers recorded steps only")?;
        let settled = self.steps.split_last().map_or(&[][..], |(_, before)| before);
        let is_open = |progress: &StepProgress| matches!(progress, StepProgress::Begun { .. });
        rule(!settled.iter().any(|step| is_open(&step.progress)), "only the last step is open")?;
        let repeats = |at: usize| {
            self.steps
                .iter()
                .skip(at + 1)
                .any(|other| Some(&other.name) == self.steps.get(at).map(|step| &step.name))
        };
        rule(!(0..self.steps.len()).any(repeats), "a step's name is used once")
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::sound;
    use super::super::record::{Blob, Outcome, Point, Response, Step};
    use super::*;
    use crate::limits::BODY_LEN_MAX;
    use crate::{Generation, Millis, Policy, Token};

    fn complete(class: OutcomeClass, window_until_ms: u64, body_len: usize) -> Record {
        let body = Body::Here(Blob(vec![0; body_len]));
        let outcome = Outcome { class, response: Response { status: 201, headers: Vec::new(), body } };
        let (completed_ms, window_until_ms) = (Millis(7), Millis(window_until_ms));
        let state = State::Complete { outcome, completed_ms, window_until_ms };
        Record { request: None, state, ..sound() }
    }

    fn step(name: &str, progress: StepProgress) -> Step {
        Step { name: name.into(), repeatable: false, progress }
    }

    fn done(name: &str) -> Step {
        step(name, StepProgress::Done(Blob(Vec::new())))
    }

    fn open(name: &str) -> Step {
        step(name, StepProgress::Begun { token: Token(1), until_ms: Millis(9) })
    }

    fn point(covers: u32) -> Point {
        Point { name: "half".into(), data: Blob(Vec::new()), covers }
    }

    #[test]
    fn what_just_holds_holds() {
        let failure = OutcomeClass::Failure(crate::AfterFailure::Replay);
        let steps = (0..STEPS_MAX).map(|n| done(&n.to_string())).collect();
        for record in [
            sound(),
            Record { token: Token(2), ..sound() },
            Record { policy: Policy { lease_ms: None, ..sound().policy }, ..sound() },
            Record { steps, point: Some(point(u32::try_from(STEPS_MAX).expect("few"))), ..sound() },
            Record { steps: vec![done("a"), open("b")], point: Some(point(2)), ..sound() },
            complete(OutcomeClass::Success, 8, BODY_LEN_MAX),
            Record { steps: vec![done("a")], ..complete(failure, 8, 0) },
            // The end of time has no later one.
            complete(OutcomeClass::Success, u64::MAX, 0),
        ] {
            assert_eq!(record.check(), Ok(()), "{record:?}");
        }
        let mut at_the_end = complete(OutcomeClass::Success, u64::MAX, 0);
        if let State::Complete { completed_ms, .. } = &mut at_the_end.state {
            *completed_ms = Millis(u64::MAX);
        }
        assert_eq!(at_the_end.check(), Ok(()));
    }

    #[test]
    fn each_rule_is_broken_by_what_breaks_it() {
        let policy = |change: fn(&mut Policy)| {
            let mut record = sound();
            change(&mut record.policy);
            record
        };
        let steps = |steps: Vec<Step>| Record { steps, ..sound() };
        let success = |window_until_ms| complete(OutcomeClass::Success, window_until_ms, 0);
        for (rule, record) in [
            ("tokens begin at 1", Record { token: Token(0), ..sound() }),
            ("tokens begin at 1", Record { generation: Generation(0), ..sound() }),
            ("a generation is its first token", Record { generation: Generation(2), ..sound() }),
            ("attempts begin at 1", Record { attempt: 0, ..sound() }),
            (
                "no command was applied before its generation began",
                Record { applied_ms: Millis(4), ..sound() },
            ),
            ("a horizon is not shorter than the window", policy(|policy| policy.window_ms = Millis(2))),
            ("a window is not empty", policy(|policy| policy.window_ms = Millis(0))),
            ("a lease is not empty", policy(|policy| policy.lease_ms = Some(Millis(0)))),
            ("a window is not empty", success(7)),
            ("a window is not empty", success(6)),
            ("a request is kept until complete", Record { request: sound().request, ..success(8) }),
            ("a success needs no steps any more", Record { steps: vec![done("a")], ..success(8) }),
            ("a body is bounded", complete(OutcomeClass::Success, 8, BODY_LEN_MAX + 1)),
            ("steps are bounded", steps((0..=STEPS_MAX).map(|n| done(&n.to_string())).collect())),
            ("a recovery point covers recorded steps only", Record { point: Some(point(1)), ..sound() }),
            ("only the last step is open", steps(vec![open("a"), done("b")])),
            ("a step's name is used once", steps(vec![done("a"), done("b"), done("a")])),
            ("a step's name is used once", steps(vec![done("a"), open("a")])),
        ] {
            assert_eq!(record.check(), Err(rule), "{record:?}");
        }
    }
}
