//! What a handler is given, what it says, and what a person is shown of what could not be delivered.

use super::event::{Event, EventId};
use super::row::{Place, Row, Standing};
use crate::key::{Key, Scope};
use crate::limits::FAILURE_LEN_MAX;
use crate::{Millis, Result, StoreId, Token, codec};

/// One delivery of an event. The same event may be delivered more than once, always with the same
/// [`id`](Self::id) and [`key`](Self::key).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Delivery {
    /// Names the event in this store.
    pub id: EventId,
    /// Names the event everywhere: publish it with the event. A consumer that claims on it acts once.
    pub key: Key,
    /// The scope of the key that emitted it.
    pub scope: Scope,
    /// What is published.
    pub event: Event,
    /// Which delivery of the event this is, from 1; counted anew once a person requeued it.
    pub attempt: u32,
    /// When the event was committed.
    pub created_ms: Millis,
    /// When it is due for somebody else, in store time: end before that.
    pub lease_until_ms: Millis,
    pub(crate) token: Token,
    pub(crate) place: Place,
}

/// Why an event was not published, and whether to try again.
///
/// Any [`std::error::Error`] becomes one that is tried again, so `?` serves in a handler. The reason is stored
/// with the event, cut off behind 255 bytes, and shown to whoever looks at the dead letter; it is never logged.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PublishError {
    reason: String,
    is_refused: bool,
}

/// An event that no relay delivers any more. It stops its ordering key until a person requeues or drops it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct DeadLetter {
    /// Names the event in this store.
    pub id: EventId,
    /// What to name when it is requeued or dropped; new with every death.
    pub token: Token,
    /// The scope of the key that emitted it.
    pub scope: Scope,
    /// What was to be published.
    pub event: Event,
    /// How many deliveries were begun.
    pub attempts: u32,
    /// What the last failed delivery said.
    pub failure: Option<String>,
    /// When the event was committed.
    pub created_ms: Millis,
    /// Since when it is dead.
    pub since_ms: Millis,
}

/// What a relay, or one pass of it, has done.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Relayed {
    /// Entries of the due index that were read to find what to lease.
    pub rows_read: u64,
    /// Deliveries that were handed to the handler.
    pub begun: u64,
    /// Events that were published, and are gone from the outbox.
    pub published: u64,
    /// Deliveries that failed and are tried again; those of a handler that panicked are among them.
    pub failed: u64,
    /// Handlers that panicked.
    pub panicked: u64,
    /// Events that became dead letters.
    pub dead: u64,
    /// Deliveries given back without having begun.
    pub returned: u64,
    /// Deliveries whose end came too late: the event was leased anew, or was gone.
    pub overtaken: u64,
    /// Due events that cannot be read: damaged, or written by a newer keyclaim. They stay.
    pub damaged: u64,
    /// Deliveries that still run, or whose end could not be stored. They are delivered again.
    pub open: u64,
}

impl Delivery {
    /// What an engine hands over for the event of this place, which it leased with this token.
    ///
    /// Errors: `Corrupt` if the scope is none.
    pub fn of(store: StoreId, place: Place, row: Row, token: Token) -> Result<Self> {
        Ok(Self {
            id: row.id,
            key: row.id.key(store),
            scope: scope(&row)?,
            attempt: row.attempts,
            created_ms: row.created_ms,
            lease_until_ms: row.slot().when,
            event: row.event,
            token,
            place,
        })
    }
}

impl DeadLetter {
    /// What an engine shows of this event; none if it is no dead letter. Errors: `Corrupt` if the scope is none.
    pub fn of(row: Row) -> Result<Option<Self>> {
        let Standing::Dead { token, since_ms } = row.standing else { return Ok(None) };
        Ok(Some(Self {
            id: row.id,
            token,
            scope: scope(&row)?,
            event: row.event,
            attempts: row.attempts,
            failure: row.failure,
            created_ms: row.created_ms,
            since_ms,
        }))
    }
}

impl PublishError {
    /// It was not published, or nobody knows: try again, after a delay.
    pub fn again(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), is_refused: false }
    }

    /// It never will be: make it a dead letter at once.
    pub fn refused(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), is_refused: true }
    }

    /// What was said.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Whether it is not to be tried again.
    pub fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// As much of the reason as is stored.
    pub(super) fn cut(&self) -> String {
        let end = self.reason.floor_char_boundary(FAILURE_LEN_MAX);
        self.reason.get(..end).unwrap_or_default().to_owned()
    }
}

impl<E: std::error::Error> From<E> for PublishError {
    fn from(error: E) -> Self {
        Self::again(error.to_string())
    }
}

fn scope(row: &Row) -> Result<Scope> {
    Scope::new(&row.scope.0).map_err(|_| codec::corrupt("scope"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_off_between_two_characters() {
        assert_eq!(PublishError::again("\u{1f600}".repeat(64)).cut().len(), 252);
        assert_eq!(PublishError::again("short").cut(), "short");
    }

    #[test]
    fn any_error_is_one_that_is_tried_again() {
        let error: PublishError = std::fmt::Error.into();
        assert!(!error.is_refused() && !error.reason().is_empty());
        assert!(PublishError::refused("no such topic").is_refused());
    }
}
