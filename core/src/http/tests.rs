//! Each decision and each error, by each preset. What needs whole answers is in the test crate.

use std::time::Duration;

use super::*;
use crate::fingerprint::Prefix;
use crate::key::header::HeaderRule;
use crate::machine::{Decision, HoldReason, Present, Won, WonKind};
use crate::policy::{Abandoned, Millis, Policy};
use crate::token::{Generation, StoreId, Token};
use crate::{Error, ErrorKind, Result};

const MISMATCH: Decision = Decision::Mismatch { stored: Prefix([1; 4]), asked: Prefix([2; 4]) };

fn json(response: &HttpResponse<'_>) -> serde_json::Value {
    serde_json::from_slice(&response.body).expect("a problem is JSON")
}

fn sent(mapping: &Mapping, decision: &Decision) -> HttpResponse<'static> {
    match mapping.answer(decision) {
        HttpAnswer::Run => panic!("{decision:?} runs nothing"),
        HttpAnswer::Send(response) => response.into_owned(),
    }
}

fn in_flight(retry_after_ms: u64) -> Decision {
    Decision::InFlight { retry_after_ms: Millis(retry_after_ms), lease_until_ms: None }
}

fn failure(kind: ErrorKind) -> Error {
    match kind {
        ErrorKind::Busy => Error::busy("full", Duration::from_millis(2_500)),
        ErrorKind::Fenced => Error::fenced(Present::InFlight(Token(7))),
        kind => Error::new(kind, "text for the log that no client may see"),
    }
}

#[test]
fn each_decision_has_its_status_and_code_by_preset() {
    let held = Decision::Held { reason: HoldReason::Owner, token: Token(9) };
    let table = [
        (in_flight(1_000), 409, 409, "concurrent_idempotent_requests"),
        (MISMATCH, 409, 422, "invalid_idempotent_request"),
        (held, 409, 409, "idempotent_request_outcome_unknown"),
        (Decision::Expired, 410, 410, "idempotency_key_expired"),
    ];
    for (decision, by_default, by_ietf, code) in table {
        for (preset, status) in [(Preset::Default, by_default), (Preset::Ietf, by_ietf)] {
            let response = sent(&Mapping::new(preset), &decision);
            assert_eq!(response.status, status, "{decision:?} {preset:?}");
            assert_eq!(response.header("content-type"), Some(&b"application/problem+json"[..]));
            assert_eq!(response.header(REPLAYED), None);
            let json = json(&response);
            assert_eq!((&json["code"], &json["status"]), (&code.into(), &status.into()));
            assert_eq!(json["type"], format!("urn:keyclaim:{code}"));
            assert!(json["title"].is_string() && json["detail"].is_string());
        }
    }
}

#[test]
fn only_a_win_runs_the_handler() {
    let won = Decision::Won(Won {
        last_seq: 0,
        token: Token(1),
        generation: Generation(1),
        attempt: 1,
        kind: WonKind::Fresh,
        lease_until_ms: None,
        point: None,
        steps: Vec::new(),
    });
    assert_eq!(Mapping::default().answer(&won), HttpAnswer::Run);
}

// KC-075: what is no key is told so at the border, and never becomes an error of the store.
#[test]
fn a_key_that_is_missing_or_malformed_is_400() {
    let long = [b'k'; 256];
    let table: [(&[&[u8]], &str); 6] = [
        (&[], "missing_idempotency_key"),
        (&[b""], "invalid_idempotency_key"),
        (&[b"a", b"a"], "invalid_idempotency_key"),
        (&[b"a\0"], "invalid_idempotency_key"),
        (&[b"\xe2\x80\xae"], "invalid_idempotency_key"),
        (&[&long], "invalid_idempotency_key"),
    ];
    for (lines, code) in table {
        let error = HeaderRule::default().parse(lines.iter().copied()).expect_err("no key is in there");
        for preset in [Preset::Default, Preset::Ietf] {
            let response = Mapping::new(preset).problem(Code::from(&error));
            assert_eq!((response.status, &json(&response)["code"]), (400, &code.into()));
            assert_eq!(response.header("Retry-After"), None);
        }
    }
}

#[test]
fn whoever_waits_is_told_seconds_rounded_up_and_exact_milliseconds() {
    for (wait_ms, seconds, told_ms) in [(0, "1", 1), (1, "1", 1), (1_000, "1", 1_000), (1_001, "2", 1_001)] {
        let response = sent(&Mapping::default(), &in_flight(wait_ms));
        assert_eq!(response.header("retry-after"), Some(seconds.as_bytes()), "{wait_ms} ms");
        assert_eq!(json(&response)["retry_after_ms"], told_ms);
    }
}

// KC-098: a store that fails runs nothing, and says when to come back.
#[test]
fn a_failing_store_answers_503_with_a_time_to_come_back() {
    for kind in ErrorKind::ALL {
        let response = Mapping::default().failure(&failure(kind));
        let (status, code) = match kind {
            ErrorKind::Invalid => (400, Code::ClaimRefused),
            ErrorKind::Busy => (503, Code::StoreBusy),
            ErrorKind::Fenced => (409, Code::Concurrent),
            _ => (503, Code::StoreUnavailable),
        };
        assert_eq!((response.status, response.code), (status, Some(code)), "{kind}");
        assert_eq!(response.header("Retry-After").is_some(), kind != ErrorKind::Invalid, "{kind}");
        assert!(!String::from_utf8_lossy(&response.body).contains("text for the log"));
    }
    let busy = Mapping::default().failure(&failure(ErrorKind::Busy));
    assert_eq!(busy.header("Retry-After"), Some(&b"3"[..]));
}

