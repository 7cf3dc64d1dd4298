//! Problem documents of RFC 9457, as `application/problem+json`.

use std::borrow::Cow;

use serde::Serialize;

use super::code::Code;
use super::wire::{HttpResponse, line};
use crate::policy::Millis;

/// What one occurrence of a problem adds to the text of its code.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extras {
    /// How long the client waits; also sent as Retry-After.
    pub(super) retry_after_ms: Option<Millis>,
    /// What is known of an answer that was not kept.
    pub(super) original: Option<Original>,
}

/// What is left of an answer that was not kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Original {
    pub(super) status: u16,
    pub(super) len: u64,
    pub(super) reason: &'static str,
}

#[derive(Serialize)]
struct Document<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    code: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    original_status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    original_len: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

/// The answer of one problem. `documented_at` is where its type is explained, if anywhere.
pub(super) fn response(
    code: Code,
    status: u16,
    documented_at: Option<&str>,
    extras: Extras,
) -> HttpResponse<'static> {
    let retry_after_ms = extras.retry_after_ms.map(|wait_ms| wait_ms.0.max(1));
    let document = Document {
        r#type: documented_at.map_or_else(|| format!("urn:keyclaim:{code}"), |at| format!("{at}#{code}")),
        title: code.title(),
        status,
        detail: code.detail(),
        code: code.name(),
        retry_after_ms,
        original_status: extras.original.map(|original| original.status),
        original_len: extras.original.map(|original| original.len),
        reason: extras.original.map(|original| original.reason),
    };
    let body = serde_json::to_vec(&document).expect("strings and numbers can always be written as JSON");
    // An answer about this moment must not be given again by a cache; a 410 otherwise may be.
    let mut headers =
        vec![line("Content-Type", "application/problem+json"), line("Cache-Control", "no-store")];
    if let Some(wait_ms) = retry_after_ms {
        headers.push(line("Retry-After", whole_seconds(wait_ms).to_string()));
    }
    HttpResponse { status, headers, body: Cow::Owned(body), code: Some(code) }
}

/// Whole seconds, rounded up and at least one: nobody is told to come back too early.
fn whole_seconds(span_ms: u64) -> u64 {
    span_ms.div_ceil(1_000).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_rounded_up_to_whole_seconds() {
        let cases = [
            (0, 1),
            (1, 1),
            (999, 1),
            (1_000, 1),
            (1_001, 2),
            (59_999, 60),
            (u64::MAX, 18_446_744_073_709_552),
        ];
        for (span_ms, seconds) in cases {
            assert_eq!(whole_seconds(span_ms), seconds, "{span_ms} ms");
        }
    }
}
