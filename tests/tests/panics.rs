//! Panics while a command is decided: that command's failure, and nobody else's.

mod faulty;

use std::fs;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use faulty::*;
use keyclaim::clock::ManualClock;
use keyclaim::machine::Decision;
use keyclaim::outbox::RelayOptions;
use keyclaim::store::disk::SimDisk;
use keyclaim::{Abandoned, Error, ErrorKind, Event, Options, Reap, Store, Writes};

static PANICS: AtomicU64 = AtomicU64::new(0);

#[test]
fn ten_thousand_panics_cost_their_own_commands_only() {
    // Quiet: ten thousand backtraces would hide a failure of this test.
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let ours = info.payload().downcast_ref::<&str>().is_some_and(|text| text.contains("a test asked"));
        if ours {
            PANICS.fetch_add(1, Ordering::Relaxed);
        } else {
            loud(info);
        }
    }));
    let folder = fast_folder();
    let path = folder.path().join("store");
    let options = Options::new(Abandoned::Rerun);
    let store = Store::open(&path, options.clone()).expect("a fresh folder");
    let owner = won(store.claim(&request("owner")));
    won(store.claim(&request("done"))).complete(&success(b"done")).expect("healthy");
    let (len, token) = (fs::metadata(&path).expect("there").len(), owner.token());
    let syncs = store.stats().expect("healthy").file_syncs;

    options.panics().store(9_000, Ordering::SeqCst);
    for n in 0..9_000 {
        if n % 3 == 0 {
            refused(owner.checkpoint("point", b""), ErrorKind::Internal);
        } else {
            refused(store.claim(&request("new")), ErrorKind::Internal);
        }
    }
    assert_eq!(store.stats().expect("healthy").file_syncs, syncs, "a command that failed writes nothing");

    // In groups: one of each pair panics, and the other one is answered.
    for round in 0..1_000 {
        let (first, second) = (request(&format!("first {round}")), request(&format!("second {round}")));
        options.panics().store(1, Ordering::SeqCst);
        let (mut first, mut second) = (pin!(store.claim_async(&first)), pin!(store.claim_async(&second)));
        let early: Vec<_> = [poll_once(first.as_mut()), poll_once(second.as_mut())]
            .into_iter()
            .map(|poll| match poll {
                Poll::Ready(answer) => Some(answer),
                Poll::Pending => None,
            })
            .collect();
        let mut early = early.into_iter();
        let first = early.next().flatten().unwrap_or_else(|| block_on(first));
        let second = early.next().flatten().unwrap_or_else(|| block_on(second));
        assert_eq!(refused(first, ErrorKind::Internal).nonce(), None);
        won(second).release().expect("healthy");
    }
    assert_eq!(PANICS.load(Ordering::Relaxed), 10_000);
    assert!(!store.is_poisoned());
    assert_eq!(fs::metadata(&path).expect("there").len(), len, "the file has not grown");
    owner.complete(&success(b"owner")).expect("still the owner");
    let next = won(store.claim(&request("new")));
    assert!(next.token() > token);
    assert!(matches!(store.claim(&request("done")), Ok(Decision::Replay(_))));
    drop(next);
    store.close().expect("healthy");
    let store = Store::open(&path, Options::new(Abandoned::Rerun)).expect("closed");
    assert_eq!(replay(store.claim(&request("owner"))).response, success(b"owner").response);
}

type Ask = fn(&Store) -> Result<(), Error>;

#[test]
fn a_panic_inside_the_engine_is_told_and_closing_ends_without_one() {
    let options = || Options::new(Abandoned::Rerun).clock(Arc::new(ManualClock::new(1_700_000_000_000)));
    let asked: [(&str, Ask); 4] = [
        ("a claim", |store| store.claim(&request("new")).map(drop)),
        ("a pass of the reaper", |store| store.reap(&Reap::new()).map(drop)),
        ("a lease of the outbox", |store| store.outbox_lease(1, &RelayOptions::new()).map(drop)),
        ("closing", |store| store.clone().close()),
    ];
    for (what, ask) in asked {
        let disk = SimDisk::new();
        let store = Store::on_disk(&disk, options()).expect("an empty disk");
        let claim = won(store.claim(&request("old")));
        let writes = Writes::new().emit(Event::new("topic", "payload"));
        let done = claim.complete_with(&success(b"done"), writes).expect("healthy");
        assert!(done.is_done());
        let clock = ManualClock::new(1_700_000_000_000);
        drop((claim, store));
        clock.advance(90 * 24 * 3_600_000);
        let store = Store::on_disk(&disk, Options::new(Abandoned::Rerun).clock(Arc::new(clock)))
            .expect("it was closed");
        disk.panic();
        let told = ask(&store).map_err(|error| error.kind());
        assert!(matches!(told, Err(ErrorKind::Unknown | ErrorKind::Poisoned)), "{what} was told {told:?}");
        assert!(store.is_poisoned() || what == "closing", "{what}");
        // On a thread that does not unwind: a panic here would be this test's.
        drop(store);
    }
    // The last handle goes and nobody asked anything before.
    let disk = SimDisk::new();
    let store = Store::on_disk(&disk, options()).expect("an empty disk");
    disk.panic();
    drop(store);
}
