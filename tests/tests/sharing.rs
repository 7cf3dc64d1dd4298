//! Several processes on one store (`Sharing::Processes`).

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use keyclaim::machine::Decision;
use keyclaim::store::Standing;
use keyclaim::{Abandoned, ClaimWait, ErrorKind, Options, Policy, Store};
use keyclaim_tests::peers::{LEASE_MS, OPERATION, Peer, WRITE_WAIT_MS, monotonic_ns, options};
use keyclaim_tests::proofs::Budget;
use keyclaim_tests::proofs::linear::processes::processes;
use keyclaim_tests::request::{id, replayed, request, success, won};
use keyclaim_tests::seeded::{number, seed};
use rustix::process::{Pid, Signal, kill_process};

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_processes"))
}

fn peer(path: &Path, how: &[&str]) -> Peer {
    let mut peer = Peer::start(program(), path, how);
    assert_eq!(peer.hear(), "ready");
    peer
}

fn send(peer: &Peer, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(peer.pid()).expect("a pid")).expect("a pid");
    kill_process(pid, signal).expect("ours");
}

#[test]
fn processes_that_are_killed_leave_a_history_that_has_an_order() {
    let cases = number("KEYCLAIM_CASES").unwrap_or(60);
    let report = processes(program(), &Budget { seed: seed("processes_that_are_killed"), cases });
    report.check();
    assert!(report.count("operations") > cases * 10, "they did next to nothing: {:?}", report.counts);
}

#[test]
fn of_all_threads_of_all_processes_one_wins_each_key() {
    let rounds = number("KEYCLAIM_CASES").unwrap_or(1_000);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let start = (monotonic_ns() + 500_000_000).to_string();
    let children: Vec<_> = (0..4)
        .map(|_| {
            Command::new(program())
                .arg("race")
                .arg(&path)
                .args([&start, &rounds.to_string(), "16"])
                .stdout(Stdio::piped())
                .spawn()
                .expect("the program starts")
        })
        .collect();
    let (mut winners, mut tokens, mut by_process) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    for mut child in children {
        let mut wins = 0;
        let mut is_over = false;
        for line in BufReader::new(child.stdout.take().expect("piped")).lines() {
            let line = line.expect("a line");
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["won", round, token] => {
                    *winners.entry(round.parse::<u64>().expect("a round")).or_insert(0) += 1;
                    *tokens.entry(token.to_owned()).or_insert(0) += 1;
                    wins += 1;
                }
                ["over"] => is_over = true,
                _ => panic!("{line}"),
            }
        }
        assert!(is_over && child.wait().expect("ours").success(), "a process failed");
        by_process.push(wins);
    }
    println!("wins by process: {by_process:?}");
    assert_eq!(winners.len() as u64, rounds, "each round has a winner");
    assert!(winners.values().all(|count| *count == 1), "a key was won twice: {winners:?}");
    assert!(tokens.values().all(|count| *count == 1), "a token was given out twice");
    assert!(by_process.iter().filter(|wins| **wins > 0).count() > 1, "they did not race: {by_process:?}");
}

#[test]
fn a_claim_of_one_process_is_waited_for_replayed_and_fenced_in_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let mut there = peer(&path, &["shared"]);
    let store = Store::open(&path, options()).expect("shared");

    // Waited for, and replayed.
    assert_eq!(there.ask("claim waited"), "won 1 Fresh");
    assert!(matches!(store.claim(&request("waited")), Ok(Decision::InFlight { .. })));
    there.tell("wait other 1");
    thread::scope(|scope| {
        let waiting = scope
            .spawn(|| store.claim_wait(&request("waited"), &ClaimWait::at_most(Duration::from_secs(20))));
        thread::sleep(Duration::from_millis(50));
        assert!(there.hear().starts_with("won"));
        assert_eq!(there.ask("complete waited body"), "done");
        let told = waiting.join().expect("it waits").expect("healthy");
        assert_eq!(replayed(told), b"body");
    });
    // The other way round.
    let claim = won(store.claim(&request("mine")).expect("healthy"));
    assert_eq!(there.ask("claim mine"), "in_flight");
    there.tell("wait mine 20000");
    thread::sleep(Duration::from_millis(50));
    claim.complete(&success("here")).expect("healthy");
    assert_eq!(there.hear(), "replay here");

    // Taken over once its lease is over, and fenced.
    let stale = won(store.claim(&request("slow")).expect("healthy"));
    assert_eq!(there.ask("wait slow 20000").split(' ').next_back(), Some("Takeover"));
    let error = stale.complete(&success("late")).expect_err("it was overtaken");
    assert_eq!(error.kind(), ErrorKind::Fenced);
    assert_eq!(there.ask("complete slow theirs"), "done");
    assert_eq!(replayed(store.claim(&request("slow")).expect("healthy")), b"theirs");

    // Its owner is killed.
    assert!(there.ask("claim orphan").starts_with("won"));
    there.kill();
    let wait = ClaimWait::at_most(Duration::from_millis(4 * LEASE_MS));
    let taken = won(store.claim_wait(&request("orphan"), &wait).expect("healthy"));
    assert_eq!(taken.attempt(), 2);
}

