//! Who asks, and for what: a [`Scope`], a [`Key`] in it, and the bytes both are stored under.
//!
//! The scope is the caller (an account, a tenant) as the server resolved it, never as a rotating
//! credential names it. The key is minted by the client, one per intent (see [`mint`]), and reaches
//! an HTTP server in the `Idempotency-Key` header (see [`header`]). The operation belongs to neither:
//! it is part of the [`fingerprint`](crate::fingerprint), so that one key on two routes is a mismatch
//! and not two requests.
//!
//! Both are any bytes, kept as given and never hashed. Neither is ever printed: `Debug` shows a
//! length, and logs name a request by [`Id::short_hash`].

use std::fmt;
use std::sync::Arc;

use crate::limits::{KEY_LEN_DEFAULT, KEY_LEN_MAX, SCOPE_LEN_MAX};
use crate::{Error, Result};

pub mod header;
pub mod mint;

mod id;

pub use id::{Id, ScopeRange};

/// Whose keys these are: 1 to 255 bytes of any kind. Two scopes never share a key.
///
/// There is no default. A caller whose scope cannot be resolved has to be refused: a shared scope
/// answers one account with another's response.
#[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Scope(Arc<[u8]>);

impl Scope {
    /// A scope of these bytes; Invalid if there are none, or more than 255.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self> {
        let bytes = bytes.as_ref();
        if bytes.is_empty() || bytes.len() > SCOPE_LEN_MAX {
            return Err(Error::invalid(format!(
                "a scope is 1 to {SCOPE_LEN_MAX} bytes, not {}; name the account or tenant that asks",
                bytes.len()
            )));
        }
        Ok(Self(bytes.into()))
    }

    /// The bytes as they were given.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope({} bytes)", self.0.len())
    }
}

/// What a client named its intent: 1 to 255 bytes of any kind, or up to 1024 where so configured.
///
/// Compared byte by byte: keys that differ in case or in Unicode normalisation are two keys.
#[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Key(Arc<[u8]>);

impl Key {
    /// A key of these bytes; Invalid if there are none, or more than 255.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self> {
        Self::with_limit(bytes, KEY_LEN_DEFAULT)
    }

    /// A key of 1 to `len_max` bytes. Invalid if it is not, or if the limit itself is not in 1..=1024.
    pub fn with_limit(bytes: impl AsRef<[u8]>, len_max: usize) -> Result<Self> {
        let bytes = bytes.as_ref();
        checked_limit(len_max)?;
        if bytes.is_empty() || bytes.len() > len_max {
            return Err(Error::invalid(format!(
                "a key is 1 to {len_max} bytes, not {}; mint a shorter one, or leave it out",
                bytes.len()
            )));
        }
        Ok(Self(bytes.into()))
    }

    /// The bytes as they were given.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.0.len())
    }
}

fn checked_limit(len_max: usize) -> Result<usize> {
    if len_max == 0 || len_max > KEY_LEN_MAX {
        return Err(Error::invalid(format!("the limit of a key is 1 to {KEY_LEN_MAX} bytes, not {len_max}")));
    }
    Ok(len_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_and_a_key_are_bounded_in_bytes_at_both_ends() {
        for (len, fits) in [(0, false), (1, true), (255, true), (256, false), (65_536, false)] {
            assert_eq!(Scope::new(vec![0xff; len]).is_ok(), fits, "scope of {len}");
            assert_eq!(Key::new(vec![0x00; len]).is_ok(), fits, "key of {len}");
        }
        // 64 characters of four bytes each: the limit counts bytes.
        assert!(Key::new("\u{1f600}".repeat(64)).is_err());
    }

    #[test]
    fn a_limit_can_be_set_up_to_1024_and_not_beyond() {
        assert!(Key::with_limit([b'k'; 1024], 1024).is_ok());
        assert!(Key::with_limit([b'k'; 1025], 1024).is_err());
        assert!(Key::with_limit([b'k'; 9], 8).is_err());
        assert!(Key::with_limit(b"k", 0).is_err());
        assert!(Key::with_limit(b"k", 1025).is_err());
    }

    #[test]
    fn debug_shows_no_byte_of_a_key_or_a_scope() {
        let id = Id::new(Scope::new("acme").expect("valid"), Key::new("secret-key").expect("valid"));
        let shown = format!("{id:?} {:?} {:?}", id.scope(), id.key());
        assert!(!shown.contains("acme") && !shown.contains("secret"), "{shown}");
    }
}
