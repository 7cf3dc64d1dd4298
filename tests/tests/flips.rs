//! One flipped bit, anywhere in the file: the right answer or an error, never a new key or a made-up replay.
//!
//! `KEYCLAIM_CASES` sets how many bits are flipped, `KEYCLAIM_SEED` which.

mod faulty;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use faulty::*;
use keyclaim::machine::{Decision, WonKind};
use keyclaim::outbox::RelayOptions;
use keyclaim::{Abandoned, Claim, ErrorKind, Event, Options, Reap, Result, Store, Writes, Written};
use keyclaim_tests::seeded::{Draws, number};

/// Enough for several leaves in the tables of records and rows, with branches above them.
const DONE: u8 = 100;
const ROWS: u8 = 60;
const EVENTS: u8 = 40;

fn options() -> Options {
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
fn made(path: &Path) -> Vec<u8> {
    let store = Store::open(path, options()).expect("a fresh folder");
    for n in 0..DONE {
        let mut writes = Writes::new();
        if n < ROWS {
            writes = writes.put("rows", &[n], &[n; 50]);
        }
        if n < EVENTS {
            writes = writes.emit(Event::new("topic", vec![n; 60]));
        }
        let claim = won(store.claim(&request(&key(n))));
        assert!(claim.complete_with(&success(&body(n)), writes).expect("healthy").is_done());
    }
    won(store.claim(&request("held"))).hold().expect("healthy");
    let no_lease = rerun().no_lease();
    let claim = won(store.claim(&request("in flight").policy(no_lease)));
    claim.checkpoint("point", b"data").expect("healthy");
    drop(claim);
    store.close().expect("healthy");
    fs::read(path).expect("read")
}

#[derive(Debug, Default)]
struct Counts {
    flips: u32,
    /// With at least one error.
    found: u32,
    /// Keys that were won although they are not new, and rows and events that were not there.
    vanished_keys: u32,
    vanished_rows: u32,
    /// Flips that hid at least one key or row.
    hidden: u32,
    vanished_events: u32,
}

/// What one look came to.
#[derive(Default)]
struct Look {
    errors: Cell<u32>,
    vanished: RefCell<[u32; 3]>,
}

impl Look {
    fn ok<T>(&self, result: Result<T>) -> Option<T> {
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

    fn at(&self, store: &Store) {
        for n in 0..DONE {
            self.claim(store, &key(n), |decision| {
                matches!(decision, Decision::Replay(replay) if replay.response == success(&body(n)).response)
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
fn quiet_redb() {
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.location().is_some_and(|location| location.file().contains("redb")) {
            loud(info);
        }
    }));
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

    fn look(&mut self, what: &str, look: impl FnOnce(&Look)) -> bool {
        let seen = Look::default();
        let result = catch_unwind(AssertUnwindSafe(|| look(&seen)));
        assert!(result.is_ok(), "{what}: it failed, or redb's panic came out");
        self.add(&seen)
    }
}

/// Where bits are flipped: in the bytes that are not zero, which hold something, and rarely elsewhere.
fn places(whole: &[u8]) -> (u64, impl FnMut() -> (usize, u8)) {
    let seed = number("KEYCLAIM_SEED").unwrap_or(4);
    let mut draws = Draws::new(seed);
    let used: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] != 0).collect();
    let len = whole.len() as u64;
    let place = move || {
        let at = if draws.below(4) == 0 {
            usize::try_from(draws.below(len)).expect("small")
        } else {
            used[usize::try_from(draws.below(used.len() as u64)).expect("small")]
        };
        (at, 1 << draws.below(8))
    };
    (seed, place)
}

fn cases(default: u64) -> u64 {
    number("KEYCLAIM_CASES").unwrap_or(default)
}

#[test]
fn a_bit_flipped_in_a_closed_file_gives_the_right_answer_or_an_error() {
    quiet_redb();
    let folder = fast_folder();
    let path = folder.path().join("store");
    let whole = made(&path);
    let (seed, mut place) = places(&whole);
    let (mut verified, mut plain) = (Counts::default(), Counts::default());
    for case in 0..cases(700) {
        let (at, bit) = place();
        let mut bytes = whole.clone();
        bytes[at] ^= bit;
        for is_verified in [true, false] {
            fs::write(&path, &bytes).expect("write");
            let what = format!("KEYCLAIM_SEED={seed}, case {case}, byte {at}, verified {is_verified}");
            let counts = if is_verified { &mut verified } else { &mut plain };
            let has_vanished = counts.look(&what, |look| {
                if let Some(store) = look.ok(Store::open(&path, options().verify_on_open(is_verified))) {
                    look.at(&store);
                }
            });
            assert!(!(is_verified && has_vanished), "{what}: verified, and still wrong");
            if has_vanished {
                eprintln!("{what}: vanished");
            }
        }
    }
    eprintln!("{} bytes; verified {verified:?}; plain {plain:?}", whole.len());
    assert!(plain.found > plain.flips / 10 && verified.found >= plain.found, "the sample met no data");
    // What is left are the numbers of pages, and the due index: see core/docs/faults.md.
    assert!(plain.hidden <= plain.flips / 200, "{plain:?}");
}

#[test]
fn a_bit_flipped_in_a_key_makes_no_key_new() {
    quiet_redb();
    let folder = fast_folder();
    let path = folder.path().join("store");
    let whole = made(&path);
    let word = b"accountdone ";
    let found: Vec<usize> =
        whole.windows(word.len()).enumerate().filter(|(_, seen)| seen == word).map(|(at, _)| at).collect();
    assert!(found.len() > usize::from(DONE), "each key is somewhere: {}", found.len());
    let seed = number("KEYCLAIM_SEED").unwrap_or(4);
    let mut draws = Draws::new(seed);
    let mut counts = Counts::default();
    for case in 0..cases(300) {
        // From the length before the scope to the last digit of the key.
        let start = found[usize::try_from(draws.below(found.len() as u64)).expect("small")] - 1;
        let at = start + usize::try_from(draws.below(14)).expect("small");
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << draws.below(8);
        fs::write(&path, &bytes).expect("write");
        let what = format!("KEYCLAIM_SEED={seed}, case {case}, byte {at}, a key");
        counts.look(&what, |look| {
            if let Some(store) = look.ok(Store::open(&path, options())) {
                look.at(&store);
            }
        });
        assert_eq!(counts.vanished_keys, 0, "{what}");
    }
    eprintln!("in keys: {counts:?}");
    assert!(counts.found > 20, "{counts:?}");
}

#[test]
fn a_bit_flipped_in_an_open_file_gives_the_right_answer_or_an_error() {
    quiet_redb();
    let folder = fast_folder();
    let path = folder.path().join("store");
    let whole = made(&path);
    let (seed, mut place) = places(&whole);
    let mut counts = Counts::default();
    for case in 0..cases(200) {
        let (at, bit) = place();
        fs::write(&path, &whole).expect("write");
        // No cache, so that what the file holds now is read.
        let store = Store::open(&path, options().cache_len(0)).expect("it is whole");
        let file = OpenOptions::new().read(true).write(true).open(&path).expect("ours");
        let mut byte = [0];
        file.read_exact_at(&mut byte, at as u64).expect("there");
        file.write_all_at(&[byte[0] ^ bit], at as u64).expect("there");
        let what = format!("KEYCLAIM_SEED={seed}, case {case}, byte {at}, open");
        if counts.look(&what, |look| look.at(&store)) {
            eprintln!("{what}: vanished");
        }
        drop(catch_unwind(AssertUnwindSafe(|| store.close())));
    }
    eprintln!("open: {counts:?}");
    assert!(counts.found > counts.flips / 10, "the sample met no data");
}
