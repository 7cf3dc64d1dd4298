//! A medium that fails, a store that was not closed, and what is counted.

use std::fs;
use std::io::IoSliceMut;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redb::{Durability, StorageBackend};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use tempfile::TempDir;

use super::{ROWS, Small, Store, folder, has, made, open, put};
use crate::ErrorKind;
use crate::store::file::{self, Options};
use crate::store::inject::{Fault, Faults, Op};

fn once(op: Op, nth: u64, errno: Errno) -> Fault {
    Fault { op, nth, from_then_on: false, done: false, errno: errno.raw_os_error() }
}

fn opened_with(path: &std::path::Path) -> (Store, Faults) {
    let faults = Faults::default();
    let options = Options { faults: faults.clone(), ..Options::default() };
    (file::open(path, &options, &Small).expect("no fault yet"), faults)
}

#[test]
fn a_failed_sync_is_doubt_then_poison_until_reopened() {
    let (_folder, path) = folder();
    let (store, faults) = opened_with(&path);
    put(&store, b"before").expect("a healthy disk");
    faults.add(once(Op::Sync, 1, Errno::IO));
    assert_eq!(put(&store, b"doubt").expect_err("the sync failed").kind(), ErrorKind::Unknown);
    assert!(store.state.failed());
    faults.clear();
    let counts = store.state.counts();
    assert_eq!(put(&store, b"after").expect_err("latched").kind(), ErrorKind::Poisoned);
    assert_eq!(store.db.close().expect_err("latched").kind(), ErrorKind::Poisoned);
    assert_eq!(store.state.counts().writes, counts.writes, "nothing is written after a failed sync");
    file::drop_page_cache(&path).expect("the file is there");
    let store = open(&path).expect("reopened");
    assert!(has(&store, b"before") && !has(&store, b"after"));
    put(&store, b"again").expect("healthy again");
}

#[test]
fn a_fault_at_any_operation_of_a_commit_loses_nothing_that_was_acknowledged() {
    for op in [Op::Write, Op::Sync] {
        for done in [false, true] {
            for nth in 1.. {
                let (_folder, path) = folder();
                let (store, faults) = opened_with(&path);
                put(&store, b"before").expect("a healthy disk");
                faults.add(Fault { done, ..once(op, nth, Errno::IO) });
                let result = put(&store, b"new");
                let finished = result.is_ok();
                if let Err(error) = result {
                    assert_eq!(error.kind(), ErrorKind::Unknown, "{op:?} {nth}: {error:?}");
                    assert!(store.state.failed());
                }
                faults.clear();
                drop(store);
                let store = open(&path).expect("reopened");
                assert!(has(&store, b"before"), "{op:?} {nth}");
                if finished {
                    assert!(has(&store, b"new") && nth > 1, "{op:?} {nth}");
                    break;
                }
            }
        }
    }
}

#[test]
fn an_opening_that_fails_halfway_through_its_writes_opens_the_next_time() {
    let mut failures = 0;
    for op in [Op::Write, Op::Sync, Op::Read] {
        for nth in 1.. {
            let (_folder, path) = folder();
            made(&path);
            let faults = Faults::default();
            faults.add(once(op, nth, Errno::IO));
            let options = Options { faults, ..Options::default() };
            let Err(error) = file::open(&path, &options, &Small) else { break };
            failures += 1;
            assert_eq!(error.kind(), ErrorKind::Poisoned, "{op:?} {nth}: {error:?}");
            assert!(has(&open(&path).expect("the next time"), b"kept"));
        }
    }
    assert!(failures >= 3, "{failures}");
}

#[test]
fn an_opening_writes_in_the_end_what_redb_would_have_written() {
    let (folder, path) = folder();
    let copy = folder.path().join("copy");
    // Closed, and as a crash leaves it: the second has more to write.
    made(&path);
    for crashed in [false, true] {
        fs::copy(&path, &copy).expect("copy");
        let before = fs::read(&path).expect("there");
        let store = open(&path).expect("ours");
        let bare = redb::Database::open(&copy).expect("ours");
        let after = fs::read(&path).expect("there");
        assert!(after == fs::read(&copy).expect("there"), "crashed: {crashed}");
        assert!(crashed || after != before, "redb marks a file that is open");
        drop((store, bare));
        fs::write(&path, after).expect("as it was while open");
    }
}

