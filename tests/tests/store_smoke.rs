//! smoke
use keyclaim::fingerprint::{Request, Scheme};
use keyclaim::machine::{Decision, Outcome, Response};
use keyclaim::{Abandoned, ClaimRequest, ClaimWait, Id, Key, Options, Scope, Store};
use std::sync::{Arc, Barrier};
use std::time::Duration;

fn request(key: &str) -> ClaimRequest<'static> {
    let id = Id::new(Scope::new("acct").unwrap(), Key::new(key).unwrap());
    ClaimRequest::new(
        id,
        Scheme::Raw,
        Request { method: b"POST", target: b"/pay", payload: b"1", ..Request::default() },
    )
}

#[test]
fn one_life() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("s.keyclaim"), Options::new(Abandoned::Rerun)).unwrap();
    let req = request("a");
    let Decision::Won(claim) = store.claim(&req).unwrap() else { panic!() };
    assert!(matches!(store.claim(&req).unwrap(), Decision::InFlight { .. }));
    let s2 = store.clone();
    let waiter = std::thread::spawn(move || {
        let Decision::Replay(replay) =
            s2.claim_wait(&request("a"), &ClaimWait::at_most(Duration::from_secs(10))).unwrap()
        else {
            panic!()
        };
        replay.response.body.len()
    });
    while store.stats().unwrap().waiters == 0 {
        std::thread::yield_now();
    }
    claim.complete(&Outcome::success(Response::new(201, vec![7; 100_000]).header("a", "b"))).unwrap();
    assert_eq!(waiter.join().unwrap(), 100_000);
    drop(claim);
    eprintln!("{:?}", store.stats().unwrap());
    store.close().unwrap();
    let store = Store::open(dir.path().join("s.keyclaim"), Options::new(Abandoned::Rerun)).unwrap();
    let Decision::Replay(replay) = store.claim(&req).unwrap() else { panic!() };
    assert_eq!(replay.response.status, 201);
}

#[test]
fn race() {
    let store = Store::in_memory(Options::new(Abandoned::Rerun)).unwrap();
    for round in 0..100 {
        let barrier = Arc::new(Barrier::new(16));
        let wins: usize = (0..16)
            .map(|_| {
                let (store, barrier) = (store.clone(), barrier.clone());
                std::thread::spawn(move || {
                    let req = request(&format!("k{round}"));
                    barrier.wait();
                    usize::from(matches!(store.claim(&req).unwrap(), Decision::Won(_)))
                })
            })
            .collect::<Vec<_>>()
            .into_iter()
            .map(|t| t.join().unwrap())
            .sum();
        assert_eq!(wins, 1);
    }
    eprintln!("{:?}", store.stats().unwrap());
}
