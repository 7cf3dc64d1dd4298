//! What is kept of an answer, so that it can be given again.

use super::headers::{self, NEVER_STORED, STORED};
use super::wire::has_no_body;
use crate::limits::{BODY_LEN_DEFAULT, BODY_LEN_MAX, HEADERS_LEN_MAX, HEADERS_MAX, STATUS_FINAL, STATUS_MAX};
use crate::machine::{Blob, Body, DropReason, Response};
use crate::{Error, Result};

/// What a route keeps of its answers: the headers of [`STORED`], those it names, and bodies up to a limit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Keep {
    named: Vec<String>,
    body_len_max: usize,
}

impl Keep {
    /// Keeps the headers of [`STORED`] and bodies of up to 1 MiB.
    pub fn new() -> Self {
        Self { named: Vec::new(), body_len_max: BODY_LEN_DEFAULT }
    }

    /// Keeps this header too; names have no case. Credentials, such as Set-Cookie, are kept only if
    /// named, and are then given to whoever retries.
    ///
    /// Invalid if it is no header name, is one of [`NEVER_STORED`], or is the 101st.
    pub fn header(mut self, name: &str) -> Result<Self> {
        if !headers::is_name(name.as_bytes()) {
            return Err(Error::invalid("a header to keep has a name that no header can have; correct it"));
        }
        if headers::is_one_of(name.as_bytes(), &NEVER_STORED) {
            return Err(Error::invalid(
                "a header to keep belongs to one message and cannot be sent again; leave it out",
            ));
        }
        if self.named.len() >= HEADERS_MAX {
            return Err(Error::invalid("over 100 headers to keep are named; name those worth replaying"));
        }
        self.named.push(name.to_owned());
        Ok(self)
    }

    /// Sets the longest body in bytes that is kept: 0 to 64 MiB. A longer one is not kept; the
    /// request stays protected.
    pub fn body_len_max(mut self, len_max: usize) -> Result<Self> {
        if len_max > BODY_LEN_MAX {
            return Err(Error::invalid("the limit for stored bodies is over 64 MiB; lower it"));
        }
        self.body_len_max = len_max;
        Ok(self)
    }

    /// The names of all headers kept, for the contract with clients.
    pub fn header_names(&self) -> impl Iterator<Item = &str> {
        STORED.iter().copied().chain(self.named.iter().map(String::as_str))
    }

    /// Collects a body that comes in pieces, in memory of at most the limit.
    pub fn body_sink(&self) -> BodySink {
        BodySink { len_max: self.body_len_max, len: 0, hasher: blake3::Hasher::new(), bytes: Vec::new() }
    }

    fn keeps(&self, name: &[u8]) -> bool {
        self.header_names().any(|kept| name.eq_ignore_ascii_case(kept.as_bytes()))
    }
}

impl Default for Keep {
    fn default() -> Self {
        Self::new()
    }
}

/// A body on its way to the client, collected until it ends or is over the limit.
///
/// Its length and BLAKE3 are those of all bytes, kept or not.
#[derive(Debug)]
pub struct BodySink {
    len_max: usize,
    len: u64,
    hasher: blake3::Hasher,
    bytes: Vec<u8>,
}

impl BodySink {
    /// Takes the next piece. Once over the limit only the length and hash go on.
    pub fn push(&mut self, piece: &[u8]) {
        self.hasher.update(piece);
        self.len = self.len.saturating_add(piece.len() as u64);
        if self.fits() {
            self.bytes.extend_from_slice(piece);
        } else {
            self.bytes = Vec::new();
        }
    }

    /// Whether all bytes so far are kept.
    pub fn fits(&self) -> bool {
        self.len <= self.len_max as u64
    }

    /// The body after its last piece. Of a body that was cut off make no outcome: it is no answer.
    pub fn finish(self) -> Body {
        if self.fits() {
            return Body::Here(Blob(self.bytes));
        }
        let hash = *self.hasher.finalize().as_bytes();
        Body::Dropped { len: self.len, hash, why: DropReason::TooLarge }
    }
}