#[test]
fn dropped_pages_are_read_from_the_disk_again() {
    let (_folder, path) = folder();
    fs::write(&path, [7; 8192]).expect("written, and waiting to reach the disk");
    let file = fs::File::open(&path).expect("there");
    let is_cached = || match preadv2(&file, &mut [IoSliceMut::new(&mut [0; 8192])], 0, ReadWriteFlags::NOWAIT)
    {
        Ok(_) => Some(true),
        Err(Errno::AGAIN) => Some(false),
        Err(_) => None,
    };
    // Some file systems do not tell, or are nothing but cache.
    let Some(true) = is_cached() else { return };
    file::drop_page_cache(&path).expect("there");
    assert_eq!(is_cached(), Some(false));
}

#[test]
fn a_file_system_without_locks_is_refused() {
    let (_folder, path) = folder();
    let whole = made(&path);
    let faults = Faults::default();
    faults.add(Fault { from_then_on: true, ..once(Op::Lock, 1, Errno::NOTSUP) });
    let options = Options { faults, ..Options::default() };
    let error = file::open(&path, &options, &Small).expect_err("no locks");
    assert!(error.kind() == ErrorKind::Invalid && error.message().contains("without locks"), "{error:?}");
    assert!(fs::read(&path).expect("there") == whole, "a refused opening wrote");
}

#[test]
fn a_store_that_was_not_closed_opens_as_it_was() {
    let (folder, path) = folder();
    let live = folder.path().join("live");
    let store = open(&live).expect("new");
    for row in 0..30_u8 {
        put(&store, &[row]).expect("a healthy disk");
        // What a crash leaves: a copy of the file while it is open.
        fs::copy(&live, &path).expect("copy");
        let after = open(&path).expect("recovered");
        assert!(has(&after, &[row]));
        put(&after, b"goes on").expect("a healthy disk");
    }
}

#[test]
fn a_long_repair_reports_its_progress_and_survives_a_panic_in_the_callback() {
    let (folder, path) = folder();
    let live = folder.path().join("live");
    let store = open(&live).expect("new");
    // One-phase, as keyclaim itself never commits: so that a repair is needed.
    let mut txn = store.db.begin_write().expect("healthy");
    txn.set_durability(Durability::Immediate).expect("no savepoints");
    txn.open_table(ROWS).expect("there").insert(&b"row"[..], &b"row"[..]).expect("healthy");
    txn.commit().expect("healthy");
    fs::copy(&live, &path).expect("copy");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let progress = {
        let seen = Arc::clone(&seen);
        move |done: f64| {
            seen.lock().push(done);
            assert!(seen.lock().len() > 1, "as the test asked");
        }
    };
    let options = Options { progress: Some(Arc::new(progress)), ..Options::default() };
    assert!(has(&file::open(&path, &options, &Small).expect("repaired"), b"row"));
    let seen = seen.lock();
    assert!(!seen.is_empty() && seen.iter().all(|done| (0.0..=1.0).contains(done)), "{seen:?}");
}

#[test]
fn a_durable_commit_costs_two_syncs_and_is_counted() {
    let (_folder, path) = folder();
    let store = open(&path).expect("new");
    for row in 0..50_u8 {
        let before = store.state.counts();
        put(&store, &[row]).expect("healthy");
        let after = store.state.counts();
        let growing = after.resizes - before.resizes;
        assert_eq!(after.syncs - before.syncs, 2 + growing, "two-phase, and one when the file grows");
        assert!(after.writes > before.writes && after.bytes_written >= before.bytes_written + 4096);
    }
    assert!(store.state.counts().resizes < 10);
}

#[test]
fn a_store_in_memory_works_the_same() {
    let store = file::in_memory(&Options::default(), &Small).expect("memory");
    put(&store, b"row").expect("memory");
    assert!(has(&store, b"row"));
    assert!(store.state.path().is_none() && store.state.check_identity().is_ok());
    assert!(store.state.counts().syncs > 0);
    store.db.close().expect("memory");
}

