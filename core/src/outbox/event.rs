//! What is emitted: an event, and the id that names it for ever.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::key::Key;
use crate::limits::{EVENT_ORDERING_KEY_LEN_MAX, EVENT_PAYLOAD_LEN_MAX, EVENT_TOPIC_LEN_MAX, EVENTS_MAX};
use crate::machine::Blob;
use crate::{Error, Generation, Result, StoreId};

/// Something to be published: committed together with what a claim records, or not at all.
///
/// *Shape*: a topic of 1 to 255 bytes, a payload of at most 64 KiB, and if wanted an ordering key of 1 to 255
/// bytes. At most 64 events travel with one command. Nothing is checked here; the command that carries the
/// event is `Invalid` if it is out of bounds, and then changes nothing.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Event {
    pub(super) topic: String,
    pub(super) ordering_key: Option<Blob>,
    pub(super) payload: Blob,
}

/// Names one event of one store, the same at every delivery: the generation that emitted it, and its number in
/// that generation, from 0.
///
/// *Shape*: as text `<generation>-<number>`, both decimal without leading zeros, such as `4211-0`.
/// [`Display`](fmt::Display) writes it and [`FromStr`] reads it back. It is unique within its store; across
/// stores only [`EventId::key`] is.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct EventId {
    /// The intent that emitted it.
    pub generation: Generation,
    /// Which event of that intent it is, from 0.
    pub number: u32,
}

impl Event {
    /// An event for this topic, with no ordering key: it waits for no other event.
    pub fn new(topic: impl Into<String>, payload: impl Into<Vec<u8>>) -> Self {
        Self { topic: topic.into(), ordering_key: None, payload: Blob(payload.into()) }
    }

    /// Publishes it behind all events that were committed before it with the same scope and ordering key.
    ///
    /// The order holds for first deliveries: one that is repeated may come behind a later event.
    #[must_use]
    pub fn ordering_key(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.ordering_key = Some(Blob(key.into()));
        self
    }

    /// Where it is published to.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// What is published.
    pub fn payload(&self) -> &[u8] {
        &self.payload.0
    }

    /// What it is ordered by, if it is.
    pub fn ordered_by(&self) -> Option<&[u8]> {
        self.ordering_key.as_ref().map(|key| key.0.as_slice())
    }

    pub(super) fn check(&self) -> Result<(), &'static str> {
        let has = |holds: bool, reason: &'static str| if holds { Ok(()) } else { Err(reason) };
        has(
            (1..=EVENT_TOPIC_LEN_MAX).contains(&self.topic.len()),
            "an event's topic must have 1 to 255 bytes",
        )?;
        has(
            self.ordered_by().is_none_or(|key| (1..=EVENT_ORDERING_KEY_LEN_MAX).contains(&key.len())),
            "an event's ordering key must have 1 to 255 bytes; leave it out if order does not matter",
        )?;
        has(
            self.payload.0.len() <= EVENT_PAYLOAD_LEN_MAX,
            "an event's payload is over 64 KiB; store it elsewhere and publish where",
        )
    }
}

/// Checks the events of one command; the error says which bound they break.
pub fn check(events: &[Event]) -> Result<(), &'static str> {
    if events.len() > EVENTS_MAX {
        return Err("one command carries at most 64 events; emit the others with another");
    }
    events.iter().try_for_each(Event::check)
}

impl EventId {
    /// A key that names this event wherever it is claimed: `<store>-<generation>-<number>`, at most 64 bytes.
    ///
    /// A consumer that claims on it acts once on however many deliveries. It holds the producing store's id (32
    /// hex digits), so events of several stores, and of one that was made anew, can be claimed in one scope.
    pub fn key(self, store: StoreId) -> Key {
        short_key(&format!("{store}-{self}"))
    }
}

fn short_key(text: &str) -> Key {
    Key::new(text).expect("it has at most 64 bytes, and not none")
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.generation, self.number)
    }
}

impl FromStr for EventId {
    type Err = Error;

    /// Reads the text form; `Invalid` if it is not exactly what [`Display`](fmt::Display) writes.
    fn from_str(text: &str) -> Result<Self> {
        let parts = text.split_once('-').and_then(|(generation, number)| {
            Some(Self { generation: Generation(generation.parse().ok()?), number: number.parse().ok()? })
        });
        parts.filter(|id| id.to_string() == text).ok_or_else(|| {
            Error::invalid("an event id is <generation>-<number>, both decimal; copy it as it was printed")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(generation: u64, number: u32) -> EventId {
        EventId { generation: Generation(generation), number }
    }

    #[test]
    fn an_id_reads_back_from_its_text_and_from_no_other() {
        for id in [id(1, 0), id(u64::MAX, u32::MAX)] {
            assert_eq!(id.to_string().parse::<EventId>().expect("its own text"), id);
        }
        for text in ["", "-", "1", "1-", "-1", "01-0", "+1-0", "1-0 ", "1-4294967296", "1-0-0", "a-b"] {
            assert!(text.parse::<EventId>().is_err(), "{text:?} was read");
        }
    }

    #[test]
    fn the_longest_key_of_an_event_fits_and_names_its_store() {
        let key = id(u64::MAX, u32::MAX).key(StoreId([0xab; 16]));
        assert_eq!(key.as_bytes().len(), 64);
        assert_ne!(id(1, 0).key(StoreId([1; 16])), id(1, 0).key(StoreId([2; 16])));
    }

    #[test]
    fn an_event_is_bounded_at_both_ends() {
        let fits = |event: Event| event.check().is_ok();
        assert!(fits(Event::new("t".repeat(255), vec![0; 65_536]).ordering_key([1; 255])));
        assert!(fits(Event::new("t", [])));
        assert!(!fits(Event::new("", [])));
        assert!(!fits(Event::new("t".repeat(256), [])));
        assert!(!fits(Event::new("t", vec![0; 65_537])));
        assert!(!fits(Event::new("t", []).ordering_key([])));
        assert!(!fits(Event::new("t", []).ordering_key([1; 256])));
        assert!(check(&vec![Event::new("t", []); 64]).is_ok());
        assert!(check(&vec![Event::new("t", []); 65]).is_err());
    }
}
