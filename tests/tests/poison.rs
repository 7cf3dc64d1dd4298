//! I/O faults under an open store: nobody is told what is not so, and reopening heals.

mod faulty;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use faulty::*;
use keyclaim::machine::WonKind;
use keyclaim::store::Standing;
use keyclaim::store::inject::{Fault, Op};
use keyclaim::{Abandoned, ClaimWait, ErrorKind, Nonce, Options, Policy, Store, Token};

/// No cache, so that every group also reads; no renewals that would meet the fault first.
fn options() -> Options {
    Options::with_policy(Policy::new(Abandoned::Rerun)).cache_len(0).renew_leases_max(0)
}

fn open(path: &Path, options: &Options) -> Store {
    Store::open(path, options.clone()).expect("a fresh folder")
}

/// One life of a key under one fault. True if the fault was met.
struct Lives {
    store: Store,
    options: Options,
    wins: BTreeSet<Token>,
    round: u32,
}

impl Lives {
    fn new(path: &Path) -> Self {
        let options = options();
        Self { store: open(path, &options), options, wins: BTreeSet::new(), round: 0 }
    }

    /// Notes a token that was issued just now: it must be higher than all before.
    fn issued(&mut self, token: Token) {
        assert!(self.wins.last().is_none_or(|last| *last < token), "reissued {token}: {:?}", self.wins);
        self.wins.insert(token);
    }

    fn live(&mut self, fault: Fault) -> bool {
        self.round += 1;
        let key = format!("key {}", self.round);
        let old = format!("old {}", self.round);
        let body = vec![7; 60_000];
        won(self.store.claim(&request(&old))).complete(&success(b"old")).expect("healthy");
        let bystander = won(self.store.claim(&request(&format!("bystander {}", self.round))));
        self.issued(bystander.token());

        let nonce = Nonce([u8::try_from(self.round % 256).expect("small"); 16]);
        let asked = request(&key).nonce(nonce);
        self.options.faults().add(fault);
        let mut met = false;
        let claim = match self.store.claim(&asked) {
            Ok(_) if self.store.is_poisoned() => panic!("acknowledged by a poisoned store"),
            Err(error) => {
                met = true;
                self.is_poisoned(&old, &bystander);
                self.heal();
                let again = won(self.store.claim(&asked));
                match error.kind() {
                    ErrorKind::Unknown => {
                        assert_eq!(error.nonce(), Some(nonce), "it says what to ask again with");
                        assert!(matches!(again.kind(), WonKind::Again | WonKind::Fresh));
                    }
                    // Nothing happened, so this is the first win.
                    ErrorKind::Poisoned => assert_eq!(again.kind(), WonKind::Fresh),
                    kind => panic!("a claim was told {kind}: {error:?}"),
                }
                again
            }
            won_at_once => won(won_at_once),
        };
        self.issued(claim.token());

        let outcome = success(&body);
        let mut asked_again = 0;
        while let Err(error) = claim.complete(&outcome) {
            // A fault that stays and lets the store open is over at last.
            asked_again += 1;
            if asked_again == 3 {
                self.options.faults().clear();
            }
            assert!(matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Poisoned), "{error:?}");
            met = true;
            self.is_poisoned(&old, &bystander);
            self.heal();
        }
        self.options.faults().clear();
        if self.store.is_poisoned() {
            self.store.reopen().expect("no fault is left");
        }
        let replayed = replay(self.store.claim(&asked));
        assert_eq!(replayed.response, outcome.response);
        assert_eq!(replay(self.store.claim(&request(&old))).response, success(b"old").response);
        bystander.complete(&success(b"bystander")).expect("a live claim goes on");
        met
    }

    /// Every way into the store says so, and nobody is let through (KC-098).
    fn is_poisoned(&self, old: &str, bystander: &keyclaim::Claim) {
        assert!(self.store.is_poisoned());
        refused(self.store.claim(&request(old)), ErrorKind::Poisoned);
        refused(self.store.claim(&request("never asked for")), ErrorKind::Poisoned);
        refused(block_on(self.store.claim_async(&request("never asked for"))), ErrorKind::Poisoned);
        let wait = ClaimWait::at_most(LONG);
        refused(self.store.claim_wait(&request("never asked for"), &wait), ErrorKind::Poisoned);
        refused(block_on(self.store.claim_wait_async(&request(old), &wait)), ErrorKind::Poisoned);
        refused(bystander.checkpoint("point", b""), ErrorKind::Poisoned);
        refused(bystander.renew(None), ErrorKind::Poisoned);
        refused(block_on(bystander.hold_async()), ErrorKind::Poisoned);
        refused(self.store.inspect(&id(old)), ErrorKind::Poisoned);
        refused(self.store.forget(&id(old), Token(1)), ErrorKind::Poisoned);
        refused(self.store.stats(), ErrorKind::Poisoned);
    }

    /// Reopens, and if the fault stays, tries again without it.
    fn heal(&self) {
        if let Err(error) = self.store.reopen() {
            assert!(matches!(error.kind(), ErrorKind::Poisoned), "{error:?}");
            assert!(self.store.is_poisoned());
            self.options.faults().clear();
            self.store.reopen().expect("no fault is left");
        }
        assert!(!self.store.is_poisoned());
    }
}

