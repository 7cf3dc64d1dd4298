//! Callers' own tables in redb, in one transaction with their claims.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;

use keyclaim::machine::{Decision, WonKind};
use keyclaim::store::Standing;
use keyclaim::store::redb::{MultimapTableDefinition, ReadableTable, ReadableTableMetadata, TableDefinition};
use keyclaim::{
    Claim, Error, ErrorKind, Event, Reap, Store, Transaction, Writes, Written, transaction_error,
};

use super::faulty::{bounded, eventually, in_flight, refused, replay, request, success};
use super::{in_memory, put};

const BALANCES: TableDefinition<&str, u64> = TableDefinition::new("balances");
const TAGS: MultimapTableDefinition<&str, u64> = MultimapTableDefinition::new("tags");

type Plain = TableDefinition<'static, &'static [u8], &'static [u8]>;

/// A caller's own error.
#[derive(Debug)]
#[allow(dead_code, reason = "read by Debug only")]
enum Trouble {
    NoFunds,
    Store(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

fn set(t: &Transaction<'_>, name: &str, balance: u64) -> Result<(), Error> {
    t.open_table(BALANCES)?.insert(name, balance).map_err(transaction_error)?;
    Ok(())
}

fn get(store: &Store, name: &str) -> Option<u64> {
    let found = store.view(|v| {
        let Some(balances) = v.open_table(BALANCES)? else { return Ok(None) };
        Ok::<_, Error>(balances.get(name).map_err(transaction_error)?.map(|balance| balance.value()))
    });
    found.expect("healthy")
}

fn win(t: &Transaction<'_>, key: &str) -> Claim {
    match t.claim(&request(key)) {
        Ok(Decision::Won(claim)) => claim,
        other => panic!("expected a win: {other:?}"),
    }
}

#[test]
fn claim_rows_and_outcome_commit_together() {
    let (store, _) = in_memory();
    let syncs = store.stats().expect("healthy").groups;
    for round in 0..2 {
        let ran = store.transaction(|t| match t.claim(&request("k"))? {
            Decision::Won(claim) => {
                set(t, "anna", 5)?;
                t.complete(&claim, &success(b"done"))?;
                Ok::<_, Error>(true)
            }
            Decision::Replay(_) => Ok(false),
            other => panic!("{other:?}"),
        });
        assert_eq!(ran.expect("healthy"), round == 0, "the second one replays");
    }
    assert_eq!(get(&store, "anna"), Some(5));
    assert_eq!(replay(store.claim(&request("k"))).response, success(b"done").response);
    let stats = store.stats().expect("healthy");
    assert_eq!((stats.won, stats.completed, stats.replayed, stats.groups - syncs), (1, 1, 2, 2));
}

#[test]
fn an_error_undoes_it_all_and_voids_what_was_won() {
    let (store, _) = in_memory();
    let mut kept = None;
    let told = store.transaction(|t| {
        kept = Some(win(t, "k"));
        set(t, "anna", 5)?;
        assert!(t.write(&Writes::new().put("orders", b"1", b"new"))?.is_done());
        Err::<(), _>(Trouble::NoFunds)
    });
    assert!(matches!(told, Err(Trouble::NoFunds)), "{told:?}");
    assert_eq!(get(&store, "anna"), None);
    assert_eq!(store.app_row("orders", b"1").expect("healthy"), None);
    assert_eq!(store.inspect(request("k").id()).expect("healthy"), None);
    let claim = kept.expect("won inside");
    assert!(claim.is_lost());
    refused(claim.complete(&success(b"late")), ErrorKind::Fenced);
    let next = match store.claim(&request("k")) {
        Ok(Decision::Won(next)) => next,
        other => panic!("the key is new: {other:?}"),
    };
    assert!(next.token() > claim.token(), "a token is not issued twice");
    assert_eq!(next.kind(), WonKind::Fresh);
    assert_eq!(store.stats().expect("healthy").won, 1, "what did not happen is not counted");
}

#[test]
fn a_panic_undoes_it_all_and_is_the_callers() {
    let (store, _) = in_memory();
    store.transaction(|t| set(t, "anna", 1)).expect("healthy");
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        store.transaction(|t| {
            // Panics with a table open and a win in hand.
            let mut balances = t.open_table(BALANCES)?;
            balances.insert("anna", 5).map_err(transaction_error)?;
            let _claim = win(t, "k");
            panic!("the caller's own");
            #[allow(unreachable_code, reason = "it gives the closure its type")]
            Ok::<(), Error>(())
        })
    }));
    let panic = panicked.expect_err("it goes on to the caller");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"the caller's own"));
    assert_eq!(get(&store, "anna"), Some(1));
    assert_eq!(store.inspect(request("k").id()).expect("healthy"), None);
    assert!(!store.is_poisoned());
    store.transaction(|t| set(t, "anna", 2)).expect("the store goes on");
    assert_eq!(get(&store, "anna"), Some(2));
    let looked =
        catch_unwind(AssertUnwindSafe(|| store.view(|_| -> Result<(), Error> { panic!("looking") })));
    looked.expect_err("it goes on to the caller");
    assert!(!store.is_poisoned(), "a caller's panic is not a damaged page");
}

