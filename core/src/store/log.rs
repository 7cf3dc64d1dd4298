//! What is told to `tracing`: never a key, a scope or a body, only the id's short hash.

use crate::key::Id;
use crate::machine::{Answer, Command, Decision, OwnerAnswer, WonKind};
use crate::{ErrorKind, Result};

/// Tells what a command was answered, where somebody might have to look into it.
pub(super) fn answer(id: &Id, command: &Command, answer: &Result<Answer>) {
    if !tracing::enabled!(target: "keyclaim", tracing::Level::ERROR) {
        return;
    }
    match answer {
        Ok(Answer::Decision(Decision::Won(won))) => match won.kind {
            WonKind::Takeover => {
                tracing::warn!(target: "keyclaim", id = %id.short_hash(), token = won.token.0, attempt = won.attempt, "taken over");
            }
            kind => {
                tracing::debug!(target: "keyclaim", id = %id.short_hash(), token = won.token.0, ?kind, "won");
            }
        },
        Ok(Answer::Decision(Decision::Held { reason, token })) => {
            tracing::warn!(target: "keyclaim", id = %id.short_hash(), token = token.0, ?reason, "held; resolve it");
        }
        Ok(Answer::Decision(decision)) => {
            tracing::debug!(target: "keyclaim", id = %id.short_hash(), decision = decision.name(), "claim lost");
        }
        Ok(Answer::Owner(OwnerAnswer::Completed)) => {
            tracing::debug!(target: "keyclaim", id = %id.short_hash(), "completed");
        }
        Ok(Answer::Operator(token)) => {
            tracing::info!(target: "keyclaim", id = %id.short_hash(), token = token.0, "changed by an operator");
        }
        Ok(Answer::Undone) => {
            tracing::debug!(target: "keyclaim", id = %id.short_hash(), "win let go of, nobody was left to be told");
        }
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::Fenced && matches!(command, Command::Owner(_)) => {
            tracing::warn!(target: "keyclaim", id = %id.short_hash(), "an overtaken owner was refused");
        }
        Err(error) => {
            tracing::debug!(target: "keyclaim", id = %id.short_hash(), kind = error.kind().name(), "refused");
        }
    }
}
