//! What a log or an error message may hold: never a scope, a key or a body.

use std::error::Error as _;
use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keyclaim::fingerprint::{Request, Scheme};
use keyclaim::machine::{Blob, Decision, InDoubt, Outcome, Response, StepResult};
use keyclaim::{Abandoned, ClaimRequest, Id, Key, Options, Policy, Scope, Store};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id as SpanId, Record};
use tracing::{Event, Metadata, Subscriber};

const SECRETS: [&str; 6] =
    ["secret-scope", "secret-key", "secret-body", "secret-target", "secret-answer", "secret-header"];

/// Writes every event down, whatever its level.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<String>>);

impl Visit for Diary {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0.lock().expect("no panic"), " {}={value:?}", field.name()).expect("a string");
    }
}

impl Subscriber for Diary {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> SpanId {
        attributes.record(&mut self.clone());
        SpanId::from_u64(1)
    }

    fn record(&self, _: &SpanId, values: &Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &SpanId, _: &SpanId) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
        self.0.lock().expect("no panic").push('\n');
    }

    fn enter(&self, _: &SpanId) {}

    fn exit(&self, _: &SpanId) {}
}

fn request(payload: &'static str) -> ClaimRequest<'static> {
    let id = Id::new(Scope::new("secret-scope").expect("short"), Key::new("secret-key").expect("short"));
    let parts = Request {
        method: b"POST",
        target: b"/secret-target",
        payload: payload.as_bytes(),
        ..Request::default()
    };
    ClaimRequest::new(id, Scheme::Raw, parts).operation("charge", payload.as_bytes())
}

/// Says and shows all there is to say and show of one key, and of every error on the way.
fn tell_all(store: &Store) -> String {
    let mut shown = String::new();
    let mut show = |value: &dyn Debug| writeln!(shown, "{value:?}").expect("a string");
    let short = Policy::new(Abandoned::Hold).lease(Duration::from_millis(1)).expect("above zero");
    let held = request("secret-body");
    show(&held);
    let Decision::Won(first) = store.claim(&held.clone().policy(short)).expect("healthy") else {
        panic!("the key is new")
    };
    show(&first);
    show(&store.claim(&request("secret-body of another")).expect("healthy"));
    show(&first.begin_effect("charge", Duration::from_millis(1), InDoubt::Hold));
    show(&first.finish_effect("charge", StepResult::Done(Blob::from(&b"secret-answer"[..]))));
    show(&first.finish_effect("charge", StepResult::NotSent));
    while matches!(store.claim(&held).expect("healthy"), Decision::InFlight { .. }) {
        std::thread::yield_now();
    }
    let stale = first.complete(&Outcome::success(Response::new(201, "secret-answer")));
    let error = stale.expect_err("taken over");
    show(&(&error, error.to_string(), error.source().map(ToString::to_string)));
    let id = held.id();
    show(&store.inspect(id).expect("healthy"));
    show(&store.list(id.scope(), keyclaim::store::Which::All, None, 10).expect("healthy"));
    let token = store.inspect(id).expect("healthy").expect("in flight").token;
    show(&store.resolve_absent(id, token));
    store.forget(id, token).expect("it was the token");
    let Decision::Won(claim) = store.claim(&held).expect("healthy") else { panic!("forgotten") };
    let answer = Response::new(201, "secret-answer").header("secret-header", "secret-header");
    claim.complete(&Outcome::success(answer)).expect("the owner");
    show(&store.claim(&held).expect("healthy"));
    shown
}

#[test]
fn no_log_and_no_message_holds_a_scope_a_key_or_a_body() {
    let diary = Diary::default();
    tracing::subscriber::set_global_default(diary.clone()).expect("the only test of this program");
    let folder = tempfile::tempdir().expect("a folder");
    let options = || Options::new(Abandoned::Rerun).renew_leases_max(0);
    let store = Store::open(folder.path().join("store"), options()).expect("a new store");
    let shown = tell_all(&store);
    store.close().expect("closed");
    let logged = diary.0.lock().expect("no panic").clone();
    assert!(logged.lines().count() > 5, "what happened is logged at all: {logged}");
    for (what, text) in [("logged", &logged), ("shown", &shown)] {
        for secret in SECRETS {
            // Bytes shown as numbers are as readable as text.
            let numbers = format!("{:?}", secret.as_bytes());
            let is_there = text.contains(secret) || text.contains(numbers.trim_matches(['[', ']']));
            assert!(!is_there, "{secret} is {what}:\n{text}");
        }
    }
}
