//! Two real processes: a relay that is killed between publish and ack publishes again, and the consumer acts once.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use fork::Fork;
use keyclaim::fingerprint::{Request, Scheme};
use keyclaim::machine::Decision;
use keyclaim::outbox::{Backoff, RelayOptions, Relayed};
use keyclaim::{Abandoned, ClaimRequest, ErrorKind, Id, Key, Options, Scope, Store};

use crate::faulty::*;
use crate::kit::*;

/// What the other process of these tests is: a relay that publishes to its standard output, and acknowledges an
/// event once a line has come back. Nothing, if no test started it.
#[test]
fn helper() {
    let Some(path) = std::env::var_os("KEYCLAIM_TEST_PATH").map(PathBuf::from) else { return };
    if std::env::var_os("KEYCLAIM_TEST_FORKS").is_some() {
        return go_on_after_children(&path);
    }
    let store = Store::open(path, Options::new(Abandoned::Rerun)).expect("nobody else has it");
    let backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(1)).expect("in bounds");
    // Every kill costs an attempt, and there are many kills.
    let options =
        RelayOptions::new().workers(1).expect("in bounds").attempts_max(1_000_000).expect("in bounds");
    let options = options.backoff(backoff).lease(Duration::from_millis(150)).expect("in bounds");
    let relay = store.relay(&options, |delivery| {
        let mut out = std::io::stdout().lock();
        let (key, payload) = (String::from_utf8_lossy(delivery.key.as_bytes()), payload(delivery));
        writeln!(out, "publish {key} {payload}")?;
        out.flush()?;
        let mut line = String::new();
        std::io::stdin().read_line(&mut line)?;
        assert_eq!(line, "go on\n", "the test has ended");
        Ok(())
    });
    eventually("all is published", || store.outbox().expect("healthy").events == 0);
    assert_eq!(relay.expect("open").shutdown(LONG).open, 0);
    println!("drained");
}

/// Forks children that do to an inherited relay what they can, and goes on with it after each.
fn go_on_after_children(path: &Path) {
    let store = Store::open(path, Options::new(Abandoned::Rerun)).expect("nobody else has it");
    let published = Published::default();
    let mut relay = Some(store.relay(&long_lease(), published.handler()).expect("open"));
    for n in 0..30 {
        emit(&store, "a", &format!("forked {n}"), [ordered("k", n)]);
        match fork::fork().expect("there is room for a process") {
            Fork::Child => {
                let harms_nothing = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    assert_eq!(relay.as_ref().expect("there").counts(), Relayed::default());
                    refused(store.outbox_lease(1, &options()), ErrorKind::Closed);
                    refused(store.relay(&options(), |_| Ok(())), ErrorKind::Closed);
                    let relay = relay.take().expect("there");
                    if n % 2 == 0 {
                        assert_eq!(relay.shutdown(LONG), Relayed::default());
                    }
                }));
                std::process::exit(i32::from(harms_nothing.is_err()));
            }
            Fork::Parent(pid) => assert_eq!(fork::waitpid(pid).expect("a child"), 0, "the child failed"),
        }
    }
    eventually("all is published", || store.outbox().expect("healthy").events == 0);
    assert_eq!(published.payloads(), (0..30).map(|n| n.to_string()).collect::<Vec<_>>());
    println!("drained");
}

/// The relay's process, from the consumer's side. Killed when dropped.
struct RelayProcess {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl RelayProcess {
    fn start(path: &Path) -> Self {
        Self::start_with(path, &[])
    }

    fn start_with(path: &Path, vars: &[(&str, &str)]) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "processes::helper", "--nocapture", "--test-threads=1"])
            .env("KEYCLAIM_TEST_PATH", path)
            .envs(vars.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started");
        let (to, from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Self { child, to, from: BufReader::new(from) }
    }

    /// The key and payload of the next event that it publishes; none once it has published all.
    fn next(&mut self) -> Option<(String, String)> {
        loop {
            let mut line = String::new();
            assert!(self.from.read_line(&mut line).expect("a pipe") > 0, "the relay's process ended early");
            // The test harness of that process begins the first line.
            if let Some((_, published)) = line.trim_end().split_once("publish ") {
                let (key, payload) = published.split_once(' ').expect("two words");
                return Some((key.to_owned(), payload.to_owned()));
            }
            if line.contains("drained") {
                return None;
            }
        }
    }

    fn go_on(&mut self) {
        self.to.write_all(b"go on\n").and_then(|()| self.to.flush()).expect("it waits for it");
    }

    fn kill(mut self) {
        // SIGKILL: nothing of it runs any more.
        self.child.kill().expect("ours");
        self.child.wait().expect("ours");
    }
}

