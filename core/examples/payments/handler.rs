//! `POST /v1/payments`: what is checked before the claim, and what each decision is answered with.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{OriginalUri, State};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderName, Method, StatusCode};
use axum::response::Response;
use keyclaim::fingerprint::Request;
use keyclaim::http::{Code, HttpAnswer};
use keyclaim::key::header::HEADER_NAME;
use keyclaim::machine::Decision;
use keyclaim::{Claim, ClaimRequest, ClaimWait, Id};

use crate::accounts;
use crate::attempt::{self, Pauses};
use crate::patience;
use crate::payment::Payment;
use crate::server::Api;
use crate::wire::{self, Answer};

/// The longest that a client may ask to wait (RFC 7240, `Prefer: wait`) for another's attempt to end.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// A request that may claim: all that its fingerprint needs, and what it asks for.
struct Incoming {
    id: Id,
    method: Method,
    target: String,
    media_type: Vec<u8>,
    content_encoding: Option<Vec<u8>>,
    body: Bytes,
    payment: Payment,
    wait: Duration,
    pauses: Pauses,
}

/// Takes a payment.
pub(crate) async fn create(
    State(api): State<Arc<Api>>,
    method: Method,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let target = uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    let incoming = match check(&api, method, target, &headers, body) {
        Ok(incoming) => incoming,
        Err(response) => return response,
    };
    let Ok(place) = api.places.clone().try_acquire_owned() else {
        return wire::send(api.mapping.problem(Code::StoreBusy));
    };
    // A client that hangs up drops this future, and only this: the payment and its record go on in a
    // task of their own, so that the retry finds an answer. The place in it is what a server that
    // ends waits for.
    let task = tokio::spawn({
        let api = api.clone();
        async move {
            let response = answer(api, incoming).await;
            drop(place);
            response
        }
    });
    task.await.unwrap_or_else(|_| {
        eprintln!("payments: a request panicked before or after its work; its lease decides");
        wire::send(api.mapping.problem(Code::StoreUnavailable))
    })
}

/// Claims, and runs the payment only if the claim is won.
async fn answer(api: Arc<Api>, incoming: Incoming) -> Response {
    let request = Request {
        method: incoming.method.as_str().as_bytes(),
        target: incoming.target.as_bytes(),
        media_type: Some(&incoming.media_type),
        content_encoding: incoming.content_encoding.as_deref(),
        payload: &incoming.body,
    };
    let claim = ClaimRequest::new(incoming.id.clone(), api.scheme.clone(), request);
    let wait = ClaimWait::at_most(incoming.wait).or_until(&api.closing);
    let decision = match patience::claim(&api.store, claim, &wait).await {
        Ok(decision) => decision,
        // There is no error on which a payment may be run anyway.
        Err(error) => {
            eprintln!("payments: request {}: {error}", incoming.id.short_hash());
            return wire::send(api.mapping.failure(&error));
        }
    };
    match decision {
        Decision::Won(claim) => attempt::run(api, claim, incoming.payment, incoming.pauses).await,
        Decision::Held { reason, token } => {
            // Someone has to resolve it; the token is what they name to the store.
            eprintln!("payments: request {} is held ({reason:?}), token {token}", incoming.id.short_hash());
            refuse(&api, &decision)
        }
        // It ran before, it runs now, it was another request, it is long over: nothing runs.
        Decision::Replay(_) | Decision::InFlight { .. } | Decision::Mismatch { .. } | Decision::Expired => {
            refuse(&api, &decision)
        }
    }
}

/// The answer to a decision that lets nothing run.
fn refuse(api: &Api, decision: &Decision<Claim>) -> Response {
    match api.mapping.answer(decision) {
        HttpAnswer::Send(response) => wire::send(response),
        // Said of a win alone. Should it ever be said of another decision, nothing runs all the same.
        HttpAnswer::Run => wire::send(api.mapping.problem(Code::StoreUnavailable)),
    }
}