/// A token that nobody has committed may be given out by another process. Who was shown it first is told no more.
#[test]
fn a_claim_of_a_transaction_that_was_given_up_is_fenced_from_another_process_of_the_same_token() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let mut there = peer(&path, &["shared"]);
    let store = Store::open(&path, options()).expect("shared");
    let mut leaked = None;
    let told = store.transaction::<(), Box<dyn std::error::Error>>(|t| {
        leaked = Some(won(t.claim(&request("k"))?));
        Err("no funds".into())
    });
    told.expect_err("given up");
    let leaked = leaked.expect("won inside");
    assert_eq!(there.ask("claim k"), format!("won {} Fresh", leaked.token()), "else this proves nothing");
    for said in [
        leaked.complete(&success("late")),
        leaked.release(),
        leaked.renew(None).map(drop),
        store.transaction(|t| t.complete(&leaked, &success("late"))),
    ] {
        let error = said.expect_err("it never was a claim");
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error:?}");
    }
    // Nor does it keep the key from whoever may take it over.
    let wait = ClaimWait::at_most(Duration::from_millis(4 * LEASE_MS));
    drop(won(store.claim_wait(&request("k"), &wait).expect("healthy")));
    assert!(there.ask("complete k theirs").starts_with("Fenced"));
}

#[test]
fn a_process_that_stops_while_it_writes_stops_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = Store::open(&path, options()).expect("shared");
    won(store.claim(&request("done")).expect("healthy")).complete(&success("body")).expect("healthy");
    for is_killed in [true, false] {
        let mut there = peer(&path, &["shared"]);
        assert_eq!(there.ask("sit"), "sits");
        send(&there, Signal::STOP);
        let began = Instant::now();
        let error = store.claim(&request("new")).expect_err("nobody can write");
        assert_eq!(error.kind(), ErrorKind::Busy, "{error:?}");
        assert!(error.retry_after().is_some());
        assert!(began.elapsed() >= Duration::from_millis(WRITE_WAIT_MS), "it waits for it");
        assert!(!store.is_poisoned());
        // Whoever only looks is served.
        assert_eq!(replayed(store.claim(&request("done")).expect("a look")), b"body");
        if is_killed {
            there.kill();
        } else {
            send(&there, Signal::CONT);
            drop(there);
        }
        let claim = won(store.claim(&request("new")).expect("it is gone"));
        claim.release().expect("healthy");
    }
}

#[test]
fn who_opens_it_alone_and_who_shares_it_refuse_each_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let alone = Options::new(Abandoned::Rerun);
    let shared = || options().write_wait(Duration::from_millis(100));
    let store = Store::open(&path, alone.clone()).expect("nobody else");
    let error = Store::open(&path, shared()).expect_err("it is open alone");
    assert_eq!(error.kind(), ErrorKind::Busy, "{error:?}");
    let mut there = Peer::start(program(), &path, &["shared"]);
    assert!(there.hear().starts_with("Busy"));
    drop(store);

    let mut there = peer(&path, &["shared"]);
    let error = Store::open(&path, alone.clone()).expect_err("it is shared");
    assert_eq!(error.kind(), ErrorKind::Busy, "{error:?}");
    assert!(error.message().contains(&there.pid().to_string()), "{error:?}");
    let store = Store::open(&path, shared()).expect("shared");
    assert!(there.ask("claim a").starts_with("won"));
    assert!(matches!(store.claim(&request("a")), Ok(Decision::InFlight { .. })));
    // One after the other, and alone again.
    store.close().expect("healthy");
    assert!(there.ask("claim b").starts_with("won"));
    assert_eq!(there.ask("close"), "closed");
    there.kill();
    let store = Store::open(&path, alone).expect("nobody else");
    assert!(matches!(store.claim(&request("b")), Ok(Decision::InFlight { .. })));
}

