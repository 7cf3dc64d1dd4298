//! Fingerprints and canonical JSON, against an oracle in Python.

use keyclaim::fingerprint::{Request, Scheme, canonical_json};
use serde_json::json;

use crate::oracle;

/// Lines of text: what is left out (pointers with tabs between them; "raw" for no JSON), method and target, media
/// type, content encoding; all behind them is the payload.
pub(crate) fn fingerprints(bytes: &[u8]) {
    let mut lines = bytes.splitn(5, |byte| *byte == b'\n');
    let mut next = || lines.next().unwrap_or_default();
    let (pointers, target, media_type, content_encoding, payload) = (next(), next(), next(), next(), next());
    // Pointers are text already when they come to us.
    let Ok(pointers) = std::str::from_utf8(pointers) else { return };
    let some = |line: &'static str, bytes| if bytes == line.as_bytes() { None } else { Some(bytes) };
    let (media_type, content_encoding) = (some("-", media_type), some("-", content_encoding));
    let (method, target) = target.split_at(target.iter().position(|byte| *byte == b' ').unwrap_or(0));
    let request = Request { method, target, media_type, content_encoding, payload };
    let without: Vec<&str> = pointers.split('\t').filter(|pointer| !pointer.is_empty()).collect();
    let is_raw = pointers == "raw";
    let scheme = if is_raw { Ok(Scheme::Raw) } else { Scheme::json(without.iter().copied()) };
    let ours = scheme.and_then(|scheme| scheme.fingerprint(&request)).ok();
    let theirs = oracle::ask(&json!({
        "scheme": if is_raw { "raw" } else { "json" },
        "without": without,
        "method": hex(method),
        "target": hex(target),
        "media_type": media_type.map(hex),
        "content_encoding": content_encoding.map(hex),
        "payload": hex(payload),
    }));
    let hash = ours.map(|fingerprint| hex(&fingerprint.hash));
    assert_eq!(hash.as_deref(), theirs["hash"].as_str(), "the oracle says {theirs}");
    if is_raw {
        return;
    }
    let canonical = canonical_json(payload, &without).ok();
    assert_eq!(
        canonical.as_deref().map(hex).as_deref(),
        theirs["canonical"].as_str(),
        "the oracle says {theirs}"
    );
    if let Some(canonical) = canonical {
        let again = canonical_json::<&str>(&canonical, &[]).expect("what is canonical is JSON");
        assert_eq!(again, canonical, "canonical JSON has another canonical form");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |digits, byte| digits + &format!("{byte:02x}"))
}