impl Drop for RelayProcess {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Claims on the key of each event in a store of its own, and acts if it wins.
struct Consumer {
    store: Store,
    deliveries: BTreeMap<String, u32>,
    acts: BTreeMap<String, u32>,
}

impl Consumer {
    fn new(path: &Path) -> Self {
        let store = Store::open(path, Options::new(Abandoned::Rerun)).expect("a fresh folder");
        Self { store, deliveries: BTreeMap::new(), acts: BTreeMap::new() }
    }

    fn consume(&mut self, key: &str, payload: &str) {
        *self.deliveries.entry(payload.to_owned()).or_default() += 1;
        let id = Id::new(Scope::new("orders").expect("short"), Key::new(key).expect("short"));
        let request = Request { target: b"orders", payload: payload.as_bytes(), ..Request::default() };
        match self.store.claim(&ClaimRequest::new(id, Scheme::Raw, request)).expect("healthy") {
            Decision::Won(claim) => {
                *self.acts.entry(payload.to_owned()).or_default() += 1;
                claim.complete(&success(b"acted")).expect("its owner");
            }
            Decision::Replay(_) => {}
            other => panic!("another event under this key: {other:?}"),
        }
    }
}

fn made(path: &Path, events: usize) {
    let store = Store::open(path, Options::new(Abandoned::Rerun)).expect("a fresh folder");
    for n in 0..events {
        emit(&store, "a", &format!("request {n}"), [ordered(&format!("key {}", n % 3), n)]);
    }
    store.close().expect("healthy");
}

#[test]
fn a_relay_killed_between_publish_and_ack_publishes_again_with_the_same_key() {
    let folder = fast_folder();
    let path = folder.path().join("producer");
    made(&path, 1);
    let mut consumer = Consumer::new(&folder.path().join("consumer"));
    let mut relay = RelayProcess::start(&path);
    let (first, payload) = relay.next().expect("one event");
    consumer.consume(&first, &payload);
    relay.kill();
    let mut relay = RelayProcess::start(&path);
    let (second, payload) = relay.next().expect("the same event");
    consumer.consume(&second, &payload);
    relay.go_on();
    assert_eq!(relay.next(), None);
    assert_eq!(first, second);
    assert_eq!((consumer.deliveries["0"], consumer.acts["0"]), (2, 1));
}

#[test]
fn however_often_the_relay_is_killed_every_event_is_published_and_acted_on_once() {
    const EVENTS: usize = 30;
    let folder = fast_folder();
    let path = folder.path().join("producer");
    made(&path, EVENTS);
    let mut consumer = Consumer::new(&folder.path().join("consumer"));
    let mut kills = 0_usize;
    'relays: loop {
        let mut relay = RelayProcess::start(&path);
        // Killed after one to four events, each time at another of these places: between publish and act, between
        // act and ack, and while the ack may be on its way to the disk.
        for n in 0..=kills % 4 {
            let Some((key, payload)) = relay.next() else { break 'relays };
            let is_last = n == kills % 4;
            if is_last && kills.is_multiple_of(3) {
                break;
            }
            consumer.consume(&key, &payload);
            if !is_last || kills % 3 == 2 {
                relay.go_on();
            }
        }
        relay.kill();
        kills += 1;
        assert!(kills < 200, "never done");
    }
    let all: Vec<_> = (0..EVENTS).map(|n| n.to_string()).collect();
    assert!(all.iter().all(|event| consumer.acts.get(event) == Some(&1)), "{:?}", consumer.acts);
    let deliveries: u32 = consumer.deliveries.values().sum();
    assert!(kills > 5 && deliveries as usize > EVENTS, "{kills} kills, {deliveries} deliveries");
}

#[test]
fn a_forked_child_that_uses_or_drops_a_relay_harms_nothing() {
    let folder = fast_folder();
    let path = folder.path().join("producer");
    let forks = bounded(move || RelayProcess::start_with(&path, &[("KEYCLAIM_TEST_FORKS", "1")]).next());
    assert_eq!(forks, None, "it publishes nothing by its output");
}
