//! One flipped bit, anywhere in the file: the right answer or an error, never a new key or a made-up replay (P4).

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Once;

use keyclaim::machine::{Decision, WonKind};
use keyclaim::outbox::RelayOptions;
use keyclaim::store::plant::Plant;
use keyclaim::{Abandoned, Claim, ErrorKind, Event, Options, Policy, Reap, Result, Store, Writes, Written};

use super::{Budget, Report};
use crate::request::{request, success, won};
use crate::seeded::Draws;

/// The name of this harness.
pub const HARNESS: &str = "flips";

/// Finished keys: enough for several leaves in the tables of records and rows, with branches above them.
pub const DONE: u8 = 100;
/// How many of them came with a row of the application.
pub const ROWS: u8 = 60;
/// How many of them came with an event.
pub const EVENTS: u8 = 40;

/// What the store is opened with.
pub fn options() -> Options {
    Options::new(Abandoned::Rerun)
}

fn body(n: u8) -> Vec<u8> {
    // Every tenth has a row of its own.
    let len = if n.is_multiple_of(10) { 17_000 } else { 200 };
    (0..len).map(|at| n ^ u8::try_from(at % 251).unwrap_or_default()).collect()
}

fn key(n: u8) -> String {
    format!("done {n}")
}

/// A closed store with rows of every kind.
///
/// # Panics
/// If there is no room for it.
pub fn made(path: &Path) -> Vec<u8> {
    let store = Store::open(path, options()).expect("a fresh folder");
    for n in 0..DONE {
        let mut writes = Writes::new();
        if n < ROWS {
            writes = writes.put("rows", &[n], &[n; 50]);
        }
        if n < EVENTS {
            writes = writes.emit(Event::new("topic", vec![n; 60]));
        }
        let claim = won(store.claim(&request(&key(n))).expect("healthy"));
        assert!(claim.complete_with(&success(body(n)), writes).expect("healthy").is_done());
    }
    won(store.claim(&request("held")).expect("healthy")).hold().expect("healthy");
    let no_lease = Policy::new(Abandoned::Rerun).no_lease();
    let claim = won(store.claim(&request("in flight").policy(no_lease)).expect("healthy"));
    claim.checkpoint("point", b"data").expect("healthy");
    drop(claim);
    store.close().expect("healthy");
    fs::read(path).expect("read")
}

/// What many flips came to.
#[derive(Debug, Default)]
pub struct Counts {
    /// Flips.
    pub flips: u32,
    /// With at least one error.
    pub found: u32,
    /// Keys that were won although they are not new, and rows and events that were not there.
    pub vanished_keys: u32,
    /// As above.
    pub vanished_rows: u32,
    /// Flips that hid at least one key or row.
    pub hidden: u32,
    /// As above.
    pub vanished_events: u32,
}

/// What one look came to.
#[derive(Default)]
pub struct Look {
    errors: Cell<u32>,
    vanished: RefCell<[u32; 3]>,
}

impl Look {
    /// What was answered; an error is counted, and must be of a kind that damage may be told as.
    ///
    /// # Panics
    /// If it is not.
    pub fn ok<T>(&self, result: Result<T>) -> Option<T> {
        use ErrorKind::{Corrupt, Incompatible, Internal, Poisoned, Unknown};
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                let kinds = [Corrupt, Incompatible, Internal, Unknown, Poisoned];
                assert!(kinds.contains(&error.kind()), "{error:?}");
                self.errors.set(self.errors.get() + 1);
                None
            }
        }
    }

    fn claim(&self, store: &Store, key: &str, is_right: impl Fn(&Decision<Claim>) -> bool) {
        match self.ok(store.claim(&request(key))) {
            Some(Decision::Won(_)) => self.vanished.borrow_mut()[0] += 1,
            Some(decision) => assert!(is_right(&decision), "wrong: {key}: {decision:?}"),
            None => {}
        }
    }

    /// Asks for everything.
    ///
    /// # Panics
    /// If an answer is neither right nor an error.
    pub fn at(&self, store: &Store) {
        for n in 0..DONE {
            self.claim(store, &key(n), |decision| {
                matches!(decision, Decision::Replay(replay) if replay.response == success(body(n)).response)
            });
        }
        self.claim(store, "held", |decision| matches!(decision, Decision::Held { .. }));
        self.claim(store, "in flight", |decision| matches!(decision, Decision::InFlight { .. }));
        for n in 0..ROWS {
            match self.ok(store.app_row("rows", &[n])) {
                Some(Some(row)) => assert_eq!(row.value, [n; 50], "a row was made up"),
                Some(None) => self.vanished.borrow_mut()[1] += 1,
                None => {}
            }
        }
        let one = Writes::new().put_if_absent("rows", &[0], b"again");
        if let Some(Written::Done(_)) = self.ok(store.write(&one)) {
            self.vanished.borrow_mut()[1] += 1;
        }
        // A new key is new, and its token above all that were given.
        if let Some(Decision::Won(claim)) = self.ok(store.claim(&request("new"))) {
            assert_eq!(claim.kind(), WonKind::Fresh);
            assert!(claim.token().0 > u64::from(DONE), "a token was given out again: {:?}", claim.token());
        }
        self.ok(store.reap(&Reap::new()));
        self.events(store);
    }

    fn events(&self, store: &Store) {
        let seen = RefCell::new(BTreeSet::new());
        let relayed = self.ok(store.relay_once(store.now_ms(), &RelayOptions::new(), |delivery| {
            let payload = delivery.event.payload();
            let n = payload.first().copied().unwrap_or(u8::MAX);
            assert!(n < EVENTS && *payload == [n; 60], "an event was made up");
            seen.borrow_mut().insert(n);
            Ok(())
        }));
        let Some(relayed) = relayed else { return };
        let missing = u32::from(EVENTS) - u32::try_from(seen.borrow().len()).unwrap_or(0);
        if relayed.damaged > 0 {
            self.errors.set(self.errors.get() + 1);
        } else {
            self.vanished.borrow_mut()[2] += missing;
        }
    }
}

