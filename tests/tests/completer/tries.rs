//! One abandoned request: how it is finished, and how a try may end otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use keyclaim::machine::{
    Act, Blob, Decision, EffectAnswer, HoldReason, InDoubt, Outcome, Response, StepResult, WonKind,
};
use keyclaim::store::Standing;
use keyclaim::{Abandoned, Completer, CompleterPass, Ended, ErrorKind, Later, Millis, Store};

use crate::faulty::*;
use crate::kit::*;

#[test]
fn what_died_between_two_steps_is_finished_and_the_first_is_not_repeated() {
    let folder = fast_folder();
    let (on_file, _) = on_file(&folder);
    for world in [in_memory(), on_file] {
        let shop = Shop::default();
        let claim = world.claim("a", b"{\"order\":1}");
        shop.charge(&claim).expect("called");
        claim.checkpoint("charged", b"data").expect("owner");
        drop(claim);
        world.clock.advance(LEASE - 1);
        assert_eq!(world.pass(&shop.handler()).tried, 0, "its lease is not over");
        world.clock.advance(1);
        let report = world.pass(&shop.handler());
        assert_eq!((report.tried, report.completed, report.rows_read), (1, 1, 1));
        assert_eq!(shop.calls(), ["charge", "mail"]);
        assert_eq!(world.replayed("a"), b"{\"order\":1}");
        assert_eq!(world.pass(&shop.handler()).rows_read, 0);
    }
}

/// KC-006. After a crash the key stayed in progress until its record expired, a day later. The work was lost
/// meanwhile. Callers got a conflict. The request is finished without them, with all that was recorded.
#[test]
fn a_handler_is_handed_all_that_the_attempts_before_left() {
    let world = in_memory();
    let claim = world.claim("a", b"\xff\x00request");
    let (token, generation) = (claim.token(), claim.generation());
    Shop::default().charge(&claim).expect("called");
    claim.checkpoint("charged", b"data").expect("owner");
    let key = claim.downstream_key("mail");
    drop(claim);
    world.clock.advance(LEASE);
    let report = world.pass(&orders(move |takeover| {
        let claim = takeover.claim();
        assert_eq!((takeover.operation(), takeover.request()), (ORDER, &b"\xff\x00request"[..]));
        assert_eq!((claim.kind(), claim.attempt(), takeover.tries()), (WonKind::Takeover, 2, 1));
        assert_eq!((claim.generation(), claim.id()), (generation, &id("a")));
        assert!(claim.token() > token && !takeover.is_closing());
        let point = claim.point().expect("it was set");
        assert_eq!((point.name.as_str(), &point.data.0[..]), ("charged", &b"data"[..]));
        assert_eq!(claim.steps().len(), 1);
        assert_eq!(claim.downstream_key("mail"), key);
        Ok(success(b"done").into())
    }));
    assert_eq!((report.completed, report.panicked), (1, 0));
}