#[test]
fn a_claim_goes_on_behind_the_transaction_it_was_won_in() {
    let (store, clock) = in_memory();
    let claim = store.transaction(|t| {
        let claim = win(t, "k");
        set(t, "order 1", 100)?;
        t.checkpoint(&claim, "ordered", b"1")?;
        Ok::<_, Error>(claim)
    });
    let claim = claim.expect("healthy");
    in_flight(store.claim(&request("k")));
    claim.checkpoint("half", b"2").expect("owner");
    store
        .transaction(|t| {
            set(t, "order 1", 0)?;
            let emit = Writes::new().emit(Event::new("orders", "1"));
            assert!(t.complete_with(&claim, &success(b"done"), emit)?.is_done());
            Ok::<_, Error>(())
        })
        .expect("healthy");
    replay(store.claim(&request("k")));
    refused(claim.release(), ErrorKind::Fenced);
    assert_eq!(get(&store, "order 1"), Some(0));
    // Of two attempts the later one owns the key, in a transaction too.
    let slow = store.transaction(|t| Ok::<_, Error>(win(t, "other"))).expect("healthy");
    clock.advance(10_000);
    let fast = store.transaction(|t| Ok::<_, Error>(win(t, "other"))).expect("healthy");
    assert_eq!((fast.kind(), fast.attempt()), (WonKind::Takeover, 2));
    let told = store.transaction(|t| {
        set(t, "order 2", 1)?;
        t.complete(&slow, &success(b"slow"))
    });
    refused(told, ErrorKind::Fenced);
    assert_eq!(get(&store, "order 2"), None, "the slow one's rows went with its outcome");
}

#[test]
fn a_conflict_leaves_the_transaction_to_its_closure() {
    let (store, _) = in_memory();
    put(&store, &Writes::new().put("t", b"k", b"1"));
    let told = store.transaction(|t| {
        let again = Writes::new().put_if_absent("t", b"k", b"2");
        assert!(matches!(t.claim_with(&request("k"), &again)?, Written::Conflict(_)));
        assert!(matches!(t.write(&again)?, Written::Conflict(_)));
        set(t, "anna", 3)?;
        let claim = win(t, "k");
        assert!(matches!(t.complete_with(&claim, &success(b""), again)?, Written::Conflict(_)));
        t.complete(&claim, &success(b"done"))
    });
    told.expect("healthy");
    assert_eq!(get(&store, "anna"), Some(3));
    replay(store.claim(&request("k")));
}

#[test]
fn the_stores_own_commands_inside_are_refused_and_hang_nothing() {
    let (store, _) = in_memory();
    let live = store.transaction(|t| Ok::<_, Error>(win(t, "live"))).expect("healthy");
    let (inside, other) = (store.clone(), in_memory().0);
    bounded(move || {
        let refused = |told: keyclaim::Result<()>| {
            let error = told.expect_err("it would wait for itself");
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
        };
        let run = |is_view: bool| {
            refused(inside.claim(&request("k")).map(drop));
            refused(live.complete(&success(b"")));
            refused(live.checkpoint("half", b""));
            refused(inside.reap(&Reap::new()).map(drop));
            refused(inside.reopen());
            refused(inside.clone().close());
            refused(inside.write(&Writes::new()).map(drop));
            refused(inside.transaction(|_| Ok(())));
            if is_view {
                refused(inside.inspect(request("k").id()).map(drop));
                refused(inside.view(|_| Ok(())));
            } else {
                assert!(inside.inspect(request("k").id()).expect("looking is allowed").is_none());
            }
            // Another store is another matter.
            assert!(other.claim(&request(if is_view { "a" } else { "b" })).is_ok());
            Ok::<_, Error>(())
        };
        inside.transaction(|_| run(false)).expect("healthy");
        inside.view(|_| run(true)).expect("healthy");
        inside.claim(&request("k")).expect("outside again");
        live.complete(&success(b"done")).expect("owner");
        inside.close().expect("healthy");
    });
}