/// Fails the n-th operation, for each n, until a life completes untouched.
fn fail_each(op: Op, from_then_on: bool, done: bool, errno: i32) {
    let folder = fast_folder();
    let mut lives = Lives::new(&folder.path().join("store"));
    let mut faults_met = 0;
    for nth in 1..2_000 {
        if op == Op::SetLen {
            // A file that has grown grows no more, so each life has a new one.
            lives = Lives::new(&folder.path().join(format!("store {nth}")));
        }
        if !lives.live(Fault { op, nth, from_then_on, done, errno }) {
            break;
        }
        faults_met = nth;
    }
    assert!((1..1_999).contains(&faults_met), "{op:?} was met {faults_met} times");
    eprintln!("{op:?} from_then_on={from_then_on} done={done}: {faults_met} faults");
    let path = folder.path().join(if op == Op::SetLen {
        format!("store {}", faults_met + 1)
    } else {
        "store".into()
    });
    let rounds = lives.round;
    lives.store.close().expect("healthy");
    let store = Store::open(path, options()).expect("closed");
    for round in 1..=rounds {
        assert_eq!(replay(store.claim(&request(&format!("key {round}")))).response.body.len(), 60_000);
    }
}

#[test]
fn a_failed_write_is_doubt_or_nothing_and_heals() {
    fail_each(Op::Write, false, false, EIO);
    fail_each(Op::Write, true, false, ENOSPC);
}

#[test]
fn a_failed_sync_is_doubt_or_nothing_and_heals() {
    fail_each(Op::Sync, false, false, EIO);
    fail_each(Op::Sync, true, false, EIO);
    fail_each(Op::Sync, false, true, EIO);
}

#[test]
fn a_failed_resize_is_doubt_or_nothing_and_heals() {
    fail_each(Op::SetLen, false, false, ENOSPC);
    fail_each(Op::SetLen, true, false, ENOSPC);
}

#[test]
fn a_failed_read_is_doubt_or_nothing_and_heals() {
    fail_each(Op::Read, false, false, EIO);
    fail_each(Op::Read, true, false, EIO);
}

#[test]
fn a_command_in_doubt_keeps_its_number_through_a_second_fault() {
    let folder = fast_folder();
    let mut durable_all_the_same = 0;
    for nth in 1..=4 {
        let options = options();
        let store = open(&folder.path().join(format!("store {nth}")), &options);
        let claim = won(store.claim(&request("a")));
        // The sync is done before it is reported as failed.
        options.faults().add(Fault { nth, done: true, ..once(Op::Sync) });
        if claim.complete(&success(b"done")).is_ok() {
            continue;
        }
        store.reopen().expect("the fault is over");
        options.faults().clear();
        let standing = store.inspect(&id("a")).expect("healthy").expect("there").standing;
        durable_all_the_same += u32::from(matches!(standing, Standing::Complete { .. }));
        store.reopen().expect("healthy, so there is nothing to do");
        options.faults().add(once(Op::Read));
        refused(claim.complete(&success(b"done")), ErrorKind::Poisoned);
        store.reopen().expect("the fault is over");
        claim.complete(&success(b"done")).expect("the same command is told the same answer");
        refused(claim.complete(&success(b"other")), ErrorKind::Fenced);
        assert_eq!(replay(store.claim(&request("a"))).response, success(b"done").response);
    }
    assert!(durable_all_the_same > 0, "no commit was in doubt and durable, so nothing was tested");
}

#[test]
fn a_whole_group_in_doubt_is_resolved_one_by_one() {
    let folder = fast_folder();
    for nth in 1..=2 {
        for done in [false, true] {
            let options = options();
            let store = open(&folder.path().join(format!("store {nth} {done}")), &options);
            options.faults().add(Fault { nth, done, ..once(Op::Sync) });
            let threads: Vec<_> = (0..16)
                .map(|n| {
                    let store = store.clone();
                    thread::spawn(move || store.claim(&request(&format!("key {}", n / 2))))
                })
                .collect();
            let answers: Vec<_> =
                threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
            assert!(store.is_poisoned());
            store.reopen().expect("the fault is over");
            let mut wins = BTreeSet::new();
            let mut claims = Vec::new();
            for (n, answer) in answers.into_iter().enumerate() {
                let key = n / 2;
                let asked = request(&format!("key {key}"));
                let decision = match answer {
                    Err(error) if error.kind() == ErrorKind::Unknown => {
                        store.claim(&asked.nonce(error.nonce().expect("in doubt"))).expect("healthy")
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Poisoned, "{error:?}");
                        store.claim(&asked).expect("healthy")
                    }
                    Ok(decision) => decision,
                };
                if let keyclaim::machine::Decision::Won(claim) = decision {
                    assert!(wins.insert(key), "key {key} was won twice");
                    claims.push(claim);
                }
            }
            assert_eq!(wins.len(), 8);
        }
    }
}

