//! More than one process: a second one, a killed one, a forked one.

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Read};
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::{self, Child};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fork::Fork;
use redb::backends::InMemoryBackend;
use redb::{Database, ReadableDatabase, StorageBackend, WriteTransaction};

use super::{ROWS, Small, Store, folder, has, helper as start, open, put, refusal};
use crate::store::backend::Backend;
use crate::store::fault::before_commit;
use crate::store::file::{self, Format, Options};
use crate::{ErrorKind, Result};

/// What the other processes of these tests do, when [`super::helper`] starts them; nothing otherwise.
#[test]
fn helper() {
    let Ok(role) = std::env::var("KEYCLAIM_TEST_ROLE") else { return };
    let path = PathBuf::from(std::env::var_os("KEYCLAIM_TEST_PATH").expect("started by a test"));
    match role.as_str() {
        "crash-in-creation" => drop(file::open(&path, &Options::default(), &Crashing)),
        "hold" => hold(&path),
        "fork" => fork_and_go_on(&path),
        "fork-inside" => fork_inside_redb(),
        "fork-bare" => fork_bare_and_go_on(&path),
        other => panic!("no role {other}"),
    }
}

struct Crashing;

impl Format for Crashing {
    type Found = ();

    fn begin(&self, txn: &WriteTransaction) -> Result<()> {
        Small.begin(txn)?;
        process::abort()
    }

    fn recognise(&self, _: &Database) -> Result<()> {
        Ok(())
    }
}

/// Holds the store until its standard input ends.
fn hold(path: &Path) {
    let store = open(path).expect("nobody else has it");
    put(&store, b"held").expect("healthy");
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new()).expect("a pipe");
    drop(store);
}

/// Forks children that do to an inherited store whatever they can, and goes on with it after each.
fn fork_and_go_on(path: &Path) {
    let mut slot = Some(open(path).expect("nobody else has it"));
    in_child(|| {
        let store = slot.as_ref().expect("open");
        let error = store.state.check_process().expect_err("inherited");
        assert_eq!(error.kind(), ErrorKind::Closed, "{error:?}");
        let error = put(store, b"child").expect_err("inherited");
        assert_eq!(error.kind(), ErrorKind::Closed, "{error:?}");
    });
    goes_on(slot.as_ref().expect("open"), b"used", path);
    in_child(|| drop(slot.take()));
    goes_on(slot.as_ref().expect("open"), b"dropped", path);
    in_child(|| {
        let error = slot.take().expect("open").db.close().expect_err("inherited");
        assert_eq!(error.kind(), ErrorKind::Closed, "{error:?}");
    });
    goes_on(slot.as_ref().expect("open"), b"closed", path);
    in_child(|| process::exit(0));
    goes_on(slot.as_ref().expect("open"), b"exited", path);
    let store = slot.take().expect("open");
    store.db.close().expect("healthy");
    let store = open(path).expect("closed by its owner alone");
    assert!([&b"used"[..], b"dropped", b"closed", b"exited"].iter().all(|row| has(&store, row)));
    assert!(!has(&store, b"child"));
}

/// A backend whose reads wait, once told to: a thread that reads is inside redb until the process ends.
#[derive(Debug, Default)]
struct Slow {
    inner: InMemoryBackend,
    waits: Arc<AtomicBool>,
    reached: Arc<AtomicBool>,
}

impl StorageBackend for Slow {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        while self.waits.load(Ordering::Acquire) {
            self.reached.store(true, Ordering::Release);
            thread::sleep(Duration::from_millis(1));
        }
        StorageBackend::read(&self.inner, offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        StorageBackend::write(&self.inner, offset, data)
    }
}

/// Forks while another thread is inside redb, whose locks are then held for ever in the child.
fn fork_inside_redb() {
    let backend = Slow::default();
    let (waits, reached) = (Arc::clone(&backend.waits), Arc::clone(&backend.reached));
    // No cache, so that a read reaches the backend.
    let options = Options { cache_len: 0, ..Options::default() };
    let mut slot = Some(file::on_backend(Box::new(backend), &options, &Small).expect("memory"));
    put(slot.as_ref().expect("open"), b"row").expect("memory");
    let txn = slot.as_ref().expect("open").db.begin_read().expect("memory");
    waits.store(true, Ordering::Release);
    thread::scope(|scope| {
        scope.spawn(move || {
            let rows = txn.open_table(ROWS).expect("memory");
            rows.get(&b"row"[..]).expect("memory").expect("there");
        });
        while !reached.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(1));
        }
        in_child(|| drop(slot.take()));
        waits.store(false, Ordering::Release);
    });
    put(slot.as_ref().expect("open"), b"more").expect("memory");
}

