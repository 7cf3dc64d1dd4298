//! Stored records.

use keyclaim::ErrorKind;
use keyclaim::codec::{decode, encode, sealed};

const PLACE: &[u8] = b"place";

/// As they stand in a file: the first byte says whether the checksum is made good. Without, nothing that was not
/// written can be read; with it, what can be read is written again, and is then the same for ever.
pub(crate) fn decode_record(bytes: &[u8]) {
    let Some((kind, payload)) = bytes.split_first() else { return };
    if kind % 2 == 0 {
        refused(decode(PLACE, payload).map(drop));
        return;
    }
    let stored = sealed(PLACE, payload);
    let record = match decode(PLACE, &stored) {
        Ok(record) => record,
        Err(error) => return refused(Err(error)),
    };
    let again = match encode(PLACE, &record) {
        Ok(again) => again,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Invalid, "a record that was read breaks a rule: {error}");
            return;
        }
    };
    let back = decode(PLACE, &again).expect("what was just encoded");
    assert_eq!(back, record, "a record changes when it is written");
    assert_eq!(encode(PLACE, &back).expect("once is always"), again, "two spellings of one record");
}

/// Errors: what damage may be told as.
fn refused(read: keyclaim::Result<()>) {
    let error = read.expect_err("bytes without their checksum were read");
    assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Incompatible), "{error:?}");
}
