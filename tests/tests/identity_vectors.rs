//! The library gives the answers that `tests/vectors` has for keys, ids and fingerprints.

use std::path::Path;

use keyclaim::fingerprint::{Request, Scheme, canonical_json};
use keyclaim::key::header::{HeaderError, HeaderFault, HeaderMode, HeaderRule};
use keyclaim::key::mint;
use keyclaim::{ErrorKind, Id, Key, Result, Scope};
use serde_json::Value;

#[test]
fn ids_are_encoded_decoded_and_bounded_as_the_vectors_say() {
    each_case("id", 17, |case| {
        let encoded = hex(text(&case["encoded_hex"]));
        if !case["error"].is_null() {
            assert_eq!(Id::decode(&encoded).expect_err("malformed").kind(), ErrorKind::Corrupt);
            return;
        }
        let scope = Scope::new(hex(text(&case["scope_hex"]))).expect("valid");
        let key = Key::with_limit(hex(text(&case["key_hex"])), 1024).expect("valid");
        let range = scope.range();
        let id = Id::new(scope, key);
        assert_eq!(id.encode(), encoded);
        assert_eq!(Id::decode(&encoded).expect("well-formed"), id);
        assert_eq!(id.short_hash(), text(&case["short_hash"]));
        assert!(range.contains(&encoded) && encoded.starts_with(&range.start));
        assert_eq!(range.end, case["range_end_hex"].as_str().map(hex));
    });
}

#[test]
fn headers_are_read_as_the_vectors_say() {
    each_case("key_header", 100, |case| {
        let mode = match text(&case["mode"]) {
            "lenient" => HeaderMode::Lenient,
            "strict" => HeaderMode::Strict,
            other => panic!("no mode {other}"),
        };
        let len_max = usize::try_from(case["key_len_max"].as_u64().expect("a number")).expect("small");
        let rule = HeaderRule::new(mode).key_len_max(len_max).expect("valid");
        let headers: Vec<(&[u8], Vec<u8>)> = list(&case["headers"])
            .iter()
            .map(|header| (text(&header["name"]).as_bytes(), bytes(header, "value").expect("a value")))
            .collect();
        let read =
            rule.find("Idempotency-Key", headers.iter().map(|(name, value)| (*name, value.as_slice())));
        let expected = match (&case["error"], case["fault"].as_str()) {
            (Value::Null, _) => Ok(text(&case["key"]).as_bytes()),
            (_, None) => Err("missing"),
            (_, Some(fault)) => Err(fault),
        };
        assert_eq!(read.as_ref().map(Key::as_bytes).map_err(|error| fault_name(*error)), expected);
    });
}

#[test]
fn canonical_json_is_what_the_vectors_say() {
    each_case("canonical_json", 95, |case| {
        let json = bytes(case, "json").expect("some JSON");
        let without: Vec<&str> = list(&case["without"]).iter().map(text).collect();
        same(case, "canonical", canonical_json(&json, &without), |canonical| {
            String::from_utf8(canonical).expect("canonical JSON is UTF-8")
        });
        if let Some(canonical) = case["canonical"].as_str()
            && without.is_empty()
        {
            let again = canonical_json(canonical.as_bytes(), &without).expect("canonical JSON is JSON");
            assert_eq!(again, canonical.as_bytes(), "not its own form");
        }
    });
}

#[test]
fn fingerprints_are_what_the_vectors_say() {
    each_case("fingerprint", 47, |case| {
        let without: Vec<&str> = list(&case["without"]).iter().map(text).collect();
        let scheme = match text(&case["scheme"]) {
            "raw" => Ok(Scheme::Raw),
            "json" => Scheme::json(without),
            other => panic!("no scheme {other}"),
        };
        let part = |name: &str| bytes(case, name);
        let (method, target, payload) = (part("method"), part("target"), part("payload"));
        let (media_type, content_encoding) = (part("media_type"), part("content_encoding"));
        let request = Request {
            method: &method.expect("a method"),
            target: &target.expect("a target"),
            media_type: media_type.as_deref(),
            content_encoding: content_encoding.as_deref(),
            payload: &payload.expect("a payload"),
        };
        let fingerprint = scheme.and_then(|scheme| scheme.fingerprint(&request));
        same(case, "hash", fingerprint, |fingerprint| {
            let hash = text(&case["hash"]);
            assert!(hash.starts_with(&fingerprint.prefix().to_string()));
            // Shown as the vector has it if it is those bytes, and as what it is if not.
            if hex(hash) == fingerprint.hash {
                hash.to_string()
            } else {
                format!("{:02x?}", fingerprint.hash)
            }
        });
    });
}

#[test]
fn derived_keys_are_what_the_vectors_say() {
    each_case("mint", 11, |case| {
        let parts: Vec<Vec<u8>> = list(&case["parts_hex"]).iter().map(|part| hex(text(part))).collect();
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let key = match (text(&case["kind"]), parts.as_slice()) {
            ("event", parts) => mint::from_event(parts),
            ("request", [intent, operation]) => mint::for_request(intent, operation),
            other => panic!("no kind {other:?}"),
        };
        same(case, "key", key, |key| String::from_utf8(key.as_bytes().to_vec()).expect("hex digits"));
    });
}

/// Runs every line of a file, and fails if there are not as many as this test was written for.
fn each_case(file: &str, count: usize, check: impl Fn(&Value) + std::panic::RefUnwindSafe) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors").join(format!("{file}.jsonl"));
    let lines = std::fs::read_to_string(&path).expect("the vectors are in the repository");
    assert_eq!(lines.lines().count(), count, "{file} has cases that this test does not expect");
    for line in lines.lines() {
        let case: Value = serde_json::from_str(line).expect("a line is JSON");
        if let Err(panic) = std::panic::catch_unwind(|| check(&case)) {
            eprintln!("the case above is {file}.jsonl, {}", case["name"]);
            std::panic::resume_unwind(panic);
        }
    }
}

fn same<T>(case: &Value, name: &str, answer: Result<T>, shown: impl Fn(T) -> String) {
    match (answer, case["error"].as_str()) {
        (Ok(value), None) => assert_eq!(shown(value), text(&case[name])),
        (Err(error), Some("invalid")) => assert_eq!(error.kind(), ErrorKind::Invalid),
        (Ok(value), Some(_)) => panic!("taken as {}, but has to be refused", shown(value)),
        (Err(error), None) => panic!("refused: {error}"),
        (_, Some(other)) => panic!("no error {other}"),
    }
}

fn fault_name(error: HeaderError) -> &'static str {
    match error {
        HeaderError::Missing => "missing",
        HeaderError::Invalid(HeaderFault::Repeated) => "repeated",
        HeaderError::Invalid(HeaderFault::Empty) => "empty",
        HeaderError::Invalid(HeaderFault::TooLong { .. }) => "too_long",
        HeaderError::Invalid(HeaderFault::Characters) => "characters",
        HeaderError::Invalid(HeaderFault::List) => "list",
        HeaderError::Invalid(HeaderFault::Malformed) => "malformed",
        HeaderError::Invalid(other) => panic!("the vectors have no fault {other:?}"),
    }
}

fn bytes(case: &Value, name: &str) -> Option<Vec<u8>> {
    match case.get(format!("{name}_hex")) {
        Some(digits) => Some(hex(text(digits))),
        None => case[name].as_str().map(|text| text.as_bytes().to_vec()),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn hex(digits: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hex digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}