/// What to store of an answer as it went over the wire: the status, the headers kept, in order and
/// with repeats, and the bytes of the body.
///
/// A body over the limit is replaced by its length and hash. If the kept headers are more than 100
/// lines or 32 KiB, they and the body are dropped together: an answer is given again whole or not at
/// all, and the request stays protected either way. No body is kept where the status allows none.
///
/// Invalid if the status is not final (200 to 999): there is nothing that could be answered again.
pub fn capture<'a>(
    status: u16,
    headers: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    body: Body,
    keep: &Keep,
) -> Result<Response> {
    if !(STATUS_FINAL..=STATUS_MAX).contains(&status) {
        return Err(Error::invalid("only an answer with a status from 200 to 999 can be stored; abandon it"));
    }
    let lines: Vec<(&[u8], &[u8])> = headers.into_iter().collect();
    let connection: Vec<&[u8]> = lines
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case(b"Connection"))
        .map(|(_, value)| *value)
        .collect();
    let is_kept = |name: &[u8], value: &[u8]| {
        keep.keeps(name)
            && headers::is_replayable(name, value)
            && !headers::is_named_by_connection(name, &connection)
    };
    let kept = lines.into_iter().filter(|(name, value)| is_kept(name, value));
    let headers: Vec<(Blob, Blob)> = kept.map(|(name, value)| (name.into(), value.into())).collect();
    let body = bounded(status, body, keep);
    if !fits(&headers) {
        return Ok(Response { status, headers: Vec::new(), body: body.dropped(DropReason::TooLarge) });
    }
    Ok(Response { status, headers, body })
}

fn bounded(status: u16, body: Body, keep: &Keep) -> Body {
    if has_no_body(status) {
        return Body::Here(Blob::default());
    }
    match body {
        Body::Here(bytes) if bytes.0.len() > keep.body_len_max => {
            Body::Here(bytes).dropped(DropReason::TooLarge)
        }
        body => body,
    }
}

/// The bounds that the machine sets for a response, met here so that it never has to refuse one.
fn fits(headers: &[(Blob, Blob)]) -> bool {
    let len: usize = headers.iter().map(|(name, value)| name.0.len() + value.0.len()).sum();
    headers.len() <= HEADERS_MAX && len <= HEADERS_LEN_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_that_is_not_final_is_refused() {
        for status in [0, 99, 100, 101, 199, 1_000, u16::MAX] {
            assert!(capture(status, [], Body::Here(Blob::default()), &Keep::new()).is_err(), "{status}");
        }
    }

    #[test]
    fn what_belongs_to_one_message_cannot_be_named() {
        for name in NEVER_STORED.iter().copied().chain(["", "A B", "A:"]) {
            assert!(Keep::new().header(name).is_err(), "{name}");
            assert!(Keep::new().header(&name.to_lowercase()).is_err(), "{name}");
        }
        assert!(Keep::new().header("Set-Cookie").is_ok());
    }

    #[test]
    fn limits_of_a_route_are_bounded() {
        assert!(Keep::new().body_len_max(BODY_LEN_MAX).is_ok());
        assert!(Keep::new().body_len_max(BODY_LEN_MAX + 1).is_err());
        let full = (0..HEADERS_MAX).try_fold(Keep::new(), |keep, at| keep.header(&format!("X-{at}")));
        assert!(full.expect("100 names are allowed").header("X-100").is_err());
    }

    #[test]
    fn a_body_in_pieces_is_the_body_in_one() {
        let keep = Keep::new().body_len_max(10).expect("a small limit");
        for len in [0, 1, 9, 10, 11, 100] {
            let body: Vec<u8> = (0..len).collect();
            let mut sink = keep.body_sink();
            body.chunks(3).for_each(|piece| sink.push(piece));
            let whole = bounded(200, Body::Here(Blob(body)), &keep);
            assert_eq!(sink.finish(), whole, "{len} bytes");
        }
    }
}
