//! From an answer to what is stored of it, through the machine, and back to an answer: what a client
//! that retries gets, for statuses, bytes, headers and sizes that other systems got wrong.

use keyclaim::fingerprint::{Fingerprint, Scheme};
use keyclaim::http::{
    Code, Ended, Ending, Endings, HttpAnswer, HttpResponse, Keep, Mapping, Preset, REPLAY_WINDOW, REPLAYED,
    Rule, capture, outcome,
};
use keyclaim::limits::{BODY_LEN_MAX, HEADERS_LEN_MAX, HEADERS_MAX};
use keyclaim::machine::{
    Act, Answer, Blob, Body, Change, ClaimCommand, Command, Decision, DropReason, Facts, Outcome,
    OutcomeClass, OwnerAnswer, OwnerCommand, Record, Response, decide,
};
use keyclaim::{Abandoned, Millis, Nonce, Policy, Result, Token};

// KC-058: the first answer was a 406, its replay a 200 with the same body.
#[test]
fn every_status_is_replayed_as_it_was_with_its_bytes() -> Result<()> {
    for status in 200..=999 {
        for preset in [Preset::Default, Preset::Ietf] {
            let body = status.to_string().into_bytes();
            let stored = capture(status, lines(&[("ETag", "\"1\"")]), here(&body), &Keep::new())?;
            let response = replayed_by(&Mapping::new(preset), stored);
            assert_eq!(response.status, status);
            assert_eq!(sent(&response), pairs(&[("ETag", "\"1\""), (REPLAYED, "true")]), "{status}");
            let has_body = !matches!(status, 204 | 205 | 304);
            assert_eq!(response.body.as_ref(), if has_body { &body[..] } else { b"" }, "{status}");
            assert_eq!(response.code, None);
        }
    }
    Ok(())
}

// KC-058: a handler may complete with a response of its own making, without capture.
#[test]
fn a_status_without_a_body_is_replayed_without_one_whatever_was_stored() {
    for status in [204, 205, 304] {
        let stored = Response { status, headers: Vec::new(), body: here(b"stray") };
        let response = replayed(stored);
        assert_eq!((response.status, response.body.as_ref()), (status, &b""[..]));
    }
}

// KC-060: a replayed 201 had lost its Location.
#[test]
fn what_describes_the_result_is_replayed_in_order_and_what_belongs_to_one_exchange_is_not() -> Result<()> {
    let first = [
        ("date", "Thu, 01 Jan 1970 00:00:00 GMT"),
        ("LOCATION", "/orders/7"),
        ("link", "</orders/8>; rel=next"),
        ("X-Request-Id", "r-1"),
        ("etag", "\"v1\""),
        ("Link", "</orders>; rel=up"),
        ("RateLimit-Remaining", "3"),
        ("Server", "s"),
        ("Set-Cookie", "sid=1"),
        ("Content-Type", "application/json"),
    ];
    let response = replayed(capture(201, lines(&first), here(b"{}"), &Keep::new())?);
    let kept = [
        ("LOCATION", "/orders/7"),
        ("link", "</orders/8>; rel=next"),
        ("etag", "\"v1\""),
        ("Link", "</orders>; rel=up"),
        ("Content-Type", "application/json"),
        (REPLAYED, "true"),
    ];
    assert_eq!(sent(&response), pairs(&kept));
    Ok(())
}

// KC-060: records from before headers were stored answered with an error.
#[test]
fn a_record_without_headers_is_replayed_without_headers() {
    let response = replayed(Response { status: 201, headers: Vec::new(), body: here(b"old") });
    assert_eq!((response.status, response.body.as_ref()), (201, &b"old"[..]));
    assert_eq!(sent(&response), pairs(&[(REPLAYED, "true")]));
}

