//! Files of each released format open for ever, and answer what they were made to answer.
//!
//! `BLESS=1 cargo test -p keyclaim-tests --test golden` makes the file of the current format anew. Before the first
//! release that is allowed, and the commit says why; from then on a format that changes gets a number and a file of
//! its own, and the old ones stay: see `core/docs/upgrades.md`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use keyclaim::clock::ManualClock;
use keyclaim::fingerprint::{Request, Scheme};
use keyclaim::machine::{
    Blob, Decision, EffectAnswer, InDoubt, Outcome, Response, StepProgress, StepResult, WonKind,
};
use keyclaim::outbox::{Ending, PublishError, RelayOptions};
use keyclaim::store::Standing;
use keyclaim::store::redb::{ReadableTable, TableDefinition};
use keyclaim::{
    Abandoned, AfterFailure, Claim, ClaimRequest, Error, Event, Id, Key, Options, Policy, Scope, Store,
    Writes, transaction_error,
};

const START_MS: u64 = 1_700_000_000_000;
const WINDOW: Duration = Duration::from_hours(1);
const LIMIT: Duration = Duration::from_secs(30);
const OWN: TableDefinition<&str, u64> = TableDefinition::new("own");

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/format-1.keyclaim")
}

/// The instant at which the file was closed.
fn closed_ms() -> u64 {
    START_MS + u64::try_from(WINDOW.as_millis()).expect("an hour")
}

fn open(path: &Path, clock: &ManualClock) -> Store {
    let policy = Policy::new(Abandoned::Rerun).replay_window(WINDOW).expect("in bounds");
    let options = Options::with_policy(policy).clock(Arc::new(clock.clone())).renew_leases_max(0);
    Store::open(path, options.verify_on_open(true)).expect("it opens")
}

fn id(key: &str) -> Id {
    Id::new(Scope::new("acct_1").expect("valid"), Key::new(key).expect("valid"))
}

fn request(key: &str) -> ClaimRequest<'static> {
    let request = Request {
        method: b"POST",
        target: b"/v1/payments",
        payload: b"{\"amount\":1}",
        ..Request::default()
    };
    ClaimRequest::new(id(key), Scheme::Raw, request)
}

fn win(store: &Store, request: &ClaimRequest<'_>) -> Claim {
    match store.claim(request).expect("healthy") {
        Decision::Won(claim) => claim,
        other => panic!("expected a win: {}", other.name()),
    }
}

fn small() -> Outcome {
    Outcome::success(
        Response::new(201, "paid").header("Location", "/p/1").header("Link", "<a>").header("Link", "<b>"),
    )
}

fn large() -> Outcome {
    let body: Vec<u8> = (0..40_000_u32).flat_map(u32::to_le_bytes).take(40_000).collect();
    Outcome::success(Response::new(200, body))
}

fn failure() -> Outcome {
    Outcome::failure(Response::new(402, "declined"), AfterFailure::Replay)
}

/// A store with at least one row of every kind.
fn make(path: &Path) {
    let clock = ManualClock::new(START_MS);
    let store = open(path, &clock);
    win(&store, &request("archived")).complete(&failure()).expect("owner");
    clock.advance(closed_ms() - START_MS);
    drop(win(&store, &request("archived")));
    win(&store, &request("small")).complete(&small()).expect("owner");
    win(&store, &request("large")).complete(&large()).expect("owner");
    win(&store, &request("failed")).complete(&failure()).expect("owner");
    win(&store, &request("held")).hold().expect("owner");

    let claim = win(&store, &request("in flight").operation("charge", b"the request"));
    let event = |n: &str| Event::new("orders", n.as_bytes()).ordering_key("order 1");
    let order = Writes::new().put("orders", b"1", b"new").emit(event("made")).emit(event("checked"));
    assert!(claim.checkpoint_with("ordered", b"data", order).expect("owner").is_done());
    claim.begin_effect("charge", LIMIT, InDoubt::Repeat).expect("owner");
    claim.finish_effect("charge", StepResult::Done(Blob::from(&b"receipt 7"[..]))).expect("owner");
    claim.begin_effect("mail", LIMIT, InDoubt::Hold).expect("owner");

    let dead = win(&store, &request("dead letter"));
    assert!(
        dead.complete_with(&small(), Writes::new().emit(Event::new("mail", "lost")))
            .expect("owner")
            .is_done()
    );
    for delivery in store.outbox_lease(10, &RelayOptions::new()).expect("healthy") {
        let ending = match delivery.event.topic() {
            "mail" => Ending::Failed(PublishError::refused("no such address")),
            _ => Ending::Returned,
        };
        store.outbox_end(&[(&delivery, ending)], &RelayOptions::new()).expect("healthy");
    }
    store
        .transaction(|t| {
            t.open_table(OWN)?.insert("anna", 5).map_err(transaction_error)?;
            Ok::<_, Error>(())
        })
        .expect("healthy");
    store.close().expect("healthy");
}

