//! The `Idempotency-Key` header of an HTTP request, as a [`Key`].
//!
//! By draft-ietf-httpapi-idempotency-key-header the value is one item of RFC 9651: a string in quotes.
//! Its parameters carry no meaning yet and are ignored. Most clients send the bare text instead, so
//! [`HeaderMode::Lenient`], the default, takes that too; the quoted and the bare form of one text are
//! one key.
//!
//! A header that is there but holds no key is invalid and never missing: a client that sent it wanted
//! to be protected.

use std::error::Error as StdError;
use std::fmt;

use sfv::{BareItem, Item, Parser};

use super::{Key, checked_limit};
use crate::limits::{HEADER_LINE_LEN_MAX, KEY_LEN_DEFAULT};
use crate::{Error, Result};

/// The header's name as documents write it; field names are compared without case.
pub const HEADER_NAME: &str = "Idempotency-Key";

/// Which spellings of a key are taken.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum HeaderMode {
    /// A quoted string, or bare text: visible ASCII but for `"`, `,` and `;`, which only quotes make plain.
    #[default]
    Lenient,
    /// A quoted string only, as RFC 9651 has it.
    Strict,
}

/// How a server reads the header: which spellings, and how long a key may be.
///
/// ```
/// use keyclaim::key::header::{HEADER_NAME, HeaderError, HeaderRule};
///
/// let rule = HeaderRule::default();
/// let headers: [(&[u8], &[u8]); 2] = [(b"accept", b"*/*"), (b"idempotency-key", b"\"order-7\"")];
/// let key = rule.find(HEADER_NAME, headers).expect("one header, one key");
/// assert_eq!(key.as_bytes(), b"order-7");
/// assert_eq!(rule.find(HEADER_NAME, []), Err(HeaderError::Missing));
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HeaderRule {
    mode: HeaderMode,
    key_len_max: usize,
}

impl HeaderRule {
    /// Reads keys of up to 255 bytes in the given spelling.
    pub fn new(mode: HeaderMode) -> Self {
        Self { mode, key_len_max: KEY_LEN_DEFAULT }
    }

    /// Sets the longest key in bytes; Invalid unless it is 1 to 1024.
    pub fn key_len_max(mut self, len_max: usize) -> Result<Self> {
        self.key_len_max = checked_limit(len_max)?;
        Ok(self)
    }

    /// The key among all headers of a request, given as (name, value) pairs.
    ///
    /// `name` is the field looked for, usually [`HEADER_NAME`]. A name is the same in any case and with
    /// `_` for `-`: gateways rewrite them, and of two spellings no one could say which one wins.
    pub fn find<'a>(
        &self,
        name: &str,
        headers: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<Key, HeaderError> {
        let lines = headers.into_iter().filter(|(other, _)| same_name(name.as_bytes(), other));
        self.parse(lines.map(|(_, value)| value))
    }

    /// The key in the values of all lines of the header, without their names.
    ///
    /// Missing if there is no line; Invalid unless there is exactly one, and it holds one key.
    pub fn parse<'a>(&self, lines: impl IntoIterator<Item = &'a [u8]>) -> Result<Key, HeaderError> {
        let mut lines = lines.into_iter();
        let line = lines.next().ok_or(HeaderError::Missing)?;
        if lines.next().is_some() {
            return Err(HeaderFault::Repeated.into());
        }
        let text = self.text(line)?;
        if text.bytes().all(|byte| byte == b' ') {
            return Err(HeaderFault::Empty.into());
        }
        Key::with_limit(&text, self.key_len_max)
            .map_err(|_| HeaderFault::TooLong { len: text.len(), len_max: self.key_len_max }.into())
    }

    fn text(&self, line: &[u8]) -> Result<String, HeaderFault> {
        // Parameters may make a line longer than its key, but not without end.
        if line.len() > HEADER_LINE_LEN_MAX {
            return Err(HeaderFault::TooLong { len: line.len(), len_max: HEADER_LINE_LEN_MAX });
        }
        let line = trimmed(line);
        if line.is_empty() {
            return Err(HeaderFault::Empty);
        }
        if !line.iter().all(|byte| matches!(byte, b' '..=b'~')) {
            return Err(HeaderFault::Characters);
        }
        match (self.mode, line.first()) {
            (HeaderMode::Strict, _) | (HeaderMode::Lenient, Some(b'"')) => quoted(line),
            (HeaderMode::Lenient, _) => bare(line),
        }
    }
}

impl Default for HeaderRule {
    fn default() -> Self {
        Self::new(HeaderMode::default())
    }
}