// KC-061: an old session's cookie reached a later caller.
#[test]
fn credentials_are_replayed_only_if_the_route_names_them() -> Result<()> {
    let first = [
        ("Set-Cookie", "sid=1"),
        ("set-cookie", "theme=2"),
        ("WWW-Authenticate", "Basic"),
        ("Proxy-Authenticate", "Basic"),
        ("Authorization", "Bearer t"),
        ("Authentication-Info", "nextnonce=1"),
        ("X-Api-Key", "k"),
    ];
    let stored = capture(200, lines(&first), here(b""), &Keep::new())?;
    assert_eq!(stored.headers, Vec::new());
    let named = capture(200, lines(&first), here(b""), &Keep::new().header("SET-COOKIE")?)?;
    let kept = [("Set-Cookie", "sid=1"), ("set-cookie", "theme=2"), (REPLAYED, "true")];
    assert_eq!(sent(&replayed(named)), pairs(&kept));
    Ok(())
}

// KC-062: an answer over the limit was not stored, and the retry ran the request again.
#[test]
fn an_answer_over_the_limit_is_protected_and_its_replay_says_what_is_missing() -> Result<()> {
    const LIMIT: usize = 1_000;
    let keep = Keep::new().body_len_max(LIMIT)?;
    let headers = [("Location", "/reports/7"), ("Content-Type", "text/csv"), ("ETag", "\"1\"")];
    for len in [0, LIMIT - 1, LIMIT, LIMIT + 1, 10 * LIMIT] {
        let body = vec![b'x'; len];
        let stored = capture(201, lines(&headers), here(&body), &keep)?;
        let response = replayed(stored.clone());
        assert_eq!(response.header(REPLAYED), Some(&b"true"[..]), "{len} bytes");
        if len <= LIMIT {
            assert_eq!((response.status, response.body.as_ref()), (201, &body[..]));
            continue;
        }
        assert_eq!(stored.body, here(&body).dropped(DropReason::TooLarge));
        assert_eq!((response.status, response.code), (409, Some(Code::ResponseNotKept)));
        let text = text(&response);
        for part in
            [r#""original_status":201"#, r#""reason":"too_large""#, &format!(r#""original_len":{len}"#)]
        {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        // Nothing may describe bytes that are not there, nor ask the client to try again.
        let names: Vec<String> = sent(&response).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["Content-Type", "Cache-Control", "Location", REPLAYED]);
        assert_eq!(response.header("content-type"), Some(&b"application/problem+json"[..]));
    }
    Ok(())
}

// KC-062: the store's own limit, for a service that allows as much as can be stored.
#[test]
fn an_answer_over_the_limit_of_the_store_is_protected_too() -> Result<()> {
    let keep = Keep::new().body_len_max(BODY_LEN_MAX)?;
    let stored = capture(200, [], here(&vec![0; BODY_LEN_MAX + 1]), &keep)?;
    assert_eq!(replayed(stored).code, Some(Code::ResponseNotKept));
    Ok(())
}

// KC-062 for headers: protection is never dropped for size, and no answer is given again in part.
#[test]
fn headers_over_the_limit_are_protected_and_never_replayed_in_part() -> Result<()> {
    let half = "v".repeat(HEADERS_LEN_MAX / 2 - "Link".len());
    let over = format!("{half}v");
    let table = [
        (vec![("Link", "a"); HEADERS_MAX], true),
        (vec![("Link", "a"); HEADERS_MAX + 1], false),
        (vec![("Link", half.as_str()), ("Link", half.as_str())], true),
        (vec![("Link", half.as_str()), ("Link", over.as_str())], false),
        (vec![("X-Not-Kept", over.as_str()); 10 * HEADERS_MAX], true),
    ];
    for (headers, is_kept) in table {
        for status in [201, 204, 303] {
            let response = replayed(capture(status, lines(&headers), here(b"body"), &Keep::new())?);
            if is_kept {
                let count = headers.iter().filter(|(name, _)| *name == "Link").count();
                assert_eq!((response.status, response.headers.len()), (status, count + 1));
            } else {
                assert_eq!((response.status, response.code), (409, Some(Code::ResponseNotKept)));
                assert!(text(&response).contains(&format!(r#""original_status":{status}"#)));
            }
        }
    }
    Ok(())
}

// KC-064: a body that was no text came back as an empty object.
#[test]
fn every_byte_comes_back_however_the_body_was_cut_into_pieces() -> Result<()> {
    let body: Vec<u8> = (0..=u8::MAX).chain([0xff, 0xfe, 0x00, 0xc3, 0x28]).collect();
    for piece in [1, 7, body.len()] {
        let keep = Keep::new();
        let mut sink = keep.body_sink();
        body.chunks(piece).for_each(|piece| sink.push(piece));
        let response = replayed(capture(200, [], sink.finish(), &keep)?);
        assert_eq!(response.body.as_ref(), body, "in pieces of {piece}");
    }
    Ok(())
}

// KC-064: a stream over the limit is neither kept in memory nor taken for an empty answer.
#[test]
fn a_stream_over_the_limit_is_known_by_its_length_and_hash() -> Result<()> {
    let keep = Keep::new().body_len_max(10)?;
    let mut sink = keep.body_sink();
    (0..1_000).for_each(|_| sink.push(b"1234567"));
    assert!(!sink.fits());
    let stored = capture(200, [], sink.finish(), &keep)?;
    assert_eq!(stored.body, here(&b"1234567".repeat(1_000)).dropped(DropReason::TooLarge));
    Ok(())
}

// KC-065: a stored length clashed with the compression of the replay.
#[test]
fn the_coding_is_kept_with_its_bytes_and_the_framing_never() -> Result<()> {
    let keep = Keep::new().header("X-Hop")?;
    let response = replayed(capture(200, lines(&FRAMED), here(b"\x1f\x8b\x08"), &keep)?);
    let kept = [("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding"), (REPLAYED, "true")];
    assert_eq!(sent(&response), pairs(&kept));
    assert_eq!(response.body.as_ref(), b"\x1f\x8b\x08");
    Ok(())
}

// KC-065: a handler may complete with headers of its own making, without capture.
#[test]
fn what_was_stored_without_capture_cannot_break_the_framing_either() {
    let blob = |text: &str| Blob(text.as_bytes().to_vec());
    let more = [("Link", "<b>\r\nSet-Cookie: sid=1"), (REPLAYED, "false")];
    let headers = FRAMED.iter().chain(&more).map(|(name, value)| (blob(name), blob(value))).collect();
    let response = replayed(Response { status: 200, headers, body: here(b"abc") });
    let kept = [
        ("Content-Encoding", "gzip"),
        ("Vary", "Accept-Encoding"),
        ("X-Hop", "1"),
        ("Link", "<a>"),
        (REPLAYED, "true"),
    ];
    assert_eq!(sent(&response), pairs(&kept));
}

// KC-068: the mark of a replay was left out when the result was empty.
#[test]
fn a_replay_is_marked_whatever_its_value() -> Result<()> {
    let mapping = Mapping::default().telling_window();
    for body in [&b""[..], b"null", b"0", b"false", b"{}"] {
        let response = replayed_by(&mapping, capture(200, [], here(body), &Keep::new())?);
        let marks = [(REPLAYED, "true"), (REPLAY_WINDOW, "86400")];
        assert_eq!((sent(&response), response.body.as_ref()), (pairs(&marks), body));
    }
    Ok(())
}

// KC-069: a 503 from before any effect was answered for a day.
#[test]
fn a_refusal_of_the_moment_is_not_pinned_to_the_key() {
    for status in [503, 429, 401, 403, 408, 421, 425] {
        assert_eq!(outcome(Ended::Status(status), &policy()), Ending::Release, "{status}");
    }
    let release = OwnerCommand { token: Token(1), seq: 1, digest: [0; 16], act: Act::Release };
    let released = decide(Some(&claimed()), &Command::Owner(release), facts());
    assert_eq!(released.changes.record, Change::Delete, "the next request with the key runs");
}

// KC-069: what a 500 after the effect means is for the route to say.
#[test]
fn a_failure_is_stored_unless_the_route_says_otherwise() -> Result<()> {
    let failed = |endings: &Endings| endings.ending(Ended::Status(500), None, &policy());
    assert!(matches!(failed(&Endings::new()), Ending::Complete(OutcomeClass::Failure(_))));
    for (rule, ending) in
        [(Rule::Release, Ending::Release), (Rule::Abandon, Ending::Abandon), (Rule::Hold, Ending::Hold)]
    {
        assert_eq!(failed(&Endings::new().on_status(500..=500, rule)?), ending);
    }
    Ok(())
}

// An engine puts a body from its own row back before it answers; without it there is no answer.
#[test]
fn bytes_that_an_engine_did_not_put_back_are_never_an_empty_answer() {
    let body = Body::Apart { len: 3, hash: [0; 32] };
    let response = replayed(Response { status: 200, headers: Vec::new(), body });
    assert_eq!((response.status, response.code), (503, Some(Code::StoreUnavailable)));
    assert_eq!(response.header(REPLAYED), None);
}

const FRAMED: [(&str, &str); 10] = [
    ("Content-Encoding", "gzip"),
    ("Vary", "Accept-Encoding"),
    ("Content-Length", "3"),
    ("transfer-encoding", "chunked"),
    ("Trailer", "X-Sum"),
    ("Connection", "keep-alive, X-Hop, link"),
    ("Keep-Alive", "timeout=5"),
    ("Upgrade", "h2c"),
    ("X-Hop", "1"),
    ("Link", "<a>"),
];

/// What a retry is sent once this response completed the request.
fn replayed(response: Response) -> HttpResponse<'static> {
    replayed_by(&Mapping::default(), response)
}

fn replayed_by(mapping: &Mapping, response: Response) -> HttpResponse<'static> {
    match mapping.answer(&retried(response)) {
        HttpAnswer::Send(response) => response.into_owned(),
        HttpAnswer::Run => panic!("a finished request ran again"),
    }
}

fn retried(response: Response) -> Decision {
    let act = Act::Complete {
        outcome: Outcome { class: OutcomeClass::Success, response },
        met: 0,
        writes: keyclaim::Writes::new(),
    };
    let complete = OwnerCommand { token: Token(1), seq: 1, digest: [0; 16], act };
    let verdict = decide(Some(&claimed()), &Command::Owner(complete), facts());
    assert_eq!(verdict.answer, Ok(Answer::Owner(OwnerAnswer::Completed)), "what is captured can be stored");
    let record = put(verdict.changes.record);
    match decide(Some(&record), &claim(2), facts()).answer {
        Ok(Answer::Decision(decision)) => decision,
        other => panic!("the retry got no decision: {other:?}"),
    }
}

fn claimed() -> Record {
    put(decide(None, &claim(1), facts()).changes.record)
}

fn claim(nonce: u8) -> Command {
    Command::Claim(ClaimCommand {
        nonce: Nonce([nonce; 16]),
        token: None,
        fingerprint: Fingerprint { scheme: Scheme::Raw, hash: [5; 32] },
        policy: policy(),
        operation: None,
        request: None,
        writes: keyclaim::Writes::new(),
    })
}

fn put(change: Change) -> Record {
    match change {
        Change::Put(record) => *record,
        other => panic!("nothing was stored: {other:?}"),
    }
}

fn policy() -> Policy {
    Policy::new(Abandoned::Hold)
}

fn facts() -> Facts {
    Facts { now_ms: Millis(1_000), next_token: Token(1), owner_lives_here: false }
}

fn here(bytes: &[u8]) -> Body {
    Body::Here(Blob(bytes.to_vec()))
}

fn lines<'a>(headers: &'a [(&'a str, &'a str)]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()))
}

fn sent(response: &HttpResponse<'_>) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    response.headers.iter().map(|line| (text(&line.name), text(&line.value))).collect()
}

fn pairs(headers: &[(&str, &str)]) -> Vec<(String, String)> {
    headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn text(response: &HttpResponse<'_>) -> String {
    String::from_utf8_lossy(&response.body).into_owned()
}
