//! Histories with one mistake: what a store with a bug could have told.

use super::history::{Answer, History, Stands};
use crate::seeded::Draws;

/// The same history with one answer changed; none if the one that was drawn cannot be.
pub fn with_a_mistake(history: &History, draws: &mut Draws) -> Option<History> {
    let mut history = history.clone();
    let at = draws.below(history.operations.len() as u64);
    let other = draws.below(history.operations.len() as u64);
    let other = history.operations.get(usize::try_from(other).ok()?)?.answer.clone();
    let operation = history.operations.get_mut(usize::try_from(at).ok()?)?;
    let before = operation.answer.clone();
    match (&mut operation.answer, draws.below(3)) {
        (Answer::Unknown, _) => return None,
        (answer, 0) => *answer = other,
        (Answer::Won { token, .. } | Answer::Held { token } | Answer::Resolved { token }, _) => *token -= 1,
        (Answer::Replay { body, .. }, _) => *body += 1,
        (Answer::InFlight { until_ms } | Answer::Renewed { until_ms }, _) => *until_ms += 1,
        (Answer::Seen(Some(look)), 1) => look.stands = Stands::Held,
        (answer @ Answer::Seen(_), _) => *answer = Answer::Seen(None),
        (answer @ Answer::Done, _) => *answer = Answer::Fenced,
        (answer @ Answer::Fenced, _) => *answer = Answer::Done,
        (answer, _) => *answer = other,
    }
    (operation.answer != before).then_some(history)
}
