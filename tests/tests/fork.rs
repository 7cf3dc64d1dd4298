//! A forked child has an open store only by accident: whatever it does harms nothing.

mod faulty;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use faulty::*;
use fork::Fork;
use keyclaim::store::Which;
use keyclaim::{Abandoned, Claim, ClaimWait, ErrorKind, Millis, Options, Sharing, Store, Token};

/// What the parent does here runs in a process of its own with one thread beside the store's.
#[test]
fn helper() {
    let (Some(path), Ok(role)) =
        (std::env::var_os("KEYCLAIM_TEST_PATH"), std::env::var("KEYCLAIM_TEST_ROLE"))
    else {
        return;
    };
    go_on_after_children(Path::new(&path), &role);
}

fn open(path: &Path) -> Store {
    Store::open(path, Options::with_policy(lease(30_000))).expect("nobody else has it")
}

fn go_on_after_children(path: &Path, role: &str) {
    let store = open(path);
    let claim = won(store.claim(&request("claimed by the parent")));
    // Others hold the store's locks again and again while the children are made.
    let busy: Vec<_> = (0..2)
        .map(|thread| {
            let store = store.clone();
            thread::spawn(move || {
                let start = Instant::now();
                let mut n = 0;
                while start.elapsed() < Duration::from_secs(2) {
                    let key = format!("busy {thread} {n}");
                    won(store.claim(&request(&key))).complete(&success(b"busy")).expect("healthy");
                    store.now_ms();
                    n += 1;
                }
                n
            })
        })
        .collect();
    for n in 0..40 {
        in_child(|| match role {
            "use" => is_closed(&store, &claim),
            "drop" => drop(store.clone()),
            "exit" => process::exit(0),
            other => panic!("no role {other}"),
        });
        won(store.claim(&request(&format!("after {n}")))).complete(&success(b"after")).expect("healthy");
    }
    let counts: Vec<_> = busy.into_iter().map(|thread| thread.join().expect("no panic")).collect();
    claim.complete(&success(b"parent")).expect("still the owner");
    drop(claim);
    store.close().expect("healthy");

    let store = open(path);
    for (thread, count) in counts.into_iter().enumerate() {
        for n in 0..count {
            replay(store.claim(&request(&format!("busy {thread} {n}"))));
        }
    }
    for n in 0..40 {
        assert_eq!(replay(store.claim(&request(&format!("after {n}")))).response, success(b"after").response);
    }
    replay(store.claim(&request("claimed by the parent")));
    assert_eq!(store.inspect(&id("claimed by a child")).expect("healthy"), None);
}

/// Every call is told to open a store of its own, and none waits for a lock that nobody holds here.
fn is_closed(store: &Store, claim: &Claim) {
    let wait = ClaimWait::at_most(LONG);
    let asked = request("claimed by a child");
    refused(store.claim(&asked), ErrorKind::Closed);
    refused(store.claim(&request("claimed by the parent")), ErrorKind::Closed);
    refused(block_on(store.claim_async(&asked)), ErrorKind::Closed);
    refused(store.claim_wait(&asked, &wait), ErrorKind::Closed);
    refused(block_on(store.claim_wait_async(&asked, &wait)), ErrorKind::Closed);
    refused(store.inspect(asked.id()), ErrorKind::Closed);
    refused(store.list(asked.id().scope(), Which::All, None, 10), ErrorKind::Closed);
    refused(store.forget(asked.id(), Token(1)), ErrorKind::Closed);
    refused(store.reap(&keyclaim::Reap::new()), ErrorKind::Closed);
    refused(store.stats(), ErrorKind::Closed);
    refused(store.reopen(), ErrorKind::Closed);
    refused(claim.renew(None), ErrorKind::Closed);
    refused(claim.checkpoint("point", b""), ErrorKind::Closed);
    refused(claim.complete(&success(b"child")), ErrorKind::Closed);
    refused(block_on(claim.release_async()), ErrorKind::Closed);
    refused(store.clone().close(), ErrorKind::Closed);
    assert!(claim.is_lost(), "a child owns nothing");
    assert!(store.now_ms() > Millis(0));
    assert!(!store.is_poisoned());
}