/// KC-022. A call to another service outlasted its attempt. That it might still land was lost. It was sent again, and
/// paid twice. The new attempt learns which step was begun, and asks once its limit and settling time are over.
#[test]
fn a_step_in_doubt_is_asked_about_once_it_has_settled_however_few_tries_there_are() {
    let world = in_memory();
    let settle = Duration::from_hours(1);
    let claim = world.claim("a", b"order");
    let reconcile = InDoubt::Reconcile { settle_ms: Millis::from_duration(settle) };
    let began = claim.begin_effect("charge", LIMIT, reconcile).expect("owner");
    let EffectAnswer::Run { until_ms, .. } = began else { panic!("{began:?}") };
    drop(claim);
    let settled_ms = until_ms.plus(Millis::from_duration(settle));
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let completer = orders(move |takeover| {
        let ask = |_| {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(StepResult::Done(Blob(b"charged".to_vec())))
        };
        let effect = takeover.claim().effect("charge", LIMIT).reconcile_in_doubt(settle, ask);
        effect.run_or_ask(|_| -> Result<_, Error> { panic!("never called again") })?;
        Ok(success(b"done").into())
    });
    let completer = completer.tries_max(2).expect("in bounds");
    world.clock.advance(LEASE);
    assert_eq!(world.pass(&completer).postponed, 1);
    while world.store.now_ms().plus(Millis(60_000)) < settled_ms {
        world.clock.advance(60_000);
        assert_eq!(world.pass(&completer).tried, 0, "it cannot have settled");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    world.clock.advance(settled_ms.since(world.store.now_ms()).0);
    assert_eq!(world.pass(&completer).completed, 1);
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert_eq!(world.replayed("a"), b"done");
}

#[test]
fn the_abandoned_policy_decides_whether_it_may_be_tried() {
    let world = in_memory_with(Abandoned::Hold, |options| options);
    drop(world.claim("nothing", b"order"));
    let recorded = world.claim("something", b"order");
    recorded.checkpoint("half", b"").expect("owner");
    drop(recorded);
    world.clock.advance(LEASE);
    let (completer, count) = completing();
    let report = world.pass(&completer);
    assert_eq!((report.held, report.tried, report.completed), (1, 1, 1));
    assert_eq!(count.load(Ordering::SeqCst), 1);
    assert_eq!(world.look("nothing").standing, Standing::Held { reason: HoldReason::Abandoned });
    assert_eq!(world.replayed("something"), b"done");
}

#[test]
fn an_operation_without_a_handler_is_left_alone_and_counted() {
    let world = in_memory();
    world.abandon_many(2);
    drop(won(world.store.claim(&request("other").operation("other", b"order"))));
    drop(won(world.store.claim(&request("nobody's"))));
    world.clock.advance(LEASE);
    let before = world.look("other");
    let (completer, _) = completing();
    let report = world.pass(&completer);
    assert_eq!((report.without_handler, report.completed, report.rows_read), (1, 2, 3));
    assert_eq!(world.look("other"), before);
    assert_eq!(world.pass(&Completer::new()).without_handler, 1);
}

/// KC-099. A store error after the handler was swallowed. The outcome was lost. The retry got a conflict for a
/// day. Whatever a handler does or fails to do, the try has an end that is on record and is told.
#[test]
fn silence_a_panic_and_a_refused_outcome_are_tries_that_came_to_nothing() {
    let world = in_memory();
    world.abandon_many(1);
    let (completer, _) = completing();
    let again = || {
        // Past every pause of so few tries.
        world.clock.advance(60_000);
    };
    let silent = world.pass(&orders(|_| Ok(Ended::Said)));
    assert_eq!((silent.tried, silent.unsaid), (1, 1));
    again();
    let panicked = world.pass(&orders(|_| panic!("a test asked for this panic")));
    assert_eq!((panicked.tried, panicked.panicked), (1, 1));
    again();
    let refused = world.pass(&orders(|takeover| {
        takeover.claim().begin_effect("charge", LIMIT, InDoubt::Repeat)?;
        Ok(success(b"done").into())
    }));
    assert_eq!((refused.tried, refused.refused), (1, 1));
    again();
    let unsound = Outcome::success(Response::new(201, vec![]).header("a", vec![b'a'; 40_000]));
    let refused = world.pass(&orders(move |takeover| {
        let effect = takeover.claim().effect("charge", LIMIT).repeat_in_doubt();
        effect.run(|_| Ok::<_, Error>(StepResult::Done(Blob(vec![]))))?;
        Ok(unsound.clone().into())
    }));
    assert_eq!((refused.tried, refused.refused), (1, 1));
    assert_eq!(world.look("key 0").attempt, 5);
    assert!(matches!(world.look("key 0").standing, Standing::InFlight { .. }));
    again();
    let changed = world.pass(&completer);
    assert_eq!((changed.tried, changed.held), (1, 1), "a step was left out");
    assert_eq!(world.look("key 0").standing, Standing::Held { reason: HoldReason::StepsChanged });
}

#[test]
fn a_handler_may_end_its_claim_by_itself_or_hold_it() {
    let world = in_memory();
    world.abandon_many(3);
    let report = world.pass(&orders(|takeover| match takeover.claim().id().key().as_bytes() {
        b"key 0" => {
            takeover.claim().complete(&success(b"by itself"))?;
            Ok(Ended::Said)
        }
        b"key 1" => Ok(Ended::Hold),
        _ => {
            let effect = takeover.claim().effect("charge", LIMIT).hold_in_doubt();
            effect.run(|_| Err(Error))?;
            Ok(success(b"done").into())
        }
    }));
    assert_eq!((report.tried, report.ended_by_handler, report.held), (3, 2, 1));
    assert_eq!(world.replayed("key 0"), b"by itself");
    assert_eq!(world.look("key 1").standing, Standing::Held { reason: HoldReason::Owner });
    assert_eq!(world.look("key 2").standing, Standing::Held { reason: HoldReason::StepInDoubt });
    assert_eq!(world.pass(&completing().0).tried, 0, "what is held is a person's");
}

#[test]
fn a_handler_completes_its_claim_and_writes_its_own_tables_in_one_transaction() {
    const ORDERS: redb::TableDefinition<'_, &str, u64> = redb::TableDefinition::new("orders");
    let world = in_memory();
    world.abandon_many(1);
    let report = world.pass(&orders(|takeover| {
        takeover.store().transaction(|t| {
            t.open_table(ORDERS)?.insert("key 0", 7).map_err(keyclaim::transaction_error)?;
            t.complete(takeover.claim(), &success(b"with its row"))
        })?;
        Ok(Ended::Said)
    }));
    assert_eq!((report.tried, report.ended_by_handler), (1, 1));
    assert_eq!(world.replayed("key 0"), b"with its row");
}

/// KC-019. A holder whose lease had lapsed came back and wrote its result over the new holder's. The true
/// result was lost. Two callers saw two results. A handler that is late is fenced, and its outcome dropped.
#[test]
fn a_handler_that_is_overtaken_changes_nothing() {
    let world = in_memory();
    world.abandon_many(1);
    let (store, clock) = (world.store.clone(), world.clock.clone());
    let report = world.pass(&orders(move |takeover| {
        clock.advance(LEASE);
        let Decision::Won(caller) = store.claim(&request("key 0"))? else { panic!("the lease is over") };
        caller.complete(&success(b"the caller's"))?;
        refused(takeover.claim().checkpoint("late", b""), ErrorKind::Fenced);
        Ok(success(b"the handler's").into())
    }));
    assert_eq!((report.tried, report.lost, report.completed), (1, 1, 0));
    assert_eq!(world.replayed("key 0"), b"the caller's");
}

#[test]
fn a_large_request_is_handed_over_byte_for_byte() {
    let folder = fast_folder();
    let (world, path) = on_file(&folder);
    let bytes =
        |len: usize| -> Vec<u8> { (0..len).map(|n| u8::try_from(n * 7 % 251).expect("small")).collect() };
    // Around what is kept within the record, and the largest.
    let lens = [0, 1, 16 * 1_024, 16 * 1_024 + 1, 300_000, 1_024 * 1_024];
    for len in lens {
        drop(world.claim(&format!("{len}"), &bytes(len)));
    }
    let too_large = bytes(1_024 * 1_024 + 1);
    let too_large = request("too large").operation(ORDER, &too_large);
    refused(world.store.claim(&too_large), ErrorKind::Invalid);
    let World { store, clock } = world;
    store.close().expect("healthy");
    clock.advance(LEASE);
    let store = Store::open(&path, options(&clock, Abandoned::Rerun)).expect("closed");
    let world = World { store, clock };
    let report = world.pass(&orders(move |takeover| {
        let len: usize = std::str::from_utf8(takeover.claim().id().key().as_bytes())
            .expect("digits")
            .parse()
            .expect("digits");
        assert_eq!(takeover.request(), bytes(len));
        Ok(Outcome::success(Response::new(204, vec![])).into())
    }));
    assert_eq!((report.completed, report.panicked), (lens.len() as u64, 0));
    world.store.close().expect("healthy");
    let db = redb::Database::create(&path).expect("closed");
    let txn = redb::ReadableDatabase::begin_read(&db).expect("healthy");
    let bodies: redb::TableDefinition<'_, &[u8], &[u8]> = redb::TableDefinition::new("bodies");
    let left = redb::ReadableTableMetadata::len(&txn.open_table(bodies).expect("there")).expect("healthy");
    assert_eq!(left, 0, "a request is kept until complete");
}

/// KC-015. One bad record stopped a sweep. Those behind it were lost to it. Their requests stayed in progress.
/// What is damaged stops nothing, and is not taken over to find that out.
#[test]
fn what_is_damaged_is_counted_and_passed_over_and_never_taken() {
    let folder = fast_folder();
    let (world, path) = on_file(&folder);
    world.abandon_many(3);
    drop(world.claim("large", &vec![7; 20_000]));
    let World { store, clock } = world;
    clock.advance(LEASE);
    store.close().expect("healthy");
    {
        let db = redb::Database::create(&path).expect("closed");
        let txn = db.begin_write().expect("healthy");
        for (name, key) in [("records", id("key 1").encode()), ("bodies", id("large").encode())] {
            let definition: redb::TableDefinition<'_, &[u8], &[u8]> = redb::TableDefinition::new(name);
            let mut table = txn.open_table(definition).expect("there");
            let found = redb::ReadableTable::range::<&[u8]>(&table, key.as_slice()..).expect("healthy");
            let key = found.map(|row| row.expect("healthy").0.value().to_vec()).next().expect("it is there");
            table.insert(key.as_slice(), &b"\x01damaged"[..]).expect("healthy");
        }
        txn.commit().expect("healthy");
    }
    let store = Store::open(&path, options(&clock, Abandoned::Rerun)).expect("closed");
    let world = World { store, clock };
    let (completer, count) = completing();
    let report = world.pass(&completer);
    assert_eq!((report.damaged, report.completed, report.rows_read), (2, 2, 4));
    assert_eq!(count.load(Ordering::SeqCst), 2);
    assert_eq!((world.look("large").attempt, world.replayed("key 2")), (1, b"done".to_vec()));
}

#[test]
fn a_handler_needs_a_name_of_its_own_that_an_operation_can_have() {
    let handler = |_: &keyclaim::Takeover| Err(Later::new());
    refused(Completer::new().handler("", handler), ErrorKind::Invalid);
    refused(Completer::new().handler("a".repeat(256), handler), ErrorKind::Invalid);
    refused(orders(handler).handler(ORDER, handler), ErrorKind::Invalid);
    refused(Completer::new().concurrency(0), ErrorKind::Invalid);
    refused(Completer::new().concurrency(257), ErrorKind::Invalid);
    refused(Completer::new().tries_max(0), ErrorKind::Invalid);
    let world = in_memory();
    let ahead = CompleterPass::new(&Completer::new()).at(world.store.now_ms().plus(Millis(1)));
    refused(world.store.complete_abandoned(&ahead), ErrorKind::Invalid);
}

/// So that a secret in an answer or a request cannot reach a log by `{:?}`.
#[test]
fn no_debug_output_shows_a_request() {
    let world = in_memory();
    drop(world.claim("key of a customer", b"hunter2"));
    world.clock.advance(LEASE);
    let report = world.pass(&orders(|takeover| {
        let shown = format!("{takeover:?} {:?}", Act::Abandon);
        assert!(!shown.contains("hunter2") && !shown.contains("key of a customer"), "{shown}");
        Ok(success(b"done").into())
    }));
    assert_eq!(report.completed, 1);
}
