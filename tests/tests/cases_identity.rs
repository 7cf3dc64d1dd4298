//! Bugs that users of other idempotency layers met, as far as keys, headers and fingerprints are
//! concerned: each with what was done, what was lost, what users saw, and what is right.

use keyclaim::fingerprint::{Fingerprint, Request, Scheme};
use keyclaim::key::header::{HeaderError, HeaderMode, HeaderRule};
use keyclaim::key::mint;
use keyclaim::machine::Decision;
use keyclaim::{Abandoned, ClaimRequest, ErrorKind, Id, Key, Options, Scope, Store};

fn of(target: &str, payload: &str) -> Request<'static> {
    let leak = |text: &str| -> &'static [u8] { Box::leak(text.to_owned().into_boxed_str()).as_bytes() };
    Request {
        method: b"POST",
        target: leak(target),
        media_type: Some(b"application/json"),
        content_encoding: None,
        payload: leak(payload),
    }
}

fn json(payload: &str) -> Fingerprint {
    Scheme::json([] as [&str; 0]).and_then(|scheme| scheme.fingerprint(&of("/a", payload))).expect("JSON")
}

fn raw(payload: &str) -> Fingerprint {
    Scheme::Raw.fingerprint(&of("/a", payload)).expect("raw takes any bytes")
}