/// A pre-fork server: the parent has opened the store, and each worker opens it for itself.
#[test]
fn workers() {
    let Some(path) = std::env::var_os("KEYCLAIM_TEST_PATH") else { return };
    let path = Path::new(&path);
    let shared = || Options::with_policy(lease(30_000)).sharing(Sharing::Processes);
    let store = Store::open(path, shared()).expect("nobody else has it");
    let claim = won(store.claim(&request("claimed by the parent")));
    for n in 0..10 {
        in_child(|| {
            is_closed(&store, &claim);
            let own = Store::open(path, shared()).expect("shared");
            in_flight(own.claim(&request("claimed by the parent")));
            won(own.claim(&request(&format!("worker {n}")))).complete(&success(b"worker")).expect("healthy");
            own.close().expect("healthy");
        });
        assert_eq!(
            replay(store.claim(&request(&format!("worker {n}")))).response,
            success(b"worker").response
        );
    }
    claim.complete(&success(b"parent")).expect("still the owner");
}

/// The same for a parent whose only handle a child drops.
#[test]
fn drop_all() {
    let Some(path) = std::env::var_os("KEYCLAIM_TEST_PATH") else { return };
    let mut slot = Some(open(Path::new(&path)));
    let asked = request("claimed by the parent");
    let mut claim = Some(won(slot.as_ref().expect("open").claim(&asked)));
    for _ in 0..10 {
        in_child(|| {
            drop(claim.take());
            drop(slot.take());
        });
        in_child(|| {
            drop(claim.take());
            refused(slot.take().expect("open").close(), ErrorKind::Closed);
        });
        let store = slot.as_ref().expect("open");
        claim.as_ref().expect("there").renew(None).expect("still the owner");
        refused(Store::open(&path, Options::new(Abandoned::Rerun)), ErrorKind::Busy);
        in_flight(store.claim(&asked));
    }
    claim.take().expect("there").complete(&success(b"parent")).expect("still the owner");
    assert_eq!(threads(), ["keyclaim-timer", "keyclaim-writer"]);
    slot.take().expect("open").close().expect("healthy");
    assert_eq!(threads(), [""; 0], "closing ends both threads");
    replay(open(Path::new(&path)).claim(&asked));
}

/// The store's threads in this process. Only a process with one store can count them.
fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux").flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    let mut names: Vec<_> = names.map(|name| name.trim().to_owned()).collect();
    names.retain(|name| name.starts_with("keyclaim-"));
    names.sort();
    names
}

/// Runs this in a forked child; it must end well, and soon.
fn in_child(f: impl FnOnce()) {
    match fork::fork().expect("there is room for a process") {
        Fork::Child => {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
            process::exit(i32::from(result.is_err()));
        }
        Fork::Parent(pid) => assert_eq!(fork::waitpid(pid).expect("a child"), 0, "the child failed"),
    }
}

fn start(test: &str, role: &str, path: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("KEYCLAIM_TEST_ROLE", role)
        .env("KEYCLAIM_TEST_PATH", path)
        .stdout(Stdio::null())
        // A process group of its own, so that a child that hangs ends with it.
        .process_group(0)
        .spawn()
        .expect("this program can be started")
}

fn ends_well(test: &str, role: &str) {
    let folder = fast_folder();
    let mut child = start(test, role, &folder.path().join("store"));
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        if start.elapsed() > Duration::from_mins(1) {
            let group = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process_group(group, rustix::process::Signal::KILL).expect("ours");
            panic!("a forked child hangs");
        }
        thread::sleep(Duration::from_millis(5));
    };
    assert!(status.success(), "{status}");
}

#[test]
fn a_child_that_uses_the_store_is_told_closed_and_harms_nothing() {
    ends_well("helper", "use");
}

#[test]
fn a_worker_opens_a_shared_store_after_the_fork() {
    ends_well("workers", "");
}

#[test]
fn a_child_that_drops_a_handle_harms_nothing() {
    ends_well("helper", "drop");
    ends_well("drop_all", "");
}

#[test]
fn a_child_that_exits_harms_nothing() {
    ends_well("helper", "exit");
}
