//! What a request asked for, as 32 bytes and the scheme they were made under.
//!
//! ```text
//! BLAKE3 in derive-key mode, context "keyclaim 2026-11-30 fingerprint v1", over
//!
//! scheme            0 for Raw; 1 for Json, then the number of pointers and each pointer
//! method            as given: methods are case-sensitive
//! target            as given, with its query
//! media type        0 if absent; 1, then its normal form
//! content encoding  0 if absent; 1, then its normal form
//! payload           as given (Raw), or as canonical JSON
//!
//! where 0 and 1 are one byte, numbers are 8 bytes little-endian, and every text is its length and its bytes
//! ```
//!
//! Everything comes from bytes that the caller names; nothing is read from live objects of a framework.
//! The operation (method and target) is part of it: one key on two routes is a mismatch, not two requests.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::hash::Domain;

mod json;
mod media;
mod pointer;

pub use json::canonical_json;

/// A scheme and the BLAKE3 made under it. Two requests are the same if both are equal.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct Fingerprint {
    /// How it was made.
    pub scheme: Scheme,
    /// The hash.
    pub hash: [u8; 32],
}

impl Fingerprint {
    /// What to show in a mismatch, so that two requests can be told apart in logs.
    pub fn prefix(&self) -> Prefix {
        let [a, b, c, d, ..] = self.hash;
        Prefix([a, b, c, d])
    }
}

/// The first four bytes of a fingerprint, shown as eight hex digits. Compare whole fingerprints, never prefixes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Prefix(pub [u8; 4]);

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// How a fingerprint is made; kept with the record, so that a deploy which changes it breaks no retry.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub enum Scheme {
    /// The payload's bytes as they are.
    Raw,
    /// The payload as canonical JSON, without the members these JSON pointers name.
    Json {
        /// RFC 6901 pointers of the members left out, sorted.
        without: Vec<String>,
    },
}

impl Scheme {
    /// The scheme of canonical JSON without the members that these RFC 6901 pointers name.
    ///
    /// Leave out what may differ between two attempts of one intent: a time of sending, a trace id.
    /// A pointer that finds nothing in a payload is fine; through an array it goes by index. Sorted and
    /// without repeats on return, so that the order of a configuration does not matter.
    /// Invalid for more than 32 pointers, one longer than 255 bytes, one of wrong syntax, and the pointer
    /// of the whole document: nothing would be left to compare.
    pub fn json<P: Into<String>>(without: impl IntoIterator<Item = P>) -> Result<Self> {
        // One beyond the limit is enough to refuse, so that an endless list is never collected.
        let wanted = without.into_iter().take(crate::limits::POINTERS_MAX + 1);
        let mut without: Vec<String> = wanted.map(Into::into).collect();
        pointer::parse_all(&without)?;
        without.sort_unstable();
        without.dedup();
        Ok(Self::Json { without })
    }

    /// The fingerprint of a request under this scheme; the same for the same parts in every process
    /// and language.
    ///
    /// Invalid, under the scheme of canonical JSON, if the payload has no canonical form
    /// (see [`canonical_json`]; an empty payload has none either: use [`Scheme::Raw`] where requests
    /// carry no payload) or the scheme's own pointers are not what [`Scheme::json`] would make of them.
    pub fn fingerprint(&self, request: &Request<'_>) -> Result<Fingerprint> {
        let mut hasher = Parts(DOMAIN.hasher());
        let canonical = match self {
            Self::Raw => {
                hasher.tag(0);
                None
            }
            Self::Json { without } => {
                pointer::check_order(without)?;
                hasher.tag(1);
                hasher.number(without.len());
                for pointer in without {
                    hasher.text(pointer.as_bytes());
                }
                Some(canonical_json(request.payload, without)?)
            }
        };
        hasher.text(request.method);
        hasher.text(request.target);
        hasher.optional(request.media_type.and_then(media::media_type));
        hasher.optional(request.content_encoding.and_then(media::content_encoding));
        hasher.text(canonical.as_deref().unwrap_or(request.payload));
        Ok(Fingerprint { scheme: self.clone(), hash: hasher.0.finalize().into() })
    }
}

