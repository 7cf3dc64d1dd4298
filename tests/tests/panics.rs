//! Panics while a command is decided: that command's failure, and nobody else's.

mod faulty;

use std::fs;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use faulty::*;
use keyclaim::machine::Decision;
use keyclaim::{Abandoned, ErrorKind, Options, Store};

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