/// Why a request carries no key.
///
/// Complete on purpose: HTTP answers them with two codes, and a third would be a new one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HeaderError {
    /// There is no such header. Whether that is allowed is for the route to say.
    Missing,
    /// There is one, but no key can be read from it. Never run such a request unprotected.
    Invalid(HeaderFault),
}

/// What is wrong with a header that is there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum HeaderFault {
    /// Two lines or more, even of one value.
    Repeated,
    /// Nothing but space, with or without quotes.
    Empty,
    /// Longer than allowed, counted in bytes.
    TooLong {
        /// How long it is.
        len: usize,
        /// How long it may be.
        len_max: usize,
    },
    /// A byte that is no printable ASCII: a control character, NUL, or text beyond ASCII.
    Characters,
    /// Several values, joined by a comma.
    List,
    /// Not the one string it has to be: no or one-sided quotes, a bad escape, or something after it.
    Malformed,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("the idempotency key header is missing; send one key per intent"),
            Self::Invalid(fault) => fault.fmt(f),
        }
    }
}

impl fmt::Display for HeaderFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Repeated => "the idempotency key header is there more than once; send one line of it",
            Self::Empty => "the idempotency key header is empty; send a key, or leave the header out",
            Self::TooLong { len, len_max } => {
                return write!(f, "the idempotency key header has {len} bytes; send at most {len_max}");
            }
            Self::Characters => {
                "the idempotency key has characters beyond printable ASCII; send none of them"
            }
            Self::List => "the idempotency key header is a list; send one key, in quotes if it has a comma",
            Self::Malformed => "the idempotency key is no single string; send it in double quotes",
        };
        f.write_str(text)
    }
}

impl StdError for HeaderError {}

impl StdError for HeaderFault {}

impl From<HeaderFault> for HeaderError {
    fn from(fault: HeaderFault) -> Self {
        Self::Invalid(fault)
    }
}

impl From<HeaderError> for Error {
    fn from(error: HeaderError) -> Self {
        Self::invalid(error.to_string()).caused_by(error)
    }
}

fn quoted(line: &[u8]) -> Result<String, HeaderFault> {
    let Ok(item) = Parser::new(line).parse::<Item>() else {
        let is_list = Parser::new(line).parse::<sfv::List>().is_ok();
        return Err(if is_list { HeaderFault::List } else { HeaderFault::Malformed });
    };
    match item.bare_item {
        BareItem::String(text) => Ok(text.into()),
        _ => Err(HeaderFault::Malformed),
    }
}

/// Two lines that a proxy joined are a list; what follows a semicolon might be a parameter: both are refused.
fn bare(line: &[u8]) -> Result<String, HeaderFault> {
    if line.contains(&b',') {
        return Err(HeaderFault::List);
    }
    if line.iter().any(|byte| matches!(byte, b' ' | b'"' | b';')) {
        return Err(HeaderFault::Malformed);
    }
    String::from_utf8(line.to_vec()).map_err(|_| HeaderFault::Characters)
}

/// HTTP lets spaces and tabs surround a field's value; they are no part of it (RFC 9110, section 5.5).
fn trimmed(mut line: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = line {
        line = rest;
    }
    line
}

fn same_name(name: &[u8], other: &[u8]) -> bool {
    let plain = |byte: &u8| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    name.iter().map(plain).eq(other.iter().map(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lenient(lines: &[&[u8]]) -> Result<Key, HeaderError> {
        HeaderRule::default().parse(lines.iter().copied())
    }

    #[test]
    fn no_line_is_missing_and_an_empty_one_is_invalid() {
        assert_eq!(lenient(&[]), Err(HeaderError::Missing));
        for line in [&b""[..], b"  ", b"\t", b"\"\"", b"\"  \""] {
            assert_eq!(lenient(&[line]), Err(HeaderFault::Empty.into()));
        }
    }

    #[test]
    fn a_name_is_found_in_any_spelling_and_two_spellings_are_refused() {
        let find = |headers: &[(&str, &str)]| {
            let pairs = headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            HeaderRule::default().find(HEADER_NAME, pairs)
        };
        for name in ["idempotency-key", "IDEMPOTENCY_KEY", "Idempotency_Key"] {
            assert!(find(&[("accept", "x"), (name, "k"), ("key", "y")]).is_ok(), "{name}");
        }
        let both = [("Idempotency-Key", "mine"), ("idempotency_key", "automatic")];
        assert_eq!(find(&both), Err(HeaderFault::Repeated.into()));
        assert_eq!(find(&[("X-Idempotency-Key", "k")]), Err(HeaderError::Missing));
    }

    #[test]
    fn a_message_never_shows_the_value() {
        let error = Error::from(lenient(&[b"\"hunter2"]).expect_err("no closing quote"));
        assert_eq!(error.kind(), crate::ErrorKind::Invalid);
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }
}