#[test]
fn whoever_waits_is_told_of_a_poisoning_at_once() {
    let folder = fast_folder();
    for by_reading in [false, true] {
        let options = options();
        let store = open(&folder.path().join(format!("store {by_reading}")), &options);
        let owner = won(store.claim(&request("a")));
        let waiters: Vec<_> = (0..4)
            .map(|n| {
                let store = store.clone();
                thread::spawn(move || {
                    let wait = ClaimWait::at_most(LONG);
                    let answer = if n % 2 == 0 {
                        store.claim_wait(&request("a"), &wait)
                    } else {
                        block_on(store.claim_wait_async(&request("a"), &wait))
                    };
                    (refused(answer, ErrorKind::Poisoned), Instant::now())
                })
            })
            .collect();
        eventually("all wait", || store.stats().expect("healthy").waiters == 4);
        // They look again every second by themselves; so be here right after such a look.
        thread::sleep(Duration::from_millis(100));
        let begun = Instant::now();
        if by_reading {
            options.faults().add(once(Op::Read));
            refused(store.inspect(&id("a")), ErrorKind::Poisoned);
        } else {
            options.faults().add(once(Op::Sync));
            owner.checkpoint("point", b"").expect_err("its sync fails");
        }
        for waiter in waiters {
            let told = waiter.join().expect("no panic").1;
            assert!(told.duration_since(begun) < Duration::from_millis(500), "told late");
        }
    }
}

#[test]
fn renewals_go_on_after_reopening() {
    let folder = fast_folder();
    let options = Options::with_policy(lease(600));
    let store = open(&folder.path().join("store"), &options);
    let claim = won(store.claim(&request("a")));
    options.faults().add(once(Op::Sync));
    store.claim(&request("b")).expect_err("its sync fails");
    assert!(store.is_poisoned());
    store.reopen().expect("the fault is over");
    let until = Instant::now() + Duration::from_millis(1_800);
    while Instant::now() < until {
        in_flight(store.claim(&request("a")));
        thread::sleep(Duration::from_millis(20));
    }
    claim.complete(&success(b"")).expect("still the owner");
}

#[test]
fn reopening_refuses_another_store_at_the_path_and_heals_once_its_own_is_back() {
    let folder = fast_folder();
    let (path, aside) = (folder.path().join("store"), folder.path().join("aside"));
    let options = options();
    let store = open(&path, &options);
    let claim = won(store.claim(&request("a")));
    fs::rename(&path, &aside).expect("rename");
    open(&path, &Options::new(Abandoned::Rerun)).close().expect("healthy");
    let other = fs::read(&path).expect("read");

    // The commit went into a file that nobody will find: nothing is acknowledged.
    refused(claim.checkpoint("point", b""), ErrorKind::Unknown);
    assert!(store.is_poisoned());
    refused(store.reopen(), ErrorKind::Incompatible);
    assert_eq!(fs::read(&path).expect("read"), other, "another's store is left as it was");
    refused(store.claim(&request("b")), ErrorKind::Poisoned);
    fs::rename(&aside, &path).expect("rename");
    store.reopen().expect("its own store is back");
    claim.checkpoint("point", b"").expect("asked again");
    claim.complete(&success(b"")).expect("still the owner");
}

#[test]
fn nothing_is_acknowledged_into_an_unlinked_file() {
    let folder = fast_folder();
    let path = folder.path().join("store");
    let store = open(&path, &options());
    won(store.claim(&request("a"))).complete(&success(b"")).expect("healthy");
    fs::remove_file(&path).expect("remove");
    refused(store.claim(&request("b")), ErrorKind::Unknown);
    refused(store.claim(&request("b")), ErrorKind::Poisoned);
    for _ in 0..2 {
        refused(store.reopen(), ErrorKind::Invalid);
        assert!(store.is_poisoned());
        assert!(!path.exists(), "a store that is gone must not come back empty");
    }
    store.close().expect("nothing is left to close");
}

#[test]
fn a_store_in_memory_cannot_be_reopened() {
    let options = options();
    let store = Store::in_memory(options.clone()).expect("memory");
    options.faults().add(once(Op::Sync));
    refused(store.claim(&request("a")), ErrorKind::Unknown);
    refused(store.reopen(), ErrorKind::Invalid);
    refused(store.claim(&request("a")), ErrorKind::Poisoned);
}
