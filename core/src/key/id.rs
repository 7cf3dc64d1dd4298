//! One request's name in the store.

use std::fmt;

use super::{Key, Scope};
use crate::limits::{KEY_LEN_MAX, SCOPE_LEN_MAX};
use crate::{Error, ErrorKind, Result};

/// A key within its scope. Two ids are equal if both parts are, byte by byte.
///
/// Stored in every engine as
///
/// ```text
/// offset 0       1                 1 + n
///        n: u8   n bytes of scope  the key, to the end
/// ```
///
/// so that no two pairs collide and one scope is one range of rows.
#[derive(Clone, Eq, Hash, PartialEq)]
pub struct Id {
    scope: Scope,
    key: Key,
}

impl Id {
    /// Joins a scope and a key.
    pub fn new(scope: Scope, key: Key) -> Self {
        Self { scope, key }
    }

    /// Whose key it is.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// What the client named its intent.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The bytes this id is stored under: 3 to 1280 of them.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.scope.prefix();
        bytes.extend_from_slice(self.key.as_bytes());
        bytes
    }

    /// The id that was stored under these bytes; Corrupt if none can have been.
    ///
    /// Takes keys up to the longest limit a store can have, whatever its limit is now.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let Some((&scope_len, rest)) = bytes.split_first() else {
            return Err(corrupt());
        };
        let (scope, key) = rest.split_at_checked(usize::from(scope_len)).ok_or_else(corrupt)?;
        let scope = Scope::new(scope).map_err(|_| corrupt())?;
        let key = Key::with_limit(key, KEY_LEN_MAX).map_err(|_| corrupt())?;
        Ok(Self { scope, key })
    }

    /// Eight hex digits that name this id in logs and messages; from the key and its scope.
    ///
    /// A name and no proof: of some 77,000 ids two share it.
    pub fn short_hash(&self) -> String {
        let mut hasher = blake3::Hasher::new_derive_key(SHORT_HASH_CONTEXT);
        hasher.update(&self.encode());
        hasher.finalize().to_hex().chars().take(8).collect()
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({})", self.short_hash())
    }
}

impl Scope {
    /// The range of encoded ids that holds all of this scope and nothing else.
    pub fn range(&self) -> ScopeRange {
        let start = self.prefix();
        let mut end = start.clone();
        // The next prefix in byte order: drop trailing 0xff, add one to what is left.
        while end.last() == Some(&u8::MAX) {
            end.pop();
        }
        let end = end.pop().map(|last| {
            end.push(last + 1);
            end
        });
        ScopeRange { start, end }
    }

    fn prefix(&self) -> Vec<u8> {
        let len = u8::try_from(self.as_bytes().len()).expect("a scope has at most 255 bytes");
        let mut bytes = Vec::with_capacity(1 + SCOPE_LEN_MAX);
        bytes.push(len);
        bytes.extend_from_slice(self.as_bytes());
        bytes
    }
}

/// The encoded ids of one scope: from `start` up to and without `end`, in byte order.
#[derive(Clone, Eq, PartialEq)]
pub struct ScopeRange {
    /// At or below the first id; also the prefix that all of them have.
    pub start: Vec<u8>,
    /// Above the last id. None if nothing can follow: the scope of 255 times 0xff.
    pub end: Option<Vec<u8>>,
}

impl ScopeRange {
    /// Whether an encoded id belongs to the scope.
    pub fn contains(&self, encoded: &[u8]) -> bool {
        encoded >= self.start.as_slice() && self.end.as_ref().is_none_or(|end| encoded < end.as_slice())
    }
}

impl fmt::Debug for ScopeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its bytes are the scope's.
        f.write_str("ScopeRange(..)")
    }
}

const SHORT_HASH_CONTEXT: &str = "keyclaim 2026-11-30 id short hash v1";

fn corrupt() -> Error {
    Error::new(
        ErrorKind::Corrupt,
        "a stored id is malformed; stop, run the check and restore the store from a backup",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(scope: &[u8], key: &[u8]) -> Id {
        Id::new(Scope::new(scope).expect("valid"), Key::new(key).expect("valid"))
    }

    #[test]
    fn moving_the_border_between_scope_and_key_gives_another_id() {
        assert_ne!(id(b"ab", b"c").encode(), id(b"a", b"bc").encode());
        assert_ne!(id(b"ab", b"c").short_hash(), id(b"a", b"bc").short_hash());
    }

    #[test]
    fn malformed_bytes_are_corrupt_and_no_id() {
        for bytes in [&b""[..], b"\x00", b"\x00k", b"\x01", b"\x01s", b"\x02s", b"\xffscope"] {
            let error = Id::decode(bytes).expect_err("malformed");
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{bytes:?}");
        }
        let too_long = [&[1, b's'][..], &[b'k'; KEY_LEN_MAX + 1]].concat();
        assert_eq!(Id::decode(&too_long).expect_err("too long").kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn the_range_of_a_scope_ends_before_its_neighbours() {
        for scope in [&b"a"[..], b"a\xff", b"\xff", &[0xff; 254], &[0xff; 255]] {
            let range = Scope::new(scope).expect("valid").range();
            assert!(range.contains(&id(scope, b"\x00").encode()));
            assert!(range.contains(&id(scope, &[0xff; 255]).encode()));
            for other in [&b"b"[..], b"a\x00", b"b\x00", b"\xfe", &[0xfe; 254], &[0xfe; 255]] {
                assert!(!range.contains(&id(other, b"\xff").encode()), "{scope:?} held {other:?}");
            }
        }
    }
}