/// The parts of a request that make it what it is, borrowed from whoever received it.
///
/// Not over HTTP, name the operation in `method` or `target` and leave out what there is not.
#[derive(Clone, Copy, Default)]
pub struct Request<'a> {
    /// The method, case-sensitive.
    pub method: &'a [u8],
    /// The full target with its query, as received.
    pub target: &'a [u8],
    /// The value of `Content-Type`. Compared without regard to case and spacing where they mean
    /// nothing, and to the order of parameters; an empty one counts as none. One that is not
    /// well-formed is compared as it is.
    pub media_type: Option<&'a [u8]>,
    /// The value of `Content-Encoding`. Compared without regard to case and spacing; `identity` and an
    /// empty one count as none.
    pub content_encoding: Option<&'a [u8]>,
    /// The payload. As received for [`Scheme::Raw`]; for canonical JSON it has to be decoded first.
    pub payload: &'a [u8],
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Targets and payloads hold customer data.
        write!(f, "Request({} bytes of payload)", self.payload.len())
    }
}

static DOMAIN: Domain = Domain::new("keyclaim 2026-11-30 fingerprint v1");

/// Feeds parts to a hash so that no two lists of parts are the same bytes.
struct Parts(blake3::Hasher);

impl Parts {
    fn tag(&mut self, tag: u8) {
        self.0.update(&[tag]);
    }

    fn number(&mut self, number: usize) {
        self.0.update(&(number as u64).to_le_bytes());
    }

    fn text(&mut self, bytes: &[u8]) {
        self.number(bytes.len());
        self.0.update(bytes);
    }

    fn optional(&mut self, part: Option<Vec<u8>>) {
        match part {
            None => self.tag(0),
            Some(bytes) => {
                self.tag(1);
                self.text(&bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Request<'static> = Request {
        method: b"POST",
        target: b"/v1/payments?dry=0",
        media_type: Some(b"application/json"),
        content_encoding: None,
        payload: b"{\"a\":1}",
    };

    fn raw(request: Request<'_>) -> Fingerprint {
        Scheme::Raw.fingerprint(&request).expect("raw takes any bytes")
    }

    #[test]
    fn every_part_counts_and_moving_a_border_does_too() {
        let others = [
            Request { method: b"PUT", ..REQUEST },
            Request { method: b"post", ..REQUEST },
            Request { target: b"/v1/payments", ..REQUEST },
            Request { method: b"POST/", target: b"v1/payments?dry=0", ..REQUEST },
            Request { media_type: None, ..REQUEST },
            Request { media_type: None, content_encoding: Some(b"application/json"), ..REQUEST },
            Request { content_encoding: Some(b"gzip"), ..REQUEST },
            Request { payload: b"{\"a\":1} ", ..REQUEST },
            Request { payload: b"", ..REQUEST },
        ];
        let mut seen: Vec<_> = others.into_iter().chain([REQUEST]).map(|request| raw(request).hash).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), others.len() + 1);
    }

    #[test]
    fn the_scheme_and_each_pointer_of_it_are_hashed() {
        let hash = |scheme: Scheme| scheme.fingerprint(&REQUEST).expect("valid").hash;
        let plain = hash(Scheme::json([""; 0]).expect("valid"));
        assert_ne!(plain, hash(Scheme::Raw));
        assert_ne!(plain, hash(Scheme::json(["/other"]).expect("valid")));
        assert_eq!(
            Scheme::json(["/b", "/a", "/b"]).expect("valid"),
            Scheme::json(["/a", "/b"]).expect("valid")
        );
    }

    #[test]
    fn a_scheme_that_its_own_rules_did_not_make_is_refused() {
        for without in [vec!["/b", "/a"], vec!["/a", "/a"], vec!["a"], vec![""]] {
            let scheme = Scheme::Json { without: without.iter().map(ToString::to_string).collect() };
            assert!(scheme.fingerprint(&REQUEST).is_err(), "{without:?}");
        }
    }

    #[test]
    fn a_prefix_is_eight_hex_digits_of_the_hash() {
        let fingerprint = Fingerprint { scheme: Scheme::Raw, hash: [0x0a; 32] };
        assert_eq!(fingerprint.prefix().to_string(), "0a0a0a0a");
    }
}
