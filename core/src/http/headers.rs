//! Which headers of an answer are stored, and which never are.

/// What is stored unless a route names more: what describes the bytes, and where the result is.
///
/// Cookies, challenges and other credentials are not in it, nor is what belongs to one exchange:
/// request ids, rate limits, Server, Retry-After, Cache-Control. Source: RFC 9110, sections 8 and
/// 10.2.2; RFC 6266; RFC 8288; RFC 9530.
pub const STORED: [&str; 13] = [
    "Content-Type",
    "Content-Encoding",
    "Content-Language",
    "Content-Location",
    "Content-Range",
    "Content-Disposition",
    "Content-Digest",
    "Repr-Digest",
    "ETag",
    "Last-Modified",
    "Vary",
    "Location",
    "Link",
];

/// What is neither stored nor replayed, not even if a route names it.
///
/// It frames one message or belongs to one connection (RFC 9110, 7.6.1), dates it (6.6.1), or is
/// written by keyclaim itself. What a Connection line names is treated the same.
pub const NEVER_STORED: [&str; 13] = [
    "Connection",
    "Content-Length",
    "Date",
    "Keep-Alive",
    "Proxy-Connection",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
    super::REPLAYED,
    super::STORED_MARK,
    super::REPLAY_WINDOW,
    super::STORE,
];

/// Where to find the result: the only headers that stay true once the body is gone.
pub(super) fn outlives_body(name: &[u8]) -> bool {
    is_one_of(name, &["Location", "Link"])
}

pub(super) fn is_one_of(name: &[u8], list: &[&str]) -> bool {
    list.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
}

/// Whether this line can be sent again at all: not bound to one message, and one line only.
pub(super) fn is_replayable(name: &[u8], value: &[u8]) -> bool {
    let breaks_out = |byte: &u8| matches!(byte, b'\r' | b'\n' | 0);
    is_name(name) && !value.iter().any(breaks_out) && !is_one_of(name, &NEVER_STORED)
}

/// Whether these bytes are a field name: a token of RFC 9110, 5.6.2.
pub(super) fn is_name(name: &[u8]) -> bool {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !name.is_empty() && name.iter().all(is_token)
}

/// Whether one of the Connection lines names this header as bound to the connection.
pub(super) fn is_named_by_connection(name: &[u8], connection: &[&[u8]]) -> bool {
    connection
        .iter()
        .flat_map(|value| value.split(|byte| *byte == b','))
        .any(|option| option.trim_ascii().eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_both_stored_and_never_stored() {
        assert!(STORED.iter().all(|name| !is_one_of(name.as_bytes(), &NEVER_STORED)));
        assert!(STORED.iter().chain(&NEVER_STORED).all(|name| is_name(name.as_bytes())));
    }

    #[test]
    fn a_line_that_would_become_two_is_not_replayable() {
        assert!(is_replayable(b"Link", b"</a>; rel=next"));
        for value in [&b"a\r\nSet-Cookie: b"[..], b"a\nb", b"a\0b"] {
            assert!(!is_replayable(b"Link", value));
        }
        for name in [&b""[..], b"A B", b"A:", b"A\r\nB", b"\xff"] {
            assert!(!is_replayable(name, b"v"));
        }
    }

    #[test]
    fn a_connection_line_names_headers_in_any_case_and_place() {
        let lines = [&b"close, X-Hop"[..], b"x-other"];
        assert!(is_named_by_connection(b"x-hop", &lines) && is_named_by_connection(b"X-Other", &lines));
        assert!(!is_named_by_connection(b"x-ho", &lines));
    }
}