/// The same with a bare redb database, which has only the backend to protect it.
fn fork_bare_and_go_on(path: &Path) {
    drop(open(path).expect("nobody else has it"));
    let file = OpenOptions::new().read(true).write(true).open(path).expect("just made");
    let backend = Backend::file(file, path).expect("a file");
    let mut db = Some(Database::builder().create_with_backend(backend).expect("healthy"));
    let txn = db.as_ref().expect("open").begin_write().expect("healthy");
    txn.open_table(ROWS).expect("there").insert(&b"parent"[..], &b"row"[..]).expect("healthy");
    let mut txn = Some(txn);
    in_child(|| {
        let txn = txn.take().expect("open");
        txn.open_table(ROWS).expect("there").insert(&b"child"[..], &b"row"[..]).expect("memory only");
        let error = before_commit(txn.commit().expect_err("inherited"));
        assert_eq!(error.kind(), ErrorKind::Closed, "{error:?}");
        drop(db.take());
    });
    in_child(|| {
        drop(txn.take());
        drop(db.take());
    });
    in_child(|| {
        let txn = db.as_ref().expect("open").begin_read().expect("in memory");
        drop(txn);
        db.take().expect("open").close().expect_err("inherited");
    });
    assert_eq!(refusal(path).kind(), ErrorKind::Busy, "a child gave the lock away");
    txn.take().expect("open").commit().expect("no child disturbed it");
    db.take().expect("open").close().expect("healthy");
    let store = open(path).expect("closed by its owner alone");
    assert!(has(&store, b"parent") && !has(&store, b"child"));
}

fn goes_on(store: &Store, row: &[u8], path: &Path) {
    assert_eq!(refusal(path).kind(), ErrorKind::Busy, "a child gave the lock away");
    put(store, row).expect("no child disturbed it");
    assert!(has(store, row));
}

/// Runs this in a forked child and waits until it has ended well.
fn in_child(f: impl FnOnce()) {
    match fork::fork().expect("there is room for a process") {
        Fork::Child => {
            // A child that hangs ends itself: its parent, if killed, could not.
            thread::spawn(|| {
                thread::sleep(Duration::from_secs(20));
                process::abort();
            });
            let result = panic::catch_unwind(AssertUnwindSafe(f));
            process::exit(i32::from(result.is_err()));
        }
        Fork::Parent(pid) => {
            assert_eq!(fork::waitpid(pid).expect("a child"), 0, "the child hung or panicked");
        }
    }
}

/// Waits until the other process says that it holds the store.
fn ready(child: &mut Child) {
    let output = BufReader::new(child.stdout.as_mut().expect("piped"));
    assert!(output.lines().map_while(io::Result::ok).any(|line| line.ends_with("ready")), "it ended early");
}

#[test]
fn another_process_that_has_the_store_is_named() {
    let (_folder, path) = folder();
    let mut other = start("hold", &path);
    ready(&mut other);
    let error = refusal(&path);
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.message().contains(&format!("process {};", other.id())), "{error:?}");
    drop(other.stdin.take());
    assert!(other.wait().expect("it ends").success());
    assert!(has(&open(&path).expect("free"), b"held"));
}

#[test]
fn a_restart_waits_for_the_older_process() {
    let (_folder, path) = folder();
    let mut other = start("hold", &path);
    ready(&mut other);
    thread::scope(|scope| {
        let options = Options::default();
        let waiting =
            scope.spawn(|| file::open_wait(&path, &Options::default(), &Small, Duration::from_mins(1)));
        thread::sleep(Duration::from_millis(100));
        assert!(file::open(&path, &options, &Small).is_err() && !waiting.is_finished());
        drop(other.stdin.take());
        assert!(has(&waiting.join().expect("no panic").expect("its turn"), b"held"));
    });
    assert!(other.wait().expect("it ends").success());
}

#[test]
fn a_killed_process_leaves_a_store_that_opens() {
    let (_folder, path) = folder();
    let mut other = start("hold", &path);
    ready(&mut other);
    other.kill().expect("ours");
    other.wait().expect("it ends");
    assert!(has(&open(&path).expect("free, and recovered"), b"held"));
}

#[test]
fn a_forked_child_harms_nothing_whatever_it_does() {
    for role in ["fork", "fork-bare", "fork-inside"] {
        let (_folder, path) = folder();
        let mut other = start(role, &path);
        let deadline = Instant::now() + Duration::from_mins(1);
        let status = loop {
            match other.try_wait().expect("ours") {
                Some(status) => break status,
                None if Instant::now() > deadline => {
                    break other.kill().and_then(|()| other.wait()).expect("ours");
                }
                None => thread::sleep(Duration::from_millis(10)),
            }
        };
        assert!(status.success(), "{role}: {status}");
    }
}
