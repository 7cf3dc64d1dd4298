//! What time does to a record, one record at a time.

use super::command::Facts;
use super::decision::{Answer, Swept, Verdict};
use super::record::{DropReason, Record, State};
use crate::policy::Millis;

/// Whether a record counts as absent: finished, and past its horizon, swept or not.
pub fn is_past(record: &Record, now_ms: Millis) -> bool {
    matches!(record.state, State::Complete { .. }) && now_ms >= record.horizon_until_ms()
}

pub(super) fn sweep(record: Option<&Record>, facts: Facts) -> Verdict {
    let Some(record) = record else {
        // Past its horizon, or gone already; deleting what is not there is nothing to an engine.
        return Verdict::deletes(Answer::Swept(Swept::Removed));
    };
    match &record.state {
        State::Complete { outcome, window_until_ms, .. }
            if outcome.outlives_window() && facts.now_ms >= *window_until_ms =>
        {
            Verdict::puts(tombstone(record), Ok(Answer::Swept(Swept::Tombstone)))
        }
        // What is unfinished never ends by time alone; it is reported, once a horizon.
        State::InFlight { .. } | State::Held { .. }
            if facts.now_ms >= record.horizon_until_ms() && !facts.owner_lives_here =>
        {
            let mut record = record.clone();
            record.reported_ms = Some(facts.now_ms);
            Verdict::puts(record, Ok(Answer::Swept(Swept::Unfinished)))
        }
        State::Complete { .. } | State::InFlight { .. } | State::Held { .. } => {
            Verdict::says(Answer::Swept(Swept::NotDue))
        }
    }
}

fn tombstone(record: &Record) -> Record {
    let mut record = record.clone();
    if let State::Complete { outcome, .. } = &mut record.state {
        outcome.response.headers = Vec::new();
        outcome.response.body = outcome.response.body.dropped(DropReason::WindowOver);
    }
    record
}
