//! Making keys: one per intent, the same over its retries. New intent, new key.
//!
//! In the order to prefer them:
//!
//! 1. [`from_event`]: derived from what happened (a message id, an order and its revision). Nobody has
//!    to remember it: whoever sees the same event again, in any process or language, gets the same key.
//! 2. [`for_request`]: derived from an intent id that the client made when the user decided, and the
//!    operation. For one intent that makes several requests.
//! 3. [`random`]: good only if it is *kept before the first attempt and reused over every retry*: made
//!    outside the retry loop, and stored next to what it is for if the process may restart in between.
//!    A random key made inside the loop protects nothing.
//!
//! A key must not come from the content of a form alone. It would stay the same when a user submits,
//! changes a field and submits again (refused as a mismatch), or really means the same thing twice
//! (answered with the first result). That is a new intent: give it a new intent id, and so a new key.

use crate::token::random_bytes;
use crate::{Error, Key, Result};

/// The key of an event: 64 hex digits, the same for the same parts in every process and language.
///
/// Each part is one fact that together name the event, in a fixed order, such as
/// `[b"invoice-paid", invoice_id, revision]`. `["ab", "c"]` and `["a", "bc"]` are two keys.
/// Invalid if there is no part, or one is empty: a missing id would give unrelated events one key.
pub fn from_event(parts: &[&[u8]]) -> Result<Key> {
    derived(EVENT_CONTEXT, parts)
}

/// The key of one operation of an intent: 64 hex digits, the same whenever both are.
///
/// `intent` is made once when the user decides (a [`random`] key will do), `operation` names which of
/// the intent's requests this is. Invalid if one of them is empty.
pub fn for_request(intent: &[u8], operation: &[u8]) -> Result<Key> {
    derived(REQUEST_CONTEXT, &[intent, operation])
}

/// A random key that sorts by time: the text of a UUID version 7. Keep it, and reuse it on every retry.
///
/// `now_ms` is milliseconds since 1970. It orders and proves nothing, so a wrong clock does no harm;
/// keys in time order are written next to each other, which costs a store six times less than keys
/// at random places. Internal if the operating system gives no random bytes.
pub fn random(now_ms: u64) -> Result<Key> {
    random_from(now_ms, random_bytes()?)
}

/// As [`random`], from random bytes of the caller's own; 74 bits of the last ten are used.
pub fn random_from(now_ms: u64, random: [u8; 16]) -> Result<Key> {
    // RFC 9562, section 5.7: 48 bits of time, version 7, 12 random bits, variant 0b10, 62 random bits.
    let time = u128::from(now_ms) << 80;
    let random = u128::from_be_bytes(random) & 0x0fff_3fff_ffff_ffff_ffff;
    let uuid = time | 7 << 76 | 2 << 62 | random;
    Key::new(format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        uuid >> 96,
        uuid >> 80 & 0xffff,
        uuid >> 64 & 0xffff,
        uuid >> 48 & 0xffff,
        uuid & 0xffff_ffff_ffff
    ))
}

const EVENT_CONTEXT: &str = "keyclaim 2026-11-30 event key v1";
const REQUEST_CONTEXT: &str = "keyclaim 2026-11-30 request key v1";

fn derived(context: &str, parts: &[&[u8]]) -> Result<Key> {
    if parts.is_empty() || parts.iter().any(|part| part.is_empty()) {
        return Err(Error::invalid(
            "a derived key needs at least one part and no empty one; pass every id that names the intent",
        ));
    }
    let mut hasher = blake3::Hasher::new_derive_key(context);
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    Key::new(hasher.finalize().to_hex().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_part_is_refused_and_never_a_shared_key() {
        for parts in [&[][..], &[&b""[..]], &[b"order", b""], &[b"", b"7"]] {
            assert!(from_event(parts).is_err(), "{parts:?}");
        }
        assert!(for_request(b"", b"pay").is_err() && for_request(b"i", b"").is_err());
        assert!(from_event(&[b"0"]).is_ok() && from_event(&[b"false"]).is_ok());
    }

    #[test]
    fn derived_keys_depend_on_every_border_and_on_their_kind() {
        let key = |parts: &[&[u8]]| from_event(parts).expect("valid");
        assert_eq!(key(&[b"ab", b"c"]), key(&[b"ab", b"c"]));
        assert_ne!(key(&[b"ab", b"c"]), key(&[b"a", b"bc"]));
        assert_ne!(key(&[b"ab", b"c"]), key(&[b"c", b"ab"]));
        assert_ne!(key(&[b"ab", b"c"]), for_request(b"ab", b"c").expect("valid"));
    }

    #[test]
    fn a_random_key_is_a_uuid_of_version_7_that_sorts_by_time() {
        // The example of RFC 9562, appendix A.6.
        let bytes = 0xffff_ffff_ffff_fcc3_18c4_dc0c_0c07_398f_u128.to_be_bytes();
        let key = random_from(0x017f_22e2_79b0, bytes).expect("valid");
        assert_eq!(key.as_bytes(), b"017f22e2-79b0-7cc3-98c4-dc0c0c07398f");
        assert!(random(1).expect("random") < random(2).expect("random"));
        assert_ne!(random(1).expect("random"), random(1).expect("random"));
    }
}
