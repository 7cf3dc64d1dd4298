//! An answer as it goes over the wire, for whatever framework sends it.

use std::borrow::Cow;
use std::fmt;

use super::code::Code;

/// One header line, as bytes.
#[derive(Clone, Eq, PartialEq)]
pub struct HeaderLine<'a> {
    /// The name, spelled as it was stored.
    pub name: Cow<'a, [u8]>,
    /// The value.
    pub value: Cow<'a, [u8]>,
}

/// What is done about a decision.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HttpAnswer<'a> {
    /// The claim is won: run the handler, then tell the store how it ended.
    Run,
    /// Send this and run nothing.
    Send(HttpResponse<'a>),
}

/// What becomes of the handler's own answer after the store did not record it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Unrecorded<'a> {
    /// It is sent, with these lines added: the effect happened, and its client must learn of it.
    SendOwn(Vec<HeaderLine<'a>>),
    /// It is dropped and this is sent: another attempt counts.
    SendInstead(HttpResponse<'a>),
}

/// A whole answer. Its length is left to the server, which knows how it frames messages.
#[derive(Clone, Eq, PartialEq)]
pub struct HttpResponse<'a> {
    /// The status.
    pub status: u16,
    /// The header lines in their order, repeats kept. Never a Content-Length or Transfer-Encoding.
    pub headers: Vec<HeaderLine<'a>>,
    /// The body; empty where the status allows none.
    pub body: Cow<'a, [u8]>,
    /// The code, if this is a problem and no replay.
    pub code: Option<Code>,
}

impl HttpResponse<'_> {
    /// The value of the first line of this name, which is compared without case.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        let named = |line: &&HeaderLine<'_>| line.name.eq_ignore_ascii_case(name.as_bytes());
        self.headers.iter().find(named).map(|line| line.value.as_ref())
    }

    /// The same answer, borrowing nothing.
    pub fn into_owned(self) -> HttpResponse<'static> {
        let owned = |bytes: Cow<'_, [u8]>| Cow::Owned(bytes.into_owned());
        let line = |line: HeaderLine<'_>| HeaderLine { name: owned(line.name), value: owned(line.value) };
        HttpResponse {
            status: self.status,
            headers: self.headers.into_iter().map(line).collect(),
            body: owned(self.body),
            code: self.code,
        }
    }
}

impl fmt::Debug for HeaderLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} bytes", String::from_utf8_lossy(&self.name), self.value.len())
    }
}

impl fmt::Debug for HttpResponse<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Replayed bytes are customer data: a log may learn their number, never their content.
        f.debug_struct("HttpResponse")
            .field("status", &self.status)
            .field("code", &self.code)
            .field("headers_count", &self.headers.len())
            .field("body_len", &self.body.len())
            .finish()
    }
}

/// Whether an answer of this status never has a body (RFC 9110, 6.4.1 and 15.3.6).
pub(super) const fn has_no_body(status: u16) -> bool {
    matches!(status, 100..=199 | 204 | 205 | 304)
}

pub(super) fn line(name: &'static str, value: impl Into<Cow<'static, str>>) -> HeaderLine<'static> {
    let value = match value.into() {
        Cow::Borrowed(value) => Cow::Borrowed(value.as_bytes()),
        Cow::Owned(value) => Cow::Owned(value.into_bytes()),
    };
    HeaderLine { name: Cow::Borrowed(name.as_bytes()), value }
}
