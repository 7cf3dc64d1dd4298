//! A store on a clock turned by hand, requests that were abandoned, and the handlers of a small shop.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keyclaim::clock::ManualClock;
use keyclaim::machine::{Blob, Decision, StepResult};
use keyclaim::store::Inspection;
use keyclaim::{
    Abandoned, Claim, Completer, CompleterPass, CompleterReport, EffectError, Ended, Later, Options, Policy,
    Store, Takeover,
};

use crate::faulty::*;

pub(crate) const LEASE: u64 = 1_000;
pub(crate) const ORDER: &str = "create_order";
pub(crate) const LIMIT: Duration = Duration::from_millis(200);

pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) clock: ManualClock,
}

/// Options on this clock, without renewals: a claim's lease ends when its time is over.
pub(crate) fn options(clock: &ManualClock, abandoned: Abandoned) -> Options {
    let policy = Policy::new(abandoned).lease(Duration::from_millis(LEASE)).expect("in bounds");
    Options::with_policy(policy).clock(Arc::new(clock.clone())).renew_leases_max(0)
}

pub(crate) fn in_memory() -> World {
    in_memory_with(Abandoned::Rerun, |options| options)
}

pub(crate) fn in_memory_with(abandoned: Abandoned, set: impl FnOnce(Options) -> Options) -> World {
    let clock = ManualClock::new(1_700_000_000_000);
    let store = Store::in_memory(set(options(&clock, abandoned))).expect("memory");
    World { store, clock }
}

pub(crate) fn on_file(folder: &tempfile::TempDir) -> (World, PathBuf) {
    let (clock, path) = (ManualClock::new(1_700_000_000_000), folder.path().join("store"));
    let store = Store::open(&path, options(&clock, Abandoned::Rerun)).expect("a fresh folder");
    (World { store, clock }, path)
}

impl World {
    /// The claim of a caller who stored the request.
    pub(crate) fn claim(&self, key: &str, stored: &[u8]) -> Claim {
        won(self.store.claim(&request(key).operation(ORDER, stored)))
    }

    /// Requests whose callers died having recorded nothing.
    pub(crate) fn abandon_many(&self, count: usize) {
        (0..count).for_each(|n| drop(self.claim(&format!("key {n}"), b"order")));
        self.clock.advance(LEASE);
    }

    /// One whole pass over what is abandoned now.
    pub(crate) fn pass(&self, completer: &Completer) -> CompleterReport {
        let report = self.store.complete_abandoned(&CompleterPass::new(completer)).expect("healthy");
        assert!(report.is_whole);
        report
    }

    pub(crate) fn look(&self, key: &str) -> Inspection {
        self.store.inspect(&id(key)).expect("healthy").expect("it is there")
    }

    /// What a caller who asks again is answered.
    pub(crate) fn answer(&self, key: &str) -> Decision<Claim> {
        self.store.claim(&request(key)).expect("healthy")
    }

    #[track_caller]
    pub(crate) fn replayed(&self, key: &str) -> Vec<u8> {
        replay(self.store.claim(&request(key))).response.body.bytes().expect("stored").to_vec()
    }
}

/// One handler for orders.
pub(crate) fn orders(
    handler: impl Fn(&Takeover) -> Result<Ended, Later> + Send + Sync + 'static,
) -> Completer {
    Completer::new().handler(ORDER, handler).expect("a short name")
}

/// Completes every order at once, and counts them.
pub(crate) fn completing() -> (Completer, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let completer = orders(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok(success(b"done").into())
    });
    (completer, count)
}

/// Fails every try, and counts them.
pub(crate) fn failing() -> (Completer, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let completer = orders(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Err(Later::new())
    });
    (completer, count)
}

/// The other side: what was charged and mailed, by downstream key, in order.
#[derive(Clone, Default)]
pub(crate) struct Shop(Arc<Mutex<Vec<(&'static str, String)>>>);

impl Shop {
    pub(crate) fn calls(&self) -> Vec<&'static str> {
        self.0.lock().expect("no panic").iter().map(|(what, _)| *what).collect()
    }

    fn call(&self, what: &'static str, key: &str) -> StepResult {
        self.0.lock().expect("no panic").push((what, key.to_owned()));
        StepResult::Done(Blob(what.as_bytes().to_vec()))
    }

    pub(crate) fn charge(&self, claim: &Claim) -> Result<(), EffectError<Error>> {
        let effect = claim.effect("charge", LIMIT).hold_in_doubt();
        effect.run(|call| Ok(self.call("charge", &call.downstream_key))).map(drop)
    }

    pub(crate) fn mail(&self, claim: &Claim) -> Result<(), EffectError<Error>> {
        let effect = claim.effect("mail", LIMIT).hold_in_doubt();
        effect.run(|call| Ok(self.call("mail", &call.downstream_key))).map(drop)
    }

    /// The handler of an order: the same steps as its caller's.
    pub(crate) fn handler(&self) -> Completer {
        let shop = self.clone();
        orders(move |takeover| {
            shop.charge(takeover.claim())?;
            shop.mail(takeover.claim())?;
            Ok(success(takeover.request()).into())
        })
    }
}

/// What a call of the tests fails with.
#[derive(Debug)]
pub(crate) struct Error;
