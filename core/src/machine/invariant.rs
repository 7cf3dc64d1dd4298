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
