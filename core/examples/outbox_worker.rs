//! A shop whose orders emit an event each, and a mailer in a store of its own that sends one mail an order.
//!
//! ```text
//! order -> claim, complete + emit (one commit) -> relay -> broker (loses answers) -> mailer: claim on the event's key
//! ```
//!
//! `cargo run -p keyclaim --example outbox_worker`. It makes its stores in a folder of its own, ends by itself, and
//! fails if an order was mailed twice or not at all. Its last line says what happened.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use keyclaim::fingerprint::{Request, Scheme};
use keyclaim::machine::{Decision, Outcome, Response};
use keyclaim::outbox::{Backoff, Delivery, PublishError, RelayOptions};
use keyclaim::{Abandoned, ClaimRequest, Event, Id, Key, Options, Scope, Store, Writes, Written};

const ORDERS: u64 = 12;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether every order was mailed, and mailed once.
fn run() -> Result<bool, Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    // Rerun: all that an order does is inside its commit.
    let shop = Store::open(folder.path().join("shop.keyclaim"), Options::new(Abandoned::Rerun))?;
    let mailer = Arc::new(Mailer::open(&folder.path().join("mailer.keyclaim"))?);
    let broker = Broker { mailer: mailer.clone(), deliveries: AtomicU64::new(0) };

    let backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(50))?;
    let options = RelayOptions::new().workers(2)?.lease(Duration::from_secs(5))?.backoff(backoff);
    let broker = Arc::new(broker);
    let publisher = broker.clone();
    let relay = shop.relay(&options, move |delivery| publisher.publish(delivery))?;

    for number in 0..ORDERS {
        let customer = format!("customer {}", number % 3);
        // The client asks twice, as clients do: one order, and one event.
        take_order(&shop, &customer, number)?;
        take_order(&shop, &customer, number)?;
    }
    let start = Instant::now();
    while shop.outbox()?.events > 0 && start.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let done = relay.shutdown(Duration::from_secs(5));
    println!("relay: {} published, {} tried again, {} dead letters", done.published, done.failed, done.dead);

    let mut mails = mailer.sent.lock().expect("no thread panicked").clone();
    mails.sort_unstable();
    let sent = mails.len();
    mails.dedup();
    let (mailed_once, repeated) = (mails.len(), sent - mails.len());
    let deliveries = broker.deliveries.load(Ordering::Relaxed);
    println!(
        "orders: {ORDERS}; deliveries: {deliveries}; orders mailed: {mailed_once}; repeated mails: {repeated}"
    );
    Ok(mailed_once as u64 == ORDERS && repeated == 0 && deliveries > ORDERS)
}

/// Takes an order, once however often it is asked. The event is in the outbox if and only if it was taken.
fn take_order(shop: &Store, customer: &str, number: u64) -> keyclaim::Result<Response> {
    let id = Id::new(Scope::new(customer)?, Key::new(format!("order {number}"))?);
    let body = format!("order {number} of {customer}");
    let request =
        Request { method: b"POST", target: b"/orders", payload: body.as_bytes(), ..Request::default() };
    match shop.claim(&ClaimRequest::new(id, Scheme::Raw, request))? {
        Decision::Won(claim) => {
            let response = Response::new(201, "ordered");
            // The mails of one customer go out in the order of the orders.
            let event = Event::new("orders.taken", body).ordering_key(customer);
            match claim.complete_with(&Outcome::success(response.clone()), Writes::new().emit(event))? {
                Written::Done(()) => Ok(response),
                // Only a condition on a row can conflict, and there is none.
                Written::Conflict(_) => Ok(Response::new(409, "conflict")),
            }
        }
        Decision::Replay(replay) => Ok(replay.response),
        Decision::InFlight { .. } => Ok(Response::new(409, "the same order is being taken; ask again")),
        Decision::Mismatch { .. } => Ok(Response::new(422, "the key was used for another order")),
        Decision::Held { .. } => Ok(Response::new(409, "outcome unknown; a person looks into it")),
        Decision::Expired => Ok(Response::new(410, "ordered long ago")),
    }
}

/// A message broker that hands over every message and sometimes loses the answer.
struct Broker {
    mailer: Arc<Mailer>,
    deliveries: AtomicU64,
}

impl Broker {
    /// The relay's handler: `Ok` only if the broker is known to have the message.
    fn publish(&self, delivery: &Delivery) -> Result<(), PublishError> {
        // The key goes with the message: it is what the consumer claims on.
        self.mailer.receive(&delivery.key, delivery.event.payload())?;
        if self.deliveries.fetch_add(1, Ordering::Relaxed) % 3 == 1 {
            return Err(PublishError::again("the broker's answer was lost"));
        }
        Ok(())
    }
}

/// A consumer: acts once on each event, however often it is delivered.
struct Mailer {
    store: Store,
    sent: Mutex<Vec<String>>,
}

impl Mailer {
    fn open(path: &std::path::Path) -> keyclaim::Result<Self> {
        // Hold: a mail carries no key that the mail server would know again.
        let store = Store::open(path, Options::new(Abandoned::Hold))?;
        Ok(Self { store, sent: Mutex::default() })
    }

    fn receive(&self, key: &Key, payload: &[u8]) -> Result<(), PublishError> {
        let id = Id::new(Scope::new("orders.taken")?, key.clone());
        let request = Request { target: b"orders.taken", payload, ..Request::default() };
        match self.store.claim(&ClaimRequest::new(id, Scheme::Raw, request))? {
            Decision::Won(claim) => {
                let mail = String::from_utf8_lossy(payload).into_owned();
                self.sent.lock().expect("no thread panicked").push(mail);
                claim.complete(&Outcome::success(Response::new(200, "mailed")))?;
                Ok(())
            }
            Decision::Replay(_) | Decision::Expired => Ok(()),
            Decision::InFlight { .. } => Err(PublishError::again("it is being mailed")),
            Decision::Mismatch { .. } => Err(PublishError::refused("another event has this key")),
            Decision::Held { .. } => Err(PublishError::refused("nobody knows whether it was mailed")),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_order_is_mailed_once() {
        assert!(super::run().expect("a folder to work in"));
    }
}
