//! Bytes and values: the only place that knows how a row is stored.
//!
//! | offset | size | meaning | since |
//! |---|---|---|---|
//! | 0 | 1 | version, 1 | 1 |
//! | 1 | 1 | flags, 0 | 1 |
//! | 2 | 16 | checksum: BLAKE3 bound to the row's place, first 16 bytes | 1 |
//! | 18 | rest | the payload: a record or an event in bincode 2, standard configuration | 1 |
//!
//! redb verifies no checksum on a normal read: of 4,000 single-bit flips in a closed file 1,010
//! returned wrong data silently. Ours covers version, flags, the row's key and the bytes, so damage
//! and a row in another's place are both told as `Corrupt`, never as a new key (P4).

use bincode::config;

use crate::hash::{Domain, first_bytes};
use crate::limits::{RECORD_DECODED_LEN_MAX, RECORD_LEN_MAX};
use crate::machine::{Act, Record};
use crate::{Error, ErrorKind, Result};

const VERSION: u8 = 1;
const FLAGS: u8 = 0;
const CHECKSUM_LEN: usize = 16;
pub(crate) const HEADER_LEN: usize = 2 + CHECKSUM_LEN;

static RECORD: Domain = Domain::new("keyclaim 2026 record checksum v1");
static APP: Domain = Domain::new("keyclaim 2026 app row checksum v1");
static EVENT: Domain = Domain::new("keyclaim 2026 outbox row checksum v1");
static COMMAND: Domain = Domain::new("keyclaim 2026 owner command digest v1");

/// What a row holds: one of another kind never passes its checksum, wherever it stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Record,
    App,
    Event,
}

/// The stored bytes of a record, bound to `place`: the encoded id and, in the archive, its generation.
///
/// Errors: `Invalid` if the record is over [`RECORD_LEN_MAX`] bytes, `Internal` if it breaks an invariant.
pub fn encode(place: &[u8], record: &Record) -> Result<Vec<u8>> {
    record.check().map_err(|rule| {
        Error::new(ErrorKind::Internal, format!("a record was made that breaks a rule: {rule}"))
    })?;
    let bytes = seal(Kind::Record, place, &encode_plain(record)?);
    if bytes.len() > RECORD_LEN_MAX {
        return Err(Error::invalid(
            "steps, recovery point and headers together are too large for one record; store less with the claim",
        ));
    }
    Ok(bytes)
}

/// The record behind stored bytes.
///
/// Errors: `Corrupt` if they are damaged or stand in another row's place, `Incompatible` if a newer
/// keyclaim wrote them.
pub fn decode(place: &[u8], bytes: &[u8]) -> Result<Record> {
    let record: Record = decode_plain(unseal(Kind::Record, place, bytes)?)?;
    record.check().map_err(corrupt)?;
    Ok(record)
}

/// The stored bytes around any payload, as a row of this place: what a fuzzer cannot make, since it guesses no checksum.
#[cfg(feature = "testing")]
pub fn sealed(place: &[u8], payload: &[u8]) -> Vec<u8> {
    seal(Kind::Record, place, payload)
}

/// A row's bytes around this payload: version, flags, and a checksum bound to its kind and place.
pub(crate) fn seal(kind: Kind, place: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_LEN + payload.len());
    bytes.extend([VERSION, FLAGS]);
    bytes.extend(checksum(kind, place, VERSION, FLAGS, payload));
    bytes.extend(payload);
    bytes
}

/// The payload of a row. Errors as in [`decode`].
pub(crate) fn unseal<'a>(kind: Kind, place: &[u8], bytes: &'a [u8]) -> Result<&'a [u8]> {
    let Some((&[version, flags, ref stored @ ..], payload)) = bytes.split_first_chunk::<HEADER_LEN>() else {
        return Err(corrupt("too short"));
    };
    if *stored != checksum(kind, place, version, flags, payload) {
        return Err(corrupt("checksum"));
    }
    // The checksum's own place is fixed for ever, so a version told here is one that was written.
    if version != VERSION || flags != FLAGS {
        return Err(Error::new(
            ErrorKind::Incompatible,
            format!("a row has version {version}, flags {flags}; upgrade keyclaim to read it"),
        ));
    }
    Ok(payload)
}