/// KC-033. A client's library wrote the members of one object in another order on the retry. The
/// bytes were compared. A genuine retry was refused as another request. Under canonical JSON the
/// order of members means nothing; under raw bytes, and inside a string, it does.
#[test]
fn the_order_of_members_matters_to_raw_bytes_only() {
    assert_eq!(json(r#"{"a":1,"b":2}"#), json(r#"{"b":2,"a":1}"#));
    assert_ne!(raw(r#"{"a":1,"b":2}"#), raw(r#"{"b":2,"a":1}"#));
    assert_ne!(json(r#"{"s":"{\"a\":1,\"b\":2}"}"#), json(r#"{"s":"{\"b\":2,\"a\":1}"}"#));
}

/// KC-034. Members were sorted at the top level and no deeper. Objects inside objects and arrays
/// kept their order. The retry of a nested request was refused. Order never matters to an object at
/// any depth, and always to an array.
#[test]
fn members_are_sorted_at_every_depth_and_arrays_never() {
    let first = json(r#"{"a":{"b":{"c":1,"d":2}},"list":[{"x":1,"y":2},{"z":3}]}"#);
    assert_eq!(first, json(r#"{"list":[{"y":2,"x":1},{"z":3}],"a":{"b":{"d":2,"c":1}}}"#));
    assert_ne!(first, json(r#"{"list":[{"z":3},{"y":2,"x":1}],"a":{"b":{"d":2,"c":1}}}"#));
}

/// KC-035. Amounts went through 64-bit floats before they were hashed. Two large amounts became
/// one. The second payment was answered with the first one's receipt. Digits are kept as they are.
#[test]
fn two_large_amounts_are_two_requests() {
    assert_ne!(json(r#"{"amount":9007199254740992}"#), json(r#"{"amount":9007199254740993}"#));
    assert_ne!(json(r#"{"amount":0}"#), json(r#"{"amount":1e-400}"#));
}

/// KC-038. An updated client wrote 1 where it had written 1.0. Numbers were compared as text. The
/// retry was refused. Canonical JSON compares the exact value, raw bytes the text.
#[test]
fn one_value_in_two_spellings_is_one_request() {
    for spelling in ["1.0", "1e0", "10e-1", "0.1E1"] {
        assert_eq!(json(&format!(r#"{{"amount":{spelling}}}"#)), json(r#"{"amount":1}"#), "{spelling}");
        assert_ne!(raw(&format!(r#"{{"amount":{spelling}}}"#)), raw(r#"{"amount":1}"#), "{spelling}");
    }
    assert_eq!(json("[-0]"), json("[0]"));
}

/// KC-042, KC-050. One key was used on two routes, and on two resources of one route. The key's
/// scope was the user alone. The second call was answered with the first one's response. The whole
/// target is in the fingerprint, so the same key elsewhere is a mismatch, and scopes are the caller's.
#[test]
fn one_key_on_two_routes_is_a_mismatch_and_two_scopes_share_nothing() {
    let store = Store::in_memory(Options::new(Abandoned::Rerun)).expect("memory");
    let claim = |scope: &str, target: &str| {
        let id = Id::new(Scope::new(scope).expect("short"), Key::new("K").expect("short"));
        store.claim(&ClaimRequest::new(id, Scheme::Raw, of(target, "{}"))).expect("healthy").name()
    };
    assert_eq!(claim("tenant-1", "/x/1"), "won");
    assert_eq!(claim("tenant-1", "/x/2"), "mismatch");
    assert_eq!(claim("tenant-1", "/y"), "mismatch");
    assert_eq!(claim("tenant-1", "/x/1"), "in_flight");
    // An operator who acts for two tenants acts in two scopes.
    assert_eq!(claim("tenant-2", "/x/1"), "won");
}

/// KC-044. A missing key was hashed as null. All requests without one shared a record. Strangers
/// were answered with each other's responses. What is no key is refused by its kind, never shared;
/// a zero or a false that an application makes a key of is a key.
#[test]
fn what_is_no_key_is_refused_and_zero_is_one() {
    let rule = HeaderRule::new(HeaderMode::Lenient);
    assert!(matches!(rule.parse([]), Err(HeaderError::Missing)));
    for value in ["", " ", "\t", "\"\"", "\"  \""] {
        let parsed = rule.parse([value.as_bytes()]);
        assert!(matches!(parsed, Err(HeaderError::Invalid(_))), "{value:?}");
    }
    assert_eq!(Key::new(b"").expect_err("empty").kind(), ErrorKind::Invalid);
    assert_eq!(mint::from_event(&[b"order", b""]).expect_err("a part is missing").kind(), ErrorKind::Invalid);
    for value in ["0", "false", "null"] {
        assert_eq!(rule.parse([value.as_bytes()]).expect("a key").as_bytes(), value.as_bytes());
    }
    assert_ne!(
        mint::from_event(&[b"order", b"0"]).expect("a key"),
        mint::from_event(&[b"order", b"1"]).expect("a key")
    );
}

/// KC-045. A selector of fields was wrong. It was found out on the first request, as a failure of
/// the store. Every call failed before its handler. A selector is checked when it is configured,
/// and one engine serves every use of it.
#[test]
fn a_wrong_selector_is_refused_when_it_is_configured() {
    for pointer in ["a", "/a~", "/a~2", ""] {
        assert_eq!(
            Scheme::json([pointer]).expect_err("no pointer").kind(),
            ErrorKind::Invalid,
            "{pointer:?}"
        );
    }
    let scheme = Scheme::json(["/sent_at", "/items/0/trace"]).expect("pointers");
    let print = |payload| scheme.fingerprint(&of("/a", payload)).expect("JSON");
    let first = print(r#"{"sent_at":1,"items":[{"trace":"x","id":7}]}"#);
    assert_eq!(first, print(r#"{"sent_at":2,"items":[{"trace":"y","id":7}]}"#));
    assert_ne!(first, print(r#"{"sent_at":1,"items":[{"trace":"x","id":8}]}"#));
}

/// KC-049. The framework's live request object was walked to make the hash. It held a loop. The
/// process died on the first request. A fingerprint is made of bytes that the caller names, and a
/// hostile depth in them is an error.
#[test]
fn a_fingerprint_is_made_of_bytes_and_a_hostile_depth_is_an_error() {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let scheme = Scheme::json([] as [&str; 0]).expect("no pointers");
    assert_eq!(scheme.fingerprint(&of("/a", &deep)).expect_err("too deep").kind(), ErrorKind::Invalid);
}

/// KC-075. Keys with NUL, control characters or endless length passed the border. The database
/// refused them later. Users saw a server error for their own mistake. The header is checked at the
/// border, in bytes; the core takes any bytes within its bounds.
#[test]
fn a_hostile_key_is_refused_at_the_border_and_harmless_in_the_core() {
    let rule = HeaderRule::new(HeaderMode::Lenient);
    let long = "k".repeat(256);
    let hostile = ["a\0b", "a\u{7}b", "\u{202e}abc", "\u{1f600}", long.as_str(), "\"a", "a\r\nb"];
    for value in hostile {
        assert!(matches!(rule.parse([value.as_bytes()]), Err(HeaderError::Invalid(_))), "{value:?}");
    }
    let store = Store::in_memory(Options::new(Abandoned::Rerun)).expect("memory");
    for bytes in [&b"a\0b"[..], b"\xff\xfe", "\u{202e}\u{1f600}".as_bytes()] {
        let id = Id::new(Scope::new(b"\0").expect("any byte"), Key::new(bytes).expect("any bytes"));
        let request = ClaimRequest::new(id, Scheme::Raw, of("/a", "{}"));
        assert!(matches!(store.claim(&request), Ok(Decision::Won(_))));
        assert!(matches!(store.claim(&request), Ok(Decision::InFlight { .. })));
    }
}

/// KC-077. A client sent its own key and its library's automatic one, under two spellings of one
/// name. The server took the last. The wrong one won. More than one value is refused, whatever the
/// spelling and even if they are equal.
#[test]
fn two_values_under_any_spelling_are_refused() {
    let rule = HeaderRule::new(HeaderMode::Lenient);
    let mine = (&b"Idempotency-Key"[..], &b"abc"[..]);
    for (other, value) in [("idempotency_key", "def"), ("IDEMPOTENCY-KEY", "abc"), ("Idempotency_Key", "")] {
        let found = rule.find("Idempotency-Key", [mine, (other.as_bytes(), value.as_bytes())]);
        assert!(matches!(found, Err(HeaderError::Invalid(_))), "{other}");
    }
    let found = rule.find("Idempotency-Key", [(&b"idempotency_key"[..], &b"abc"[..])]);
    assert_eq!(found.expect("one value").as_bytes(), b"abc");
}

/// KC-078. There was no rule for the length of a key. It came later, and refused keys that had been
/// taken. An empty header was sometimes absent and sometimes a key. 1 to 255 bytes are a key, an
/// empty header is invalid, and only no header at all is missing.
#[test]
fn an_empty_header_is_invalid_and_not_missing() {
    let rule = HeaderRule::new(HeaderMode::Lenient);
    assert!(matches!(rule.parse([&b""[..]]), Err(HeaderError::Invalid(_))));
    for (len, fits) in [(1, true), (255, true), (256, false)] {
        assert_eq!(rule.parse([vec![b'k'; len].as_slice()]).is_ok(), fits, "{len} bytes");
    }
}

/// KC-095. A form derived its key once, and the user edited a field before sending it again. The
/// second request was refused, rightly. The error had no type, so nobody could tell what to do. A
/// mismatch is a decision of its own that shows what begins both fingerprints; a new intent gets a
/// key of its own, which the helpers derive.
#[test]
fn a_mismatch_shows_both_requests_and_a_new_intent_has_a_new_key() {
    let store = Store::in_memory(Options::new(Abandoned::Rerun)).expect("memory");
    let claim = |key: &Key, payload: &str| {
        let id = Id::new(Scope::new("form").expect("short"), key.clone());
        store.claim(&ClaimRequest::new(id, Scheme::Raw, of("/a", payload))).expect("healthy")
    };
    let key = mint::for_request(b"intent-1", b"submit").expect("named");
    assert!(matches!(claim(&key, "first"), Decision::Won(_)));
    let Decision::Mismatch { stored, asked } = claim(&key, "edited") else { panic!("it was edited") };
    assert_eq!((stored, asked), (raw("first").prefix(), raw("edited").prefix()));
    assert_eq!(stored.to_string().len(), 8);
    let key = mint::for_request(b"intent-2", b"submit").expect("named");
    assert!(matches!(claim(&key, "edited"), Decision::Won(_)));
}

/// KC-033, KC-039. A deploy changed how requests are told apart while some were in flight. Their
/// records' meaning was lost. Every true retry was refused as another request. A record keeps its
/// scheme, and a retry is compared under that one; only what has no meaning under it is a mismatch.
#[test]
fn a_retry_is_compared_under_the_scheme_its_record_was_made_with() {
    let store = Store::in_memory(Options::new(Abandoned::Rerun)).expect("memory");
    let canonical = Scheme::json([] as [&str; 0]).expect("no pointers");
    let claim = |key: &str, scheme: &Scheme, payload: &str| {
        let id = Id::new(Scope::new("s").expect("short"), Key::new(key).expect("short"));
        store.claim(&ClaimRequest::new(id, scheme.clone(), of("/a", payload))).expect("healthy").name()
    };
    assert_eq!(claim("old", &Scheme::Raw, r#"{"a":1}"#), "won");
    assert_eq!(claim("old", &canonical, r#"{"a":1}"#), "in_flight");
    assert_eq!(claim("old", &canonical, r#"{"a":1.0}"#), "mismatch");
    assert_eq!(claim("new", &canonical, r#"{"a":1}"#), "won");
    assert_eq!(claim("new", &Scheme::Raw, r#"{ "a": 1.0 }"#), "in_flight");
    assert_eq!(claim("new", &Scheme::Raw, "no JSON at all"), "mismatch");
}