#[test]
fn what_is_no_store_stays_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let database = keyclaim::store::redb::Database::create(&path).expect("a fresh folder");
    drop(database);
    let before = fs::read(&path).expect("there");
    let error = Store::open(&path, options()).expect_err("another program's");
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error:?}");
    assert!(fs::read(&path).expect("there") == before, "it was changed");
}

/// Its record is over at once, and so is there to be reaped.
fn leave(store: &Store, key: &str) {
    let policy = Policy::new(Abandoned::Rerun)
        .replay_window(Duration::from_millis(1))
        .and_then(|policy| policy.reaper_horizon(Duration::from_millis(1)))
        .expect("in bounds");
    let claim = won(store.claim(&request(key).policy(policy)).expect("healthy"));
    claim.complete(&success("body")).expect("healthy");
}

fn removed(peer: &mut Peer) -> u64 {
    peer.ask("removed").parse().expect("a count")
}

#[test]
fn one_process_reaps_and_another_goes_on_where_it_closes_or_dies() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = Store::open(&path, options()).expect("shared");
    let mut peers = vec![peer(&path, &["shared", "reaps"]), peer(&path, &["shared", "reaps"])];
    let mut count = 0;
    // By itself, having closed, having died: longer than the ten seconds of its post.
    for (how, within) in [("", 5), ("close", 5), ("kill", 25)] {
        let mut before: Vec<u64> = peers.iter_mut().map(removed).collect();
        match how {
            "close" | "kill" => {
                let reaper = before.iter().position(|removed| *removed > 0).expect("one of them reaps");
                if how == "close" {
                    assert_eq!(peers[reaper].ask("close"), "closed");
                } else {
                    peers[reaper].kill();
                }
                drop(peers.remove(reaper));
                before.remove(reaper);
                peers.push(peer(&path, &["shared", "reaps"]));
                before.push(0);
            }
            _ => {}
        }
        let until = Instant::now() + Duration::from_secs(within);
        // One at a time: of those that are there one alone removes.
        let mut after = before.clone();
        while after == before {
            assert!(Instant::now() < until, "nobody reaps, {how}");
            count += 1;
            leave(&store, &format!("over {count}"));
            thread::sleep(Duration::from_millis(100));
            after = peers.iter_mut().map(removed).collect();
        }
        for _ in 0..5 {
            count += 1;
            leave(&store, &format!("over {count}"));
            thread::sleep(Duration::from_millis(60));
        }
        after = peers.iter_mut().map(removed).collect();
        let reapers = after.iter().zip(&before).filter(|(after, before)| after > before).count();
        assert_eq!(reapers, 1, "{how}: {before:?} {after:?}");
    }
}

/// Leaves a request to be finished, and returns by which process it was.
fn finished_by(store: &Store, key: &str, within: Duration) -> String {
    let left = request(key).operation(OPERATION, b"order");
    won(store.claim(&left).expect("healthy")).abandon().expect("healthy");
    let until = Instant::now() + within;
    loop {
        // A look: a claim of ours would take it over.
        let found = store.inspect(&id(key)).expect("healthy").expect("it is there");
        if matches!(found.standing, Standing::Complete { .. }) {
            return String::from_utf8(replayed(store.claim(&left).expect("healthy"))).expect("a number");
        }
        assert!(Instant::now() < until, "nobody finishes {key}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn one_process_completes_and_another_goes_on_where_it_closes_or_dies() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = Store::open(&path, options()).expect("shared");
    let mut peers: Vec<Peer> = (0..3).map(|_| peer(&path, &["shared", "completes"])).collect();
    let mut before = String::new();
    // By itself, having closed, having died: longer than the ten seconds of its post.
    for (how, within) in [("", 5), ("close", 5), ("kill", 25)] {
        if !how.is_empty() {
            let at = peers.iter().position(|peer| peer.pid().to_string() == before).expect("one of ours");
            let mut peer = peers.remove(at);
            if how == "close" {
                assert_eq!(peer.ask("close"), "closed");
            } else {
                peer.kill();
            }
        }
        let by = finished_by(&store, &format!("{how} 0"), Duration::from_secs(within));
        assert_ne!(by, before, "it is gone");
        for n in 1..10 {
            assert_eq!(
                finished_by(&store, &format!("{how} {n}"), Duration::from_secs(5)),
                by,
                "two at a time"
            );
        }
        before = by;
    }
}
