//! Answers as axum sends them.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use keyclaim::http::{HeaderLine, HttpResponse, Keep, capture};
use keyclaim::machine::{self, Blob};
use serde_json::json;

/// An answer of the API's own. What is sent and what is stored are both made from it, so that a
/// replay cannot differ from the first answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// A JSON document.
    pub(crate) fn json(status: StatusCode, document: &serde_json::Value) -> Self {
        let headers = vec![("content-type", "application/json".to_owned())];
        Self { status, headers, body: document.to_string().into_bytes() }
    }

    /// A problem document with a code of this API; `detail` must not repeat what the client sent.
    pub(crate) fn problem(status: StatusCode, code: &str, detail: &str) -> Self {
        let document = json!({
            "type": format!("urn:payments:{code}"),
            "title": status.canonical_reason(),
            "status": status.as_u16(),
            "detail": detail,
            "code": code,
        });
        let headers = vec![("content-type", "application/problem+json".to_owned())];
        Self { status, headers, body: document.to_string().into_bytes() }
    }

    /// Adds a header line.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// What the store keeps of it.
    pub(crate) fn kept(&self, keep: &Keep) -> keyclaim::Result<machine::Response> {
        let lines = self.headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        capture(self.status.as_u16(), lines, machine::Body::Here(Blob::from(self.body.as_slice())), keep)
    }

    /// It as it is sent, with these lines added.
    pub(crate) fn send(self, added: &[HeaderLine<'_>]) -> Response {
        let own = self.headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let added = added.iter().map(|line| (line.name.as_ref(), line.value.as_ref()));
        response(self.status, headers(own.chain(added)), self.body)
    }
}

/// A replay or a problem of keyclaim's as it is sent.
pub(crate) fn send(answer: HttpResponse<'_>) -> Response {
    let lines = answer.headers.iter().map(|line| (line.name.as_ref(), line.value.as_ref()));
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response(status, headers(lines), answer.body.into_owned())
}

fn response(status: StatusCode, headers: HeaderMap, body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// The lines in their order, with repeats. What is no header line cannot be sent and was never stored.
fn headers<'a>(lines: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    headers
}