#[test]
fn only_the_callers_own_tables_can_be_opened() {
    let (store, _) = in_memory();
    for name in ["meta", "records", "bodies", "archive", "due", "outbox", "app", "keyclaim", "keyclaim x"] {
        let told = store.transaction(|t| t.open_table(Plain::new(name)).map(drop));
        refused(told, ErrorKind::Invalid);
        let many = MultimapTableDefinition::<u64, u64>::new(name);
        refused(store.transaction(|t| t.open_multimap_table(many).map(drop)), ErrorKind::Invalid);
        refused(store.view(|v| v.open_table(Plain::new(name)).map(drop)), ErrorKind::Invalid);
        refused(store.view(|v| v.open_multimap_table(many).map(drop)), ErrorKind::Invalid);
    }
    let told = store.transaction(|t| {
        let _open = t.open_table(BALANCES)?;
        t.open_table(BALANCES).map(drop)
    });
    refused(told, ErrorKind::Invalid);
    store.transaction(|t| set(t, "anna", 1)).expect("healthy");
    let other = TableDefinition::<u64, u64>::new("balances");
    refused(store.transaction(|t| t.open_table(other).map(drop)), ErrorKind::Invalid);
    refused(store.view(|v| v.open_table(other).map(drop)), ErrorKind::Invalid);
    let missing = store.view(|v| Ok::<_, Error>(v.open_table(Plain::new("missing"))?.is_none()));
    assert!(missing.expect("healthy"));
    store
        .transaction(|t| {
            let mut tags = t.open_multimap_table(TAGS)?;
            for n in [1, 2] {
                tags.insert("anna", n).map_err(transaction_error)?;
            }
            Ok::<_, Error>(())
        })
        .expect("healthy");
    let len = store.view(|v| {
        let tags = v.open_multimap_table(TAGS)?.expect("made above");
        tags.len().map_err(transaction_error)
    });
    assert_eq!(len.expect("healthy"), 2);
}

#[test]
fn a_claim_of_another_store_is_refused() {
    let (store, other) = (in_memory().0, in_memory().0);
    let claim = other.transaction(|t| Ok::<_, Error>(win(t, "k"))).expect("healthy");
    refused(store.transaction(|t| t.complete(&claim, &success(b"done"))), ErrorKind::Invalid);
    claim.complete(&success(b"done")).expect("owner");
}

#[test]
fn whoever_waits_for_the_key_is_woken_by_the_commit() {
    let (store, _) = in_memory();
    let claim = store.transaction(|t| Ok::<_, Error>(win(t, "k"))).expect("healthy");
    let (send, told) = mpsc::channel();
    let waiting = store.clone();
    let waiter = thread::spawn(move || {
        let wait = keyclaim::ClaimWait::at_most(super::faulty::LONG);
        send.send(waiting.claim_wait(&request("k"), &wait)).expect("the test waits");
    });
    eventually("it waits", || store.stats().expect("healthy").waiters == 1);
    store.transaction(|t| t.complete(&claim, &success(b"done"))).expect("healthy");
    replay(told.recv_timeout(std::time::Duration::from_millis(900)).expect("woken, not by looking again"));
    waiter.join().expect("no panic");
}

#[test]
fn of_many_transactions_on_one_key_one_wins() {
    let (store, _) = in_memory();
    let wins: usize = thread::scope(|scope| {
        let all: Vec<_> = (0..16)
            .map(|n| {
                let store = &store;
                scope.spawn(move || {
                    store.transaction(|t| {
                        // Plain claims race them.
                        let Decision::Won(claim) = t.claim(&request("k"))? else { return Ok::<_, Error>(0) };
                        set(t, "winner", n)?;
                        t.complete(&claim, &success(b"done"))?;
                        Ok(1)
                    })
                })
            })
            .collect();
        all.into_iter().map(|thread| thread.join().expect("no panic").expect("healthy")).sum()
    });
    assert_eq!(wins, 1);
    assert!(get(&store, "winner").is_some());
    let found = store.inspect(request("k").id()).expect("healthy").expect("there");
    assert!(matches!(found.standing, Standing::Complete { .. }));
}