/// redb panics on some damaged pages; none may come out, and hundreds of backtraces help nobody.
pub fn quiet_redb() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.location().is_some_and(|location| location.file().contains("redb")) {
                loud(info);
            }
        }));
    });
}

impl Counts {
    fn add(&mut self, look: &Look) -> bool {
        let vanished = *look.vanished.borrow();
        self.flips += 1;
        self.found += u32::from(look.errors.get() > 0);
        self.vanished_keys += vanished[0];
        self.vanished_rows += vanished[1];
        self.hidden += u32::from(vanished[0] + vanished[1] > 0);
        self.vanished_events += vanished[2];
        vanished != [0; 3]
    }

    /// One look, which is counted; whether anything had vanished.
    ///
    /// # Panics
    /// If an answer was wrong.
    pub fn look(&mut self, what: &str, look: impl FnOnce(&Look)) -> bool {
        let seen = Look::default();
        let result = catch_unwind(AssertUnwindSafe(|| look(&seen)));
        assert!(result.is_ok(), "{what}: it failed, or redb's panic came out");
        self.add(&seen)
    }
}

/// Where bits are flipped: in the bytes that are not zero, which hold something, and rarely elsewhere.
///
/// # Panics
/// On a file that no memory holds.
pub fn places(whole: &[u8], seed: u64) -> impl FnMut() -> (usize, u8) {
    let mut draws = Draws::new(seed);
    let used: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] != 0).collect();
    let len = whole.len() as u64;
    move || {
        let at = if draws.below(4) == 0 {
            usize::try_from(draws.below(len)).expect("small")
        } else {
            used[usize::try_from(draws.below(used.len() as u64)).expect("small")]
        };
        (at, 1 << draws.below(8))
    }
}

/// Flips bits of a closed store that makes this mistake, if one: as many as there are cases. Bits that hide a key are
/// counted and are no violation: what is known of them is in `core/docs/faults.md`.
///
/// # Panics
/// If there is no folder to work in.
pub fn flips_planted(budget: &Budget, plant: Option<Plant>) -> Report {
    quiet_redb();
    let mut report = Report::new(HARNESS, budget.seed);
    // In memory where there is such a folder: what is damaged are bytes, whatever they lie on.
    let folder =
        tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary folder");
    let path = folder.path().join("store");
    let whole = made(&path);
    let mut place = places(&whole, budget.seed);
    while report.cases < budget.cases && report.violations.is_empty() {
        report.cases += 1;
        let (at, bit) = place();
        let mut bytes = whole.clone();
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= bit;
        }
        fs::write(&path, &bytes).expect("the harness's own folder");
        let look = Look::default();
        let looked = catch_unwind(AssertUnwindSafe(|| {
            let options = plant.into_iter().fold(options(), Options::plant);
            if let Some(store) = look.ok(Store::open(&path, options)) {
                look.at(&store);
            }
        }));
        report.add("found", u64::from(look.errors.get() > 0));
        report.add("hidden", u64::from(look.vanished.borrow().iter().take(2).any(|count| *count > 0)));
        if looked.is_err() {
            report.violation(format!(
                "case {}, bit {bit} of byte {at}: a wrong answer; replay: KEYCLAIM_SEED={} KEYCLAIM_CASES={} cargo test \
                 -p keyclaim-tests --test flips a_bit_flipped_in_a_closed_file",
                report.cases, budget.seed, report.cases
            ));
        }
    }
    report
}