/// Whether these bytes were written for this place, whatever key they are filed under now.
#[cfg(feature = "store")]
pub(crate) fn is_of(kind: Kind, place: &[u8], bytes: &[u8]) -> bool {
    !unseal(kind, place, bytes).is_err_and(|error| error.kind() == ErrorKind::Corrupt)
}

/// A value in bincode, as it is inside a row.
pub(crate) fn encode_plain<T: serde::Serialize>(value: &T) -> Result<Vec<u8>> {
    bincode::serde::encode_to_vec(value, config::standard())
        .map_err(|error| Error::new(ErrorKind::Internal, "a value could not be encoded").caused_by(error))
}

/// The value inside a row; `Corrupt` if it is none, or more than one.
pub(crate) fn decode_plain<T: serde::de::DeserializeOwned>(payload: &[u8]) -> Result<T> {
    let limits = config::standard().with_limit::<RECORD_DECODED_LEN_MAX>();
    let (value, read) = bincode::serde::decode_from_slice::<T, _>(payload, limits)
        .map_err(|error| corrupt("encoding").caused_by(error))?;
    if read == payload.len() { Ok(value) } else { Err(corrupt("trailing bytes")) }
}

pub(crate) fn corrupt(what: &str) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("a stored row is damaged ({what}); stop, check the store and restore it"),
    )
}

/// 16 bytes that name what an owner said, so that the same command asked again is recognised.
pub fn digest(act: &Act) -> Result<[u8; 16]> {
    let mut hasher = COMMAND.hasher();
    hasher.update(&encode_plain(act)?);
    Ok(first_bytes(&hasher))
}

