//! One stored event, and where it stands.
//!
//! | key of a row in `outbox` | |
//! |---|---|
//! | with an ordering key | 1, scope, ordering key (each behind its length, 1), order (8), number (4) |
//! | without | 0, order (8), number (4) |
//!
//! Numbers are big-endian. `order` is a store token taken by the command that emitted the event, so the rows of
//! one scope and ordering key are a **chain** in the order of their commits. Only the first row of a chain has a
//! place in the due index: what waits behind it costs a relay nothing.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::event::{Event, EventId};
use crate::codec::{self, Kind};
use crate::key::Scope;
use crate::limits::{EVENT_ORDERING_KEY_LEN_MAX, SCOPE_LEN_MAX};
use crate::machine::Blob;
use crate::rows::{Lane, Slot};
use crate::{Error, ErrorKind, Millis, Result, Token};

/// A stored event.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Row {
    /// What is published.
    pub event: Event,
    /// Its name.
    pub id: EventId,
    /// The scope of the key that emitted it.
    pub scope: Blob,
    /// When it was committed.
    pub created_ms: Millis,
    /// How many deliveries of it were begun since it was committed or requeued.
    pub attempts: u32,
    /// What the last failed delivery said, in the handler's own words.
    pub failure: Option<String>,
    /// Where it stands.
    pub standing: Standing,
}

/// Where a stored event stands.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Standing {
    /// Nobody delivers it now. It is due from `from_ms` on, once it is the first of its chain.
    Waiting {
        /// From when on.
        from_ms: Millis,
    },
    /// A relay delivers it, or did when it died.
    Leased {
        /// The only token whose ack or nack counts.
        token: Token,
        /// When it is due again.
        until_ms: Millis,
    },
    /// A dead letter: it stops its chain until a person requeues or drops it.
    Dead {
        /// What an operator names it by; new with every death.
        token: Token,
        /// Since when.
        since_ms: Millis,
    },
}

/// The key of an event's row.
#[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Place(pub(crate) Vec<u8>);

impl Row {
    /// Its stored bytes, bound to its place. Errors: `Internal` if it breaks a rule.
    pub(super) fn encode(&self, place: &Place) -> Result<Vec<u8>> {
        self.check().map_err(|rule| {
            Error::new(ErrorKind::Internal, format!("an event was made that breaks a rule: {rule}"))
        })?;
        Ok(codec::seal(Kind::Event, &place.0, &codec::encode_plain(self)?))
    }

    /// The event behind stored bytes. Errors: `Corrupt` if they are damaged or stand in another row's place,
    /// `Incompatible` if a newer keyclaim wrote them.
    pub fn decode(place: &Place, bytes: &[u8]) -> Result<Self> {
        let row: Self = codec::decode_plain(codec::unseal(Kind::Event, &place.0, bytes)?)?;
        row.check().map_err(codec::corrupt)?;
        Ok(row)
    }

    /// The stored bytes around any payload, as a row of this place: see [`codec::sealed`].
    #[cfg(feature = "testing")]
    pub fn sealed(place: &Place, payload: &[u8]) -> Vec<u8> {
        codec::seal(Kind::Event, &place.0, payload)
    }

    /// Its stored bytes, for whom [`Row::decode`] is to read them. Errors: `Internal` if it breaks a rule.
    #[cfg(feature = "testing")]
    pub fn stored(&self, place: &Place) -> Result<Vec<u8>> {
        self.encode(place)
    }

    /// Its place in the due index. A waiting event has it only once it is the first of its chain.
    pub fn slot(&self) -> Slot {
        match self.standing {
            Standing::Waiting { from_ms } => Slot { lane: Lane::Outbox, when: from_ms },
            Standing::Leased { until_ms, .. } => Slot { lane: Lane::Outbox, when: until_ms },
            Standing::Dead { since_ms, .. } => Slot { lane: Lane::Dead, when: since_ms },
        }
    }

    /// Checks what is true of every stored event; the error names the rule that is broken.
    fn check(&self) -> Result<(), &'static str> {
        let rule = |holds: bool, rule: &'static str| if holds { Ok(()) } else { Err(rule) };
        self.event.check()?;
        rule((1..=SCOPE_LEN_MAX).contains(&self.scope.0.len()), "a scope is bounded")?;
        rule(self.id.generation.0 > 0, "generations begin at 1")?;
        match self.standing {
            Standing::Waiting { .. } => Ok(()),
            Standing::Leased { token, .. } => {
                rule(token.0 > 0 && self.attempts > 0, "a leased event has a token and an attempt")
            }
            Standing::Dead { token, .. } => rule(token.0 > 0, "a dead letter has a token"),
        }
    }
}