#[test]
fn a_backend_of_the_callers_keeps_its_store_and_refuses_a_foreign_one() {
    #[derive(Clone, Debug, Default)]
    struct Shared(Arc<redb::backends::InMemoryBackend>);
    impl StorageBackend for Shared {
        fn len(&self) -> std::io::Result<u64> {
            self.0.len()
        }
        fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
            StorageBackend::read(&*self.0, offset, out)
        }
        fn set_len(&self, len: u64) -> std::io::Result<()> {
            self.0.set_len(len)
        }
        fn sync_data(&self) -> std::io::Result<()> {
            self.0.sync_data()
        }
        fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
            StorageBackend::write(&*self.0, offset, data)
        }
    }
    let on = |disk: &Shared| file::on_backend(Box::new(disk.clone()), &Options::default(), &Small);
    let disk = Shared::default();
    put(&on(&disk).expect("empty"), b"row").expect("memory");
    assert!(has(&on(&disk).expect("it is there"), b"row"));

    // A creation that ended before its first commit is made again.
    let disk = Shared::default();
    drop(redb::Database::builder().create_with_backend(disk.clone()).expect("empty"));
    put(&on(&disk).expect("bare"), b"row").expect("memory");

    let disk = Shared::default();
    let db = redb::Database::builder().create_with_backend(disk.clone()).expect("empty");
    let txn = db.begin_write().expect("new");
    txn.open_table(ROWS).expect("new");
    txn.commit().expect("new");
    drop(db);
    assert_eq!(on(&disk).expect_err("no meta").kind(), ErrorKind::Incompatible);
}

#[test]
fn waiting_for_a_file_ends_when_it_is_free_or_at_the_deadline() {
    let (_folder, path) = folder();
    let store = open(&path).expect("new");
    let wait = |ms| {
        let start = Instant::now();
        let result = file::open_wait(&path, &Options::default(), &Small, Duration::from_millis(ms));
        (result, start.elapsed())
    };
    let (result, took) = wait(300);
    assert_eq!(result.expect_err("held").kind(), ErrorKind::Busy);
    assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(10), "{took:?}");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(200));
            store.db.close().expect("healthy");
        });
        let (result, took) = wait(60_000);
        result.expect("free by then");
        assert!(took >= Duration::from_millis(190) && took < Duration::from_secs(10), "{took:?}");
    });
}

/// A file system of this many bytes, unmounted at the end. Whoever may not mount fails here.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(folder: &TempDir, bytes: usize) -> Self {
        let point = folder.path().join("disk");
        fs::create_dir(&point).expect("a mount point");
        let size = format!("size={bytes}");
        assert!(
            run(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(&point)),
            "cannot mount a small tmpfs; run the tests as root, or under `unshare --map-root-user --mount`"
        );
        Self(point)
    }

    fn grow(&self, bytes: usize) {
        let size = format!("remount,size={bytes}");
        assert!(run(Command::new("mount").args(["-o", &size]).arg(&self.0)));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        run(Command::new("umount").arg("--lazy").arg(&self.0));
    }
}

fn run(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

#[test]
fn a_creation_on_a_full_disk_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let disk = SmallDisk::mount(&folder, 4096);
    let error = open(&disk.0.join("store")).expect_err("one page is not enough");
    assert_eq!(error.kind(), ErrorKind::Poisoned, "{error:?}");
    assert!(error.message().contains("no room"), "{error:?}");
    assert_eq!(fs::read_dir(&disk.0).expect("readable").count(), 0);
}

#[test]
fn a_disk_that_fills_up_loses_nothing_and_goes_on_once_there_is_room() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let disk = SmallDisk::mount(&folder, 256 * 1024);
    let path = disk.0.join("store");
    let store = open(&path).expect("there is room");
    let row = |number: u16| [&number.to_le_bytes()[..], &[b'x'; 1000]].concat();
    let mut number = 0;
    let error = loop {
        match put(&store, &row(number)) {
            Ok(()) => number += 1,
            Err(error) => break error,
        }
    };
    assert!(number > 3, "only {number} rows of 1 KiB went into 256 KiB");
    assert!([ErrorKind::Unknown, ErrorKind::Poisoned].contains(&error.kind()), "{error:?}");
    assert_eq!(put(&store, b"more").expect_err("latched").kind(), ErrorKind::Poisoned);
    drop(store);
    disk.grow(4 * 1024 * 1024);
    let store = open(&path).expect("there is room again");
    assert!((0..number).all(|number| has(&store, &row(number))));
    put(&store, b"more").expect("there is room");
}
