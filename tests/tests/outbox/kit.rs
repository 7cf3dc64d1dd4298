//! A store whose requests emit events, and a handler that notes what it is given.

#![allow(clippy::needless_pass_by_value, reason = "a payload is named where it is given")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keyclaim::clock::ManualClock;
use keyclaim::fingerprint::{Request, Scheme};
use keyclaim::outbox::{Backoff, Delivery, PublishError, RelayOptions, Relayed};
use keyclaim::{Abandoned, ClaimRequest, Event, Id, Key, Options, Scope, Store, Writes};

use crate::faulty::*;

pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) clock: ManualClock,
    requests: AtomicU64,
}

/// What was published, in order.
#[derive(Clone, Default)]
pub(crate) struct Published(Arc<Mutex<Vec<Delivery>>>);

pub(crate) fn in_memory() -> World {
    in_memory_with(|options| options)
}

pub(crate) fn in_memory_with(set: impl FnOnce(Options) -> Options) -> World {
    let clock = ManualClock::new(1_700_000_000_000);
    let options = Options::new(Abandoned::Rerun).clock(Arc::new(clock.clone())).renew_leases_max(0);
    World { store: Store::in_memory(set(options)).expect("memory"), clock, requests: AtomicU64::new(0) }
}

/// A lease of a second, three attempts, and delays of at most 100, 200 ms.
pub(crate) fn options() -> RelayOptions {
    let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10)).expect("in bounds");
    let options = RelayOptions::new().lease(Duration::from_secs(1)).expect("in bounds");
    options.attempts_max(3).expect("in bounds").backoff(backoff)
}

/// As [`options`], with a lease that no stalled machine outlasts.
pub(crate) fn long_lease() -> RelayOptions {
    options().lease(Duration::from_mins(10)).expect("in bounds")
}

pub(crate) fn ordered(key: &str, payload: impl ToString) -> Event {
    Event::new("orders", payload.to_string()).ordering_key(key)
}

pub(crate) fn free(payload: impl ToString) -> Event {
    Event::new("orders", payload.to_string())
}

/// A request of this scope that emits these events as it completes.
pub(crate) fn emit(store: &Store, scope: &str, key: &str, events: impl IntoIterator<Item = Event>) {
    let id = Id::new(Scope::new(scope).expect("short"), Key::new(key).expect("short"));
    let request = Request { method: b"POST", target: b"/orders", ..Request::default() };
    let claim = won(store.claim(&ClaimRequest::new(id, Scheme::Raw, request)));
    let writes = events.into_iter().fold(Writes::new(), Writes::emit);
    assert!(claim.complete_with(&success(b"done"), writes).expect("its owner").is_done());
}

pub(crate) fn payload(delivery: &Delivery) -> String {
    String::from_utf8_lossy(delivery.event.payload()).into_owned()
}

impl World {
    /// As [`emit`], by a request of its own.
    pub(crate) fn emit(&self, scope: &str, events: impl IntoIterator<Item = Event>) {
        let key = format!("request {}", self.requests.fetch_add(1, Ordering::Relaxed));
        emit(&self.store, scope, &key, events);
    }

    /// One pass over what is due now.
    pub(crate) fn pass(&self, handler: impl Fn(&Delivery) -> Result<(), PublishError>) -> Relayed {
        self.store.relay_once(self.store.now_ms(), &options(), handler).expect("healthy")
    }

    /// One pass that publishes all; the payloads in their order.
    pub(crate) fn drain(&self) -> Vec<String> {
        let published = Published::default();
        self.pass(published.handler());
        published.payloads()
    }

    pub(crate) fn events(&self) -> u64 {
        self.store.outbox().expect("healthy").events
    }
}

impl Published {
    pub(crate) fn handler(&self) -> impl Fn(&Delivery) -> Result<(), PublishError> + Send + Sync + use<> {
        let published = self.clone();
        move |delivery: &Delivery| {
            published.note(delivery);
            Ok(())
        }
    }

    pub(crate) fn note(&self, delivery: &Delivery) {
        self.0.lock().expect("no panic").push(delivery.clone());
    }

    pub(crate) fn all(&self) -> Vec<Delivery> {
        self.0.lock().expect("no panic").clone()
    }

    pub(crate) fn payloads(&self) -> Vec<String> {
        self.all().iter().map(payload).collect()
    }
}

/// A handler's failure that is to be tried again.
pub(crate) fn again() -> Result<(), PublishError> {
    Err(PublishError::again("no route"))
}

/// A handler's failure for good.
pub(crate) fn refused_for_good() -> Result<(), PublishError> {
    Err(PublishError::refused("no such topic"))
}