#[test]
fn an_overtaken_attempt_is_sent_where_the_counting_answer_is() {
    let of = |present| match Mapping::default().unrecorded(&Error::fenced(present)) {
        Unrecorded::SendInstead(response) => response.code,
        Unrecorded::SendOwn(_) => panic!("an overtaken result was sent as if it counted"),
    };
    assert_eq!(of(Present::Complete(Token(2))), Some(Code::Concurrent));
    assert_eq!(of(Present::InFlight(Token(2))), Some(Code::Concurrent));
    assert_eq!(of(Present::Held(Token(2))), Some(Code::OutcomeUnknown));
    assert_eq!(of(Present::Absent), Some(Code::OutcomeUnknown));
}

// KC-099: the effect happened, so its client learns of it although the store failed.
#[test]
fn a_result_that_was_not_stored_is_sent_and_marked() {
    for kind in ErrorKind::ALL.into_iter().filter(|kind| *kind != ErrorKind::Fenced) {
        let Unrecorded::SendOwn(lines) = Mapping::default().unrecorded(&failure(kind)) else {
            panic!("the client never learns what happened: {kind}");
        };
        let may_be_stored = matches!(kind, ErrorKind::Unknown | ErrorKind::Poisoned);
        let mark = if may_be_stored { "unknown" } else { "false" };
        let lines: Vec<_> = lines.iter().map(|line| (line.name.as_ref(), line.value.as_ref())).collect();
        assert_eq!(lines, [(STORED_MARK.as_bytes(), mark.as_bytes())], "{kind}");
    }
}

#[test]
fn a_status_set_for_a_code_wins_over_its_preset() -> Result<()> {
    let mapping =
        Mapping::new(Preset::Ietf).with_status(Code::Mismatch, 400)?.with_status(Code::Mismatch, 409)?;
    assert_eq!(sent(&mapping, &MISMATCH).status, 409);
    assert_eq!(json(&sent(&mapping, &MISMATCH))["status"], 409);
    assert!(mapping.rows().all(|(code, status)| status == code.status(Preset::Default)));
    for status in [0, 200, 204, 304, 399, 600] {
        assert!(Mapping::default().with_status(Code::ResponseNotKept, status).is_err(), "{status}");
    }
    Ok(())
}

#[test]
fn a_problem_points_to_its_documentation_if_there_is_one() -> Result<()> {
    let mapping = Mapping::default().documented_at("https://api.example.com/docs/idempotency")?;
    let expected = "https://api.example.com/docs/idempotency#idempotency_key_expired";
    assert_eq!(json(&mapping.problem(Code::KeyExpired))["type"], expected);
    for uri in
        ["", "docs", "https://", "https:///a", "ftp://a", "https://a/ b", "https://a/#b", "https://a/\n"]
    {
        assert!(Mapping::default().documented_at(uri).is_err(), "{uri}");
    }
    Ok(())
}

#[test]
fn every_answer_names_the_store_if_told_to() {
    let mut id = [0xab; 16];
    id[3] = 0x01;
    let mapping = Mapping::default().telling_store(StoreId(id)).telling_window();
    let named = Some(&b"ababab01"[..]);
    assert_eq!(sent(&mapping, &MISMATCH).header(STORE), named);
    assert_eq!(mapping.failure(&failure(ErrorKind::Closed)).header(STORE), named);
    let policy = Policy::new(Abandoned::Hold).replay_window(Duration::from_millis(86_400_999));
    let lines = mapping.first_answer_lines(&policy.expect("a day is allowed"));
    let lines: Vec<_> = lines.iter().map(|line| (line.name.as_ref(), line.value.as_ref())).collect();
    assert_eq!(lines, [(REPLAY_WINDOW.as_bytes(), &b"86400"[..]), (STORE.as_bytes(), &b"ababab01"[..])]);
    assert!(Mapping::default().first_answer_lines(&Policy::new(Abandoned::Hold)).is_empty());
}

#[test]
fn the_documented_tables_are_those_of_the_code() {
    let documented = include_str!("../../docs/http.md");
    for code in Code::ALL {
        let [by_default, by_ietf] = [Preset::Default, Preset::Ietf].map(|preset| code.status(preset));
        let row = format!("| `{code}` | {by_default} | {by_ietf} |");
        assert!(documented.contains(&row), "docs/http.md has no {row}");
    }
    let rows: Vec<String> =
        Endings::new().rows().map(|row| format!("| {} | {} |", row.when, row.rule)).collect();
    let table = rows.join("\n");
    assert!(documented.contains(&table), "docs/http.md has another table of endings than:\n{table}");
    let cell = format!("| {} | stored:", STORED.join(", "));
    assert!(documented.contains(&cell), "docs/http.md has no {cell}");
    assert!(NEVER_STORED.iter().all(|name| documented.contains(name)));
}
