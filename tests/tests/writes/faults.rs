//! The medium fails at every operation of a command with writes: all of it is there afterwards, or none.

use std::collections::BTreeSet;

use keyclaim::machine::Decision;
use keyclaim::store::Standing;
use keyclaim::store::inject::{Fault, Op};
use keyclaim::store::redb;
use keyclaim::{Abandoned, ErrorKind, Nonce, Options, Policy, Store, Writes, Written};

use super::faulty::{EIO, fast_folder, id, request, success};

const OWN: redb::TableDefinition<&str, u64> = redb::TableDefinition::new("own");

fn order(key: &str) -> Writes {
    Writes::new().put("orders", key.as_bytes(), &[7; 9_000]).put("index", key.as_bytes(), b"1")
}

/// What of a command is on disk: of its three parts all, or none.
fn is_there(store: &Store, key: &str, part: impl Fn(&Store) -> bool) -> bool {
    let order = store.app_row("orders", key.as_bytes()).expect("healthy").is_some();
    let index = store.app_row("index", key.as_bytes()).expect("healthy").is_some();
    let third = part(store);
    assert!(order == index && index == third, "{key}: order {order}, index {index}, record {third}");
    order
}

/// Runs a command under every single fault until one is not met; each command is then asked again until it is
/// answered. Returns how many were met, and how many of those were durable all the same.
fn under_every_fault(
    run: impl Fn(&Store, &str) -> keyclaim::Result<()>,
    record: impl Fn(&Store, &str) -> bool,
) -> (usize, usize) {
    let folder = fast_folder();
    let options = Options::with_policy(Policy::new(Abandoned::Rerun)).cache_len(0).renew_leases_max(0);
    let store = Store::open(folder.path().join("store"), options.clone()).expect("a fresh folder");
    let (mut met, mut durable) = (0, 0);
    for op in [Op::Write, Op::Sync, Op::Read, Op::SetLen] {
        for done in [false, true] {
            for nth in 1.. {
                let key = format!("{op:?} {done} {nth}");
                options.faults().add(Fault { op, nth, from_then_on: false, done, errno: EIO });
                let told = run(&store, &key);
                options.faults().clear();
                let Err(error) = told else { break };
                met += 1;
                assert!(matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Poisoned), "{error:?}");
                assert!(store.is_poisoned(), "{key}: {error:?}");
                store.reopen().expect("the fault is gone");
                let was_there = is_there(&store, &key, |store| record(store, &key));
                durable += usize::from(was_there);
                assert!(!was_there || error.kind() == ErrorKind::Unknown, "{key}: {error:?}");
                run(&store, &key).expect("asked again on a healthy store");
                assert!(is_there(&store, &key, |store| record(store, &key)), "{key}");
            }
        }
    }
    (met, durable)
}

fn nonce(key: &str) -> Nonce {
    let mut nonce = [1; 16];
    for (at, byte) in key.bytes().enumerate() {
        let place: &mut u8 = &mut nonce[at % 16];
        *place = place.wrapping_mul(31).wrapping_add(byte);
    }
    Nonce(nonce)
}

fn is_complete(store: &Store, key: &str) -> bool {
    let found = store.inspect(&id(key)).expect("healthy");
    found.is_some_and(|found| matches!(found.standing, Standing::Complete { .. }))
}

#[test]
fn a_claim_and_its_writes_are_one() {
    let versions = std::cell::RefCell::new(BTreeSet::new());
    let (met, durable) = under_every_fault(
        |store, key| {
            let told = store.claim_with(&request(key).nonce(nonce(key)), &order(key))?;
            assert!(matches!(told, Written::Done(Decision::Won(_))), "{told:?}");
            Ok(())
        },
        |store, key| {
            let row = store.app_row("orders", key.as_bytes()).expect("healthy");
            versions.borrow_mut().extend(row.map(|row| row.version));
            store.inspect(&id(key)).expect("healthy").is_some()
        },
    );
    assert!(met > 20 && durable > 0 && durable < met, "met {met}, durable {durable}");
    assert!(versions.borrow().len() >= met, "no version twice");
}

#[test]
fn an_outcome_and_its_writes_are_one() {
    // The claim object lives through it all, so that it is the same command that is asked again.
    let claims = std::cell::RefCell::new(std::collections::HashMap::new());
    let (met, durable) = under_every_fault(
        |store, key| {
            if !claims.borrow().contains_key(key) {
                match store.claim(&request(key).nonce(nonce(key)))? {
                    Decision::Won(claim) => drop(claims.borrow_mut().insert(key.to_owned(), claim)),
                    other => panic!("expected a win: {other:?}"),
                }
            }
            let claims = claims.borrow();
            let told = claims[key].complete_with(&success(b"done"), order(key))?;
            assert_eq!(told, Written::Done(()));
            Ok(())
        },
        is_complete,
    );
    assert!(met > 20 && durable > 0 && durable < met, "met {met}, durable {durable}");
}

#[test]
fn a_transaction_is_one() {
    let (met, durable) = under_every_fault(
        |store, key| {
            store.transaction(|t| {
                let claim = match t.claim(&request(key).nonce(nonce(key)))? {
                    Decision::Won(claim) => claim,
                    Decision::Replay(_) => return Ok(()),
                    other => panic!("expected a win: {other:?}"),
                };
                t.open_table(OWN)?.insert(key, 1).map_err(keyclaim::transaction_error)?;
                assert!(t.complete_with(&claim, &success(b"done"), order(key))?.is_done());
                Ok(())
            })
        },
        |store, key| {
            let own = store.view(|v| {
                let Some(own) = v.open_table(OWN)? else { return Ok(false) };
                let found = redb::ReadableTable::get(&own, key).map_err(keyclaim::transaction_error)?;
                Ok::<_, keyclaim::Error>(found.is_some())
            });
            let own = own.expect("healthy");
            assert_eq!(own, is_complete(store, key), "{key}");
            own
        },
    );
    assert!(met > 20 && durable > 0 && durable < met, "met {met}, durable {durable}");
}