impl Place {
    /// A place of these bytes, whatever they are.
    #[cfg(feature = "testing")]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    /// Where an event is stored. Its scope and ordering key must be within their bounds.
    pub(super) fn of(scope: &Scope, event: &Event, order: Token, number: u32) -> Self {
        let mut key = match event.ordered_by() {
            Some(ordering_key) => chain(scope, ordering_key),
            None => vec![FREE],
        };
        key.extend(order.0.to_be_bytes());
        key.extend(number.to_be_bytes());
        Self(key)
    }

    /// What all rows of its chain begin with; none if it is in no chain.
    pub(super) fn chain(&self) -> Option<&[u8]> {
        match self.0.first() {
            Some(&CHAINED) => self.0.get(..self.0.len().saturating_sub(ORDER_LEN)),
            _ => None,
        }
    }
}

/// What the rows of one scope and ordering key begin with.
pub(super) fn chain(scope: &Scope, ordering_key: &[u8]) -> Vec<u8> {
    let mut prefix = vec![CHAINED];
    for part in [scope.as_bytes(), ordering_key] {
        prefix.push(u8::try_from(part.len()).expect("both were checked to have at most 255 bytes"));
        prefix.extend(part);
    }
    prefix
}

/// A key above all rows of a chain, and below those of the next one.
pub(super) fn chain_end(chain: &[u8]) -> Vec<u8> {
    [chain, &[u8::MAX; ORDER_LEN + 1]].concat()
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its bytes are a scope and an ordering key.
        write!(f, "Place({} bytes)", self.0.len())
    }
}

const FREE: u8 = 0;
const CHAINED: u8 = 1;
const ORDER_LEN: usize = 8 + 4;

// One length byte goes before each of them.
const _: () = assert!(SCOPE_LEN_MAX <= u8::MAX as usize && EVENT_ORDERING_KEY_LEN_MAX <= u8::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    fn place(scope: &[u8], ordering_key: &[u8], order: u64, number: u32) -> Place {
        let event = Event::new("t", []).ordering_key(ordering_key);
        Place::of(&Scope::new(scope).expect("valid"), &event, Token(order), number)
    }

    #[test]
    fn a_chain_holds_its_own_rows_in_their_order_and_no_others() {
        let keys: [(&[u8], &[u8]); 6] = [
            (b"a", b"k"),
            (b"a", b"kk"),
            (b"ak", b"k"),
            (b"a\xff", b"\xff"),
            (b"\xff", b"\xff\xff"),
            (b"a", b"\xff"),
        ];
        let all = || keys.iter().flat_map(|(s, k)| [(s, k, 1, 0), (s, k, 1, 1), (s, k, u64::MAX, u32::MAX)]);
        for (scope, key) in keys {
            let chain = chain(&Scope::new(scope).expect("valid"), key);
            let end = chain_end(&chain);
            let inside: Vec<_> = all()
                .map(|(s, k, order, number)| (place(s, k, order, number), s, k))
                .filter(|(place, ..)| place.0 > chain && place.0 < end)
                .collect();
            assert_eq!(inside.len(), 3, "{scope:?} {key:?}");
            assert!(inside.iter().all(|(place, s, k)| {
                **s == scope && **k == key && place.chain() == Some(chain.as_slice())
            }));
            assert!(inside.is_sorted_by_key(|(place, ..)| place.clone()));
        }
    }

    #[test]
    fn an_event_without_an_ordering_key_is_in_no_chain() {
        let place = Place::of(&Scope::new("a").expect("valid"), &Event::new("t", []), Token(7), 3);
        assert_eq!((place.chain(), place.0.len()), (None, 13));
    }

    #[test]
    fn an_event_reads_back_in_its_own_place_only() {
        let row = Row {
            event: Event::new("orders", "paid").ordering_key("order 5"),
            id: "7-1".parse().unwrap(),
            scope: Blob(b"acme".to_vec()),
            created_ms: Millis(1),
            attempts: 2,
            failure: Some("no route".into()),
            standing: Standing::Dead { token: Token(9), since_ms: Millis(2) },
        };
        let (here, elsewhere) = (place(b"acme", b"order 5", 7, 1), place(b"acme", b"order 5", 7, 2));
        let bytes = row.encode(&here).unwrap();
        assert_eq!(Row::decode(&here, &bytes).unwrap(), row);
        let is_corrupt =
            |place, bytes: &[u8]| Row::decode(place, bytes).unwrap_err().kind() == ErrorKind::Corrupt;
        assert!(is_corrupt(&elsewhere, &bytes));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(is_corrupt(&here, &damaged), "bit {bit}");
        }
        let leased = Standing::Leased { token: Token(9), until_ms: Millis(2) };
        let broken = Row { attempts: 0, standing: leased, ..row };
        assert_eq!(broken.encode(&here).unwrap_err().kind(), ErrorKind::Internal);
    }

    #[test]
    fn debug_shows_no_byte_of_a_place() {
        assert_eq!(format!("{:?}", place(b"acme", b"order 5", 1, 0)), "Place(26 bytes)");
    }
}