/// Everything that can be refused without the store. None of these answers is ever stored.
#[allow(clippy::result_large_err, reason = "an answer of axum's is that large, and is moved once")]
fn check(
    api: &Api,
    method: Method,
    target: String,
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Incoming, Response> {
    let Some((_, scope)) = accounts::scope(headers) else {
        let detail = "Send the account's token as Authorization: Bearer.";
        let answer = Answer::problem(StatusCode::UNAUTHORIZED, "unknown_account", detail);
        return Err(answer.with(WWW_AUTHENTICATE.as_str(), "Bearer").send(&[]));
    };
    let lines = headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
    let key = api
        .key_rule
        .find(HEADER_NAME, lines)
        .map_err(|error| wire::send(api.mapping.problem(Code::from(&error))))?;
    let media_type = line(headers, &CONTENT_TYPE).filter(|value| is_json(value)).ok_or_else(|| {
        refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", "Send one Content-Type: application/json.")
    })?;
    // Canonical JSON is made of decoded bytes. This API decodes nothing, so it takes nothing encoded.
    let content_encoding = line(headers, &CONTENT_ENCODING);
    if headers.contains_key(CONTENT_ENCODING)
        && !content_encoding.as_ref().is_some_and(|value| value.eq_ignore_ascii_case(b"identity"))
    {
        return Err(refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "encoded", "Send the body unencoded."));
    }
    let body = body.map_err(|rejection| {
        refused(rejection.status(), "unreadable_body", "The body is too long, or was cut off on its way.")
    })?;
    let payment = Payment::parse(&body)
        .map_err(|detail| refused(StatusCode::UNPROCESSABLE_ENTITY, "invalid_payment", detail))?;
    Ok(Incoming {
        id: Id::new(scope, key),
        method,
        target,
        media_type,
        content_encoding,
        body,
        payment,
        wait: wanted_wait(headers),
        pauses: if api.is_demo { pauses(headers) } else { Pauses::default() },
    })
}

fn refused(status: StatusCode, code: &str, detail: &str) -> Response {
    Answer::problem(status, code, detail).send(&[])
}

/// The value of a header that is there once.
fn line(headers: &HeaderMap, name: &HeaderName) -> Option<Vec<u8>> {
    let mut lines = headers.get_all(name).iter();
    let line = lines.next()?;
    lines.next().is_none().then(|| line.as_bytes().to_vec())
}

fn is_json(media_type: &[u8]) -> bool {
    let essence = media_type.split(|byte| *byte == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

/// How long the client prefers to wait for an attempt that runs already, instead of being told 409.
fn wanted_wait(headers: &HeaderMap) -> Duration {
    let preferences = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    let seconds = preferences
        .flat_map(|value| value.split([',', ';']))
        .filter_map(|preference| preference.trim().strip_prefix("wait="))
        .find_map(|seconds| seconds.trim().parse().ok());
    seconds.map_or(Duration::ZERO, Duration::from_secs).min(WAIT_MAX)
}

/// The scene's wish to dawdle, such as `before-charge=500`, in milliseconds.
fn pauses(headers: &HeaderMap) -> Pauses {
    let wish = headers.get("demo-pause").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let span = |name: &str| {
        let millis = wish.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')?.parse().ok());
        millis.map_or(Duration::ZERO, Duration::from_millis)
    };
    Pauses {
        before_charge: span("before-charge"),
        after_charge: span("after-charge"),
        before_receipt: span("before-receipt"),
        after_receipt: span("after-receipt"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn headers(name: &'static str, lines: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(name, HeaderValue::from_static(line));
        }
        headers
    }

    #[test]
    fn a_wish_to_wait_is_bounded_and_anything_else_is_none() {
        let wait = |lines: &[&'static str]| wanted_wait(&headers("prefer", lines)).as_secs();
        assert_eq!(wait(&[]), 0);
        assert_eq!(wait(&["respond-async, wait=3"]), 3);
        assert_eq!(wait(&["respond-async", "wait=3"]), 3);
        assert_eq!(wait(&["wait=18446744073709551615"]), WAIT_MAX.as_secs());
        assert_eq!(wait(&["wait=-1"]), 0);
        assert_eq!(wait(&["wait=soon"]), 0);
    }

    #[test]
    fn a_header_that_is_there_twice_has_no_value() {
        assert_eq!(line(&headers("content-type", &["a"]), &CONTENT_TYPE), Some(b"a".to_vec()));
        assert_eq!(line(&headers("content-type", &["a", "a"]), &CONTENT_TYPE), None);
        assert_eq!(line(&headers("content-type", &[]), &CONTENT_TYPE), None);
    }

    #[test]
    fn json_is_told_by_its_media_type_alone() {
        assert!(is_json(b"application/json") && is_json(b"Application/JSON ; charset=utf-8"));
        assert!(!is_json(b"text/json") && !is_json(b"application/json-patch") && !is_json(b""));
    }
}
