//! Lines of HTTP: keys that come in, and answers that are kept and given again.

use keyclaim::http::{Keep, NEVER_STORED, capture};
use keyclaim::key::header::{HEADER_NAME, HeaderError, HeaderMode, HeaderRule};
use keyclaim::limits::{HEADERS_LEN_MAX, HEADERS_MAX};
use keyclaim::machine::{Blob, Body};
use keyclaim::{Id, Key};

/// The first byte says what: lines of a request, lines of an answer, or an id as it is stored.
pub(crate) fn headers(bytes: &[u8]) {
    let Some((what, rest)) = bytes.split_first() else { return };
    match what % 3 {
        0 => request(rest),
        1 => answer(rest),
        _ => stored_id(rest),
    }
}

/// Lines as `name: value`, whatever the bytes of both.
fn lines(bytes: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    bytes.split(|byte| *byte == b'\n').map(|line| {
        let (name, value) = line.split_at(line.iter().position(|byte| *byte == b':').unwrap_or(line.len()));
        (name, value.get(1..).unwrap_or_default())
    })
}

fn request(bytes: &[u8]) {
    let (len_max, bytes) = bytes.split_at_checked(2).unwrap_or((&[0, 0], bytes));
    let len_max = usize::from(u16::from_le_bytes([len_max[0], len_max[1]])) % 1_500;
    let read = |mode| {
        let rule = HeaderRule::new(mode);
        let rule = rule.key_len_max(len_max).unwrap_or(rule);
        (rule, rule.find(HEADER_NAME, lines(bytes)))
    };
    let (strict, of_strict) = read(HeaderMode::Strict);
    let (_, of_lenient) = read(HeaderMode::Lenient);
    if of_strict.is_ok() {
        assert_eq!(of_lenient, of_strict, "a quoted key is the same in both modes");
    }
    assert_eq!(of_strict == Err(HeaderError::Missing), of_lenient == Err(HeaderError::Missing));
    if let Ok(key) = of_lenient {
        assert!(key.as_bytes().len() <= 1_024, "a key over its bound");
        let is_plain = |byte: &u8| matches!(byte, b'!'..=b'~') && !matches!(byte, b'"' | b',' | b';');
        assert!(
            of_strict.is_ok() || key.as_bytes().iter().all(is_plain),
            "a bare key that only quotes make plain"
        );
        let again = strict.parse([quoted(&key).as_slice()]);
        assert_eq!(again, Ok(key), "a key in quotes is another one");
    }
}

/// As RFC 9651 writes a string.
fn quoted(key: &Key) -> Vec<u8> {
    let escaped = key.as_bytes().iter().flat_map(|byte| {
        let needs_escape = matches!(byte, b'"' | b'\\');
        needs_escape.then_some(b'\\').into_iter().chain([*byte])
    });
    [b'"'].into_iter().chain(escaped).chain([b'"']).collect()
}

fn answer(bytes: &[u8]) {
    let Some(([a, b, c], bytes)) = bytes.split_first_chunk::<3>() else { return };
    let status = u16::from_le_bytes([*a, *b]) % 1_100;
    let keep = lines(bytes).take(usize::from(*c)).fold(Keep::new(), |keep, (name, _)| {
        let name = String::from_utf8_lossy(name);
        keep.clone().header(&name).unwrap_or(keep)
    });
    let body = Body::Here(Blob(bytes.to_vec()));
    let Ok(kept) = capture(status, lines(bytes), body, &keep) else {
        assert!(!(200..=999).contains(&status), "an answer was refused");
        return;
    };
    let len: usize = kept.headers.iter().map(|(name, value)| name.0.len() + value.0.len()).sum();
    assert!(kept.headers.len() <= HEADERS_MAX && len <= HEADERS_LEN_MAX, "kept over the bound");
    for (name, value) in &kept.headers {
        let is_never = NEVER_STORED.iter().any(|never| name.0.eq_ignore_ascii_case(never.as_bytes()));
        assert!(!is_never, "a line was kept that belongs to one message");
        let breaks_out = |bytes: &[u8]| bytes.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
        assert!(!breaks_out(&name.0) && !breaks_out(&value.0), "a line would become two");
    }
    // What was kept whole is kept as it is when it goes by again.
    if matches!(kept.body, Body::Dropped { .. }) {
        return;
    }
    let pairs = kept.headers.iter().map(|(name, value)| (name.0.as_slice(), value.0.as_slice()));
    let again = capture(kept.status, pairs, kept.body.clone(), &keep).expect("its status is final");
    assert_eq!(again, kept, "an answer changes each time it goes by");
}

fn stored_id(bytes: &[u8]) {
    if let Ok(id) = Id::decode(bytes) {
        assert_eq!(id.encode(), bytes, "two spellings of one id");
        assert!(id.scope().range().contains(bytes), "an id outside its scope");
    }
}
