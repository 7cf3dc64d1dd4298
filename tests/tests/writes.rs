//! What commits with a claim, a checkpoint or an outcome, or in a transaction with the caller's own tables:
//! all of it or nothing, and once.

#[path = "writes/faults.rs"]
mod faults;
#[path = "faulty/mod.rs"]
mod faulty;
#[path = "writes/rows.rs"]
mod rows;
#[path = "writes/transactions.rs"]
mod transactions;

use std::sync::Arc;
use std::time::Duration;

use keyclaim::clock::ManualClock;
use keyclaim::machine::Decision;
use keyclaim::{Abandoned, Claim, Options, Policy, Result, Store, Version, Writes, Written};

const LEASE: Duration = Duration::from_secs(10);

/// A store in memory on a clock turned by hand, without renewals.
fn in_memory() -> (Store, ManualClock) {
    let clock = ManualClock::new(1_700_000_000_000);
    let policy = Policy::new(Abandoned::Rerun).lease(LEASE).expect("in bounds");
    let options = Options::with_policy(policy).clock(Arc::new(clock.clone())).renew_leases_max(0);
    (Store::in_memory(options).expect("memory"), clock)
}

fn won(written: Result<Written<Decision<Claim>>>) -> Claim {
    match written {
        Ok(Written::Done(Decision::Won(claim))) => claim,
        other => panic!("expected a win: {other:?}"),
    }
}

fn number(store: &Store, table: &str, key: &[u8]) -> Option<u64> {
    let row = store.app_row(table, key).expect("healthy")?;
    Some(u64::from_be_bytes(row.value.try_into().expect("eight bytes")))
}

fn version(store: &Store, table: &str, key: &[u8]) -> Version {
    store.app_row(table, key).expect("healthy").expect("there").version
}

fn bytes(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn put(store: &Store, writes: &Writes) {
    assert!(store.write(writes).expect("healthy").is_done());
}