fn checksum(kind: Kind, place: &[u8], version: u8, flags: u8, payload: &[u8]) -> [u8; CHECKSUM_LEN] {
    let mut hasher = match kind {
        Kind::Record => &RECORD,
        Kind::App => &APP,
        Kind::Event => &EVENT,
    }
    .hasher();
    hasher.update(&[version, flags]);
    hasher.update(&(place.len() as u64).to_le_bytes());
    hasher.update(place);
    hasher.update(payload);
    first_bytes(&hasher)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::{Fingerprint, Scheme};
    use crate::machine::{
        Applied, Blob, Body, HoldReason, Outcome, OutcomeClass, Point, Response, State, Step, StepProgress,
    };
    use crate::{Abandoned, AfterFailure, Generation, Millis, Nonce, Policy, Token};

    fn record() -> Record {
        Record {
            generation: Generation(7),
            token: Token(9),
            attempt: 2,
            nonce: Some(Nonce([3; 16])),
            fingerprint: Fingerprint { scheme: Scheme::Json { without: vec!["/at".into()] }, hash: [5; 32] },
            policy: Policy::new(Abandoned::Hold),
            created_ms: Millis(1_000),
            applied_ms: Millis(2_000),
            reported_ms: None,
            last: Some(Applied { seq: 4, digest: [8; 16] }),
            operation: Some("charge".into()),
            request: None,
            point: Some(Point { name: "charged".into(), data: Blob(vec![1, 2]), covers: 1 }),
            steps: vec![Step {
                name: "charge".into(),
                repeatable: true,
                progress: StepProgress::Done(Blob(b"ok".to_vec())),
            }],
            wrote: true,
            events: 3,
            tries: 2,
            pause_ms: Millis(700),
            state: State::Complete {
                outcome: Outcome {
                    class: OutcomeClass::Failure(AfterFailure::Replay),
                    response: Response {
                        status: 500,
                        headers: vec![(Blob(b"a".to_vec()), Blob(vec![0, 255]))],
                        body: Body::Here(Blob(vec![0; 100])),
                    },
                },
                completed_ms: Millis(2_000),
                window_until_ms: Millis(9_000),
            },
        }
    }

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        let bytes = encode(b"id", &record()).unwrap();
        assert_eq!(decode(b"id", &bytes).unwrap(), record());
    }

    #[test]
    fn every_flipped_bit_is_corrupt() {
        let bytes = encode(b"id", &record()).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(b"id", &damaged).unwrap_err().kind(), ErrorKind::Corrupt, "bit {bit}");
        }
    }

    #[test]
    fn every_shorter_or_longer_record_is_corrupt() {
        let bytes = encode(b"id", &record()).unwrap();
        for len in 0..bytes.len() {
            assert_eq!(decode(b"id", &bytes[..len]).unwrap_err().kind(), ErrorKind::Corrupt);
        }
        let longer = [&bytes[..], b"x"].concat();
        assert_eq!(decode(b"id", &longer).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn a_record_in_another_rows_place_is_corrupt() {
        let bytes = encode(b"id", &record()).unwrap();
        assert_eq!(decode(b"di", &bytes).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn a_newer_version_or_unknown_flag_is_incompatible() {
        for (version, flags) in [(2, 0), (1, 1), (0, 0)] {
            let mut bytes = encode(b"id", &record()).unwrap();
            let sum = checksum(Kind::Record, b"id", version, flags, &bytes[HEADER_LEN..]);
            bytes[0] = version;
            bytes[1] = flags;
            bytes[2..HEADER_LEN].copy_from_slice(&sum);
            assert_eq!(decode(b"id", &bytes).unwrap_err().kind(), ErrorKind::Incompatible);
        }
    }

    #[test]
    fn a_record_that_breaks_a_rule_is_neither_written_nor_read() {
        let mut broken = record();
        broken.attempt = 0;
        assert_eq!(encode(b"id", &broken).unwrap_err().kind(), ErrorKind::Internal);
        let mut bytes = vec![0; HEADER_LEN];
        bytes.extend(encode_plain(&broken).unwrap());
        let sum = checksum(Kind::Record, b"id", VERSION, FLAGS, &bytes[HEADER_LEN..]);
        bytes[0] = VERSION;
        bytes[2..HEADER_LEN].copy_from_slice(&sum);
        assert_eq!(decode(b"id", &bytes).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn a_hostile_length_allocates_nothing() {
        let mut payload = encode_plain(&record()).unwrap();
        // The first length in the record is that of the scheme's pointers; claim 2^60 of them.
        let at = payload.iter().position(|&byte| byte == 1).unwrap();
        payload.splice(at..=at, [253, 0, 0, 0, 0, 0, 0, 0, 16]);
        let mut bytes = vec![VERSION, FLAGS];
        bytes.extend(checksum(Kind::Record, b"id", VERSION, FLAGS, &payload));
        bytes.extend(payload);
        assert_eq!(decode(b"id", &bytes).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn the_largest_record_is_written_and_read_and_none_above_it() {
        let sized = |len| Record {
            point: Some(Point { name: "charged".into(), data: Blob(vec![7; len]), covers: 1 }),
            ..record()
        };
        // Lengths over 65,535 are all stored in as many bytes, so what is around them is always as long.
        let around = encode(b"id", &sized(100_000)).unwrap().len() - 100_000;
        let largest = sized(RECORD_LEN_MAX - around);
        let bytes = encode(b"id", &largest).unwrap();
        assert_eq!((bytes.len(), decode(b"id", &bytes).unwrap()), (RECORD_LEN_MAX, largest));
        let above = encode(b"id", &sized(RECORD_LEN_MAX - around + 1));
        assert_eq!(above.unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[test]
    #[cfg(feature = "store")]
    fn a_row_is_known_by_the_place_it_was_written_for() {
        let bytes = encode(b"id", &record()).unwrap();
        assert!(is_of(Kind::Record, b"id", &bytes));
        assert!(!is_of(Kind::Record, b"di", &bytes) && !is_of(Kind::App, b"id", &bytes));
        // Written by a newer keyclaim, and for this place all the same.
        let mut newer = bytes.clone();
        newer[0] = 2;
        let sum = checksum(Kind::Record, b"id", 2, FLAGS, &newer[HEADER_LEN..]);
        newer[2..HEADER_LEN].copy_from_slice(&sum);
        assert!(is_of(Kind::Record, b"id", &newer));
    }

    #[test]
    fn a_digest_tells_commands_apart() {
        let hold = |reason| digest(&Act::Hold { reason }).unwrap();
        assert_eq!(hold(HoldReason::Owner), hold(HoldReason::Owner));
        assert_ne!(hold(HoldReason::Owner), hold(HoldReason::StepInDoubt));
        assert_ne!(digest(&Act::Release).unwrap(), digest(&Act::Abandon).unwrap());
    }
}
