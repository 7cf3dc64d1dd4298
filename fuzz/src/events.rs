//! Stored events of the outbox.

use keyclaim::ErrorKind;
use keyclaim::outbox::{Place, Row};

/// As [`decode_record`](crate::records::decode_record). The second byte is the place.
pub(crate) fn decode_event(bytes: &[u8]) {
    let [kind, place, payload @ ..] = bytes else { return };
    let place = Place::of_bytes(&[*place]);
    let stored = if kind % 2 == 0 { payload.to_vec() } else { Row::sealed(&place, payload) };
    let row = match Row::decode(&place, &stored) {
        Ok(row) => row,
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Incompatible), "{error:?}");
            return;
        }
    };
    assert!(kind % 2 == 1, "bytes without their checksum were read");
    let again = row.stored(&place).expect("it was read, so it breaks no rule");
    let back = Row::decode(&place, &again).expect("what was just encoded");
    assert_eq!(back, row, "an event changes when it is written");
    assert_eq!(back.stored(&place).expect("once is always"), again, "two spellings of one event");
    let elsewhere = Place::of_bytes(b"elsewhere");
    assert!(Row::decode(&elsewhere, &again).is_err(), "an event was read in another one's place");
    // Its id is shown to people, who type it in.
    assert_eq!(row.id.to_string().parse().ok(), Some(row.id), "an id does not read back");
    let _ = row.slot();
}