#[test]
fn the_file_of_format_1_answers_what_it_was_made_to_answer() {
    if std::env::var_os("BLESS").is_some() {
        let folder = tempfile::tempdir().expect("a folder");
        let made = folder.path().join("made.keyclaim");
        make(&made);
        fs::create_dir_all(golden().parent().expect("a folder")).expect("writable");
        fs::copy(&made, golden()).expect("writable");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("copy.keyclaim");
    fs::copy(golden(), &copy).expect("the file is committed");
    answers(&open(&copy, &ManualClock::new(closed_ms())));
}

/// The same of a file that is made now, so that what is checked is what is made.
#[test]
fn a_file_made_today_answers_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("made.keyclaim");
    make(&path);
    answers(&open(&path, &ManualClock::new(closed_ms())));
}

fn answers(store: &Store) {
    for (key, outcome) in
        [("small", small()), ("large", large()), ("failed", failure()), ("dead letter", small())]
    {
        match store.claim(&request(key)).expect("healthy") {
            Decision::Replay(replay) => {
                assert_eq!((replay.class, &replay.response), (outcome.class, &outcome.response), "{key}");
            }
            other => panic!("{key}: {}", other.name()),
        }
    }
    assert!(matches!(store.claim(&request("held")).expect("healthy"), Decision::Held { .. }));
    assert!(matches!(store.claim(&request("archived")).expect("healthy"), Decision::InFlight { .. }));
    assert_eq!(store.app_row("orders", b"1").expect("healthy").expect("there").value, b"new");
    let balance = store.view(|v| {
        let own = v.open_table(OWN)?.expect("there");
        Ok::<_, Error>(own.get("anna").map_err(transaction_error)?.map(|row| row.value()))
    });
    assert_eq!(balance.expect("healthy"), Some(5));
    let standing = store.outbox().expect("healthy");
    assert_eq!((standing.events, standing.dead_letters), (3, 1));
    let letters = store.dead_letters(None, 10).expect("healthy").letters;
    assert_eq!(
        (letters[0].event.payload(), letters[0].failure.as_deref()),
        (&b"lost"[..], Some("no such address"))
    );
    let delivered = store.outbox_lease(10, &RelayOptions::new()).expect("healthy");
    assert_eq!(delivered.iter().map(|delivery| delivery.event.payload()).collect::<Vec<_>>(), [b"made"]);

    let found = store.inspect(&id("in flight")).expect("healthy").expect("there");
    assert!(matches!(found.standing, Standing::InFlight { .. }), "{found:?}");
    store
        .forget(&id("archived"), store.inspect(&id("archived")).expect("healthy").expect("there").token)
        .expect("seen");
    let token = found.token;
    let again = win(store, &request("in flight").token(token));
    assert_eq!((again.kind(), again.token()), (WonKind::Again, token));
    assert_eq!(
        again.point().map(|point| (point.name.as_str(), point.data.0.as_slice())),
        Some(("ordered", &b"data"[..]))
    );
    let steps: Vec<_> = again.steps().iter().map(|step| (step.name.as_str(), step.repeatable)).collect();
    assert_eq!(steps, [("charge", true), ("mail", false)]);
    assert!(matches!(&again.steps()[0].progress, StepProgress::Done(bytes) if bytes.0 == b"receipt 7"));
    let met = again.begin_effect("charge", LIMIT, InDoubt::Repeat).expect("owner");
    assert!(matches!(met, EffectAnswer::Done { .. }), "{met:?}");
}
