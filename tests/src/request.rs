//! Requests to claim with.

use keyclaim::fingerprint::{Request, Scheme};
use keyclaim::machine::{Decision, Outcome, Response};
use keyclaim::{Claim, ClaimRequest, Id, Key, Scope};

/// The id of this key in the scope that the tests use unless they say otherwise.
pub fn id(key: &str) -> Id {
    id_in("acct_1", key)
}

/// The id of this key in this scope.
///
/// # Panics
/// If there can be no such scope or key.
pub fn id_in(scope: &str, key: &str) -> Id {
    let scope = Scope::new(scope).expect("tests name valid scopes");
    Id::new(scope, Key::new(key).expect("tests name valid keys"))
}

/// A claim for one fixed request under this key.
pub fn request(key: &str) -> ClaimRequest<'static> {
    paying(key, b"{\"amount\":1}")
}

/// A claim under this key for a request with this payload: another payload is another request.
pub fn paying<'a>(key: &str, payload: &'a [u8]) -> ClaimRequest<'a> {
    let request = Request { method: b"POST", target: b"/v1/payments", payload, ..Request::default() };
    ClaimRequest::new(id(key), Scheme::Raw, request)
}

/// A success that answers with these bytes.
pub fn success(body: impl Into<Vec<u8>>) -> Outcome {
    Outcome::success(Response::new(201, body).header("location", "/v1/payments/1"))
}

/// The claim, which must have been won.
///
/// # Panics
/// If it was not.
pub fn won(decision: Decision<Claim>) -> Claim {
    match decision {
        Decision::Won(claim) => claim,
        other => panic!("expected a win, and was told {}", other.name()),
    }
}

/// The replayed body, which must be there.
///
/// # Panics
/// If the claim was answered with anything else.
pub fn replayed(decision: Decision<Claim>) -> Vec<u8> {
    match decision {
        Decision::Replay(replay) => replay.response.body.bytes().expect("the body is stored").to_vec(),
        other => panic!("expected a replay, and was told {}", other.name()),
    }
}
