//! Bad input, bad files, a full disk, flipped bits: a typed error, nothing overwritten, nothing lost.

#![allow(clippy::large_stack_arrays, reason = "bodies of a test")]

mod faulty;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use faulty::*;
use keyclaim::fingerprint::{Request, Scheme};
use keyclaim::machine::{Body, Decision, DropReason, WonKind};
use keyclaim::store::Standing;
use keyclaim::store::inject::{Fault, Op};
use keyclaim::{Abandoned, ClaimRequest, ErrorKind, Id, Key, Options, Policy, Scope, Store};

fn options() -> Options {
    Options::new(Abandoned::Rerun)
}

#[test]
fn ids_and_settings_out_of_bounds_are_refused_before_anything_happens() {
    refused(Scope::new(""), ErrorKind::Invalid);
    refused(Scope::new([7; 256]), ErrorKind::Invalid);
    refused(Key::new(""), ErrorKind::Invalid);
    refused(Key::new([7; 1_025]), ErrorKind::Invalid);
    refused(rerun().lease(Duration::ZERO), ErrorKind::Invalid);
    refused(rerun().lease(Duration::MAX), ErrorKind::Invalid);
    refused(rerun().replay_window(Duration::ZERO), ErrorKind::Invalid);
    refused(options().queue_len_max(0), ErrorKind::Invalid);
    refused(options().key_len_max(0), ErrorKind::Invalid);
    refused(options().key_len_max(1_025), ErrorKind::Invalid);
    refused(options().body_len_max(usize::MAX), ErrorKind::Invalid);

    let store = Store::in_memory(options()).expect("memory");
    let asked = |key: &[u8]| {
        let id = Id::new(
            Scope::new([0xff; 255]).expect("255 bytes"),
            Key::with_limit(key, 1_024).expect("in bounds"),
        );
        ClaimRequest::new(id, Scheme::Raw, Request::default())
    };
    won(store.claim(&asked(&[7; 255])));
    refused(store.claim(&asked(&[7; 256])), ErrorKind::Invalid);
    refused(block_on(store.claim_async(&asked(&[7; 256]))), ErrorKind::Invalid);
    let claim = won(store.claim(&request("a")));
    refused(claim.renew(Some(Duration::ZERO)), ErrorKind::Invalid);
    refused(claim.renew(Some(Duration::MAX)), ErrorKind::Invalid);
    refused(claim.checkpoint("", b""), ErrorKind::Invalid);
    refused(claim.checkpoint("point", &[7; 16 * 1_024 + 1]), ErrorKind::Invalid);
    refused(store.list(asked(b"a").id().scope(), keyclaim::store::Which::All, None, 0), ErrorKind::Invalid);
    claim.complete(&success(b"")).expect("nothing of that happened");
}

#[test]
fn a_key_is_any_bytes_and_each_is_its_own() {
    let store = Store::in_memory(options()).expect("memory");
    let keys: [&[u8]; 7] = [b"\0", b"\0\0", b"a\0", b"a", b"\xff", b"\xff\xfe", b"\xc3\x28"];
    for scope in ["a", "aa"] {
        for key in keys {
            let id = Id::new(Scope::new(scope).expect("short"), Key::new(key).expect("any bytes"));
            let asked = ClaimRequest::new(id, Scheme::Raw, Request::default());
            won(store.claim(&asked)).complete(&success(key)).expect("healthy");
            assert_eq!(replay(store.claim(&asked)).response, success(key).response);
        }
    }
}

#[test]
fn another_request_under_the_same_key_is_never_given_its_answer() {
    let store = Store::in_memory(options()).expect("memory");
    let other = ClaimRequest::new(id("a"), Scheme::Raw, Request { payload: b"2", ..Request::default() });
    let claim = won(store.claim(&request("a")));
    assert!(matches!(store.claim(&other), Ok(Decision::Mismatch { .. })));
    assert!(matches!(
        block_on(store.claim_async(&other.clone().token(claim.token()))),
        Ok(Decision::Mismatch { .. })
    ));
    claim.complete(&success(b"")).expect("healthy");
    assert!(matches!(
        store.claim_wait(&other, &keyclaim::ClaimWait::at_most(LONG)),
        Ok(Decision::Mismatch { .. })
    ));
}

#[test]
fn a_body_over_the_limit_is_not_kept_and_the_protection_is() {
    let store = Store::in_memory(options().body_len_max(100).expect("in bounds")).expect("memory");
    for len in [100, 101] {
        let key = format!("{len} bytes");
        let claim = won(store.claim(&request(&key)));
        let outcome = success(&vec![7; len]);
        claim.complete(&outcome).expect("too large is no failure");
        let body = replay(store.claim(&request(&key))).response.body;
        match body {
            Body::Here(bytes) => assert_eq!((bytes.0.len(), len), (100, 100)),
            Body::Dropped { len: told, why, .. } => {
                assert_eq!((told, why, len), (101, DropReason::TooLarge, 101));
            }
            Body::Apart { .. } => panic!("never told to a caller"),
        }
    }
    let large = [7; 101];
    refused(store.claim(&request("b").operation("pay", &large)), ErrorKind::Invalid);
    assert_eq!(store.inspect(&id("b")).expect("healthy"), None);
}

/// A closed store with one key of each kind.
fn closed_store(path: &Path) {
    let store = Store::open(path, options()).expect("a fresh folder");
    for n in 0..20 {
        won(store.claim(&request(&format!("done {n}")))).complete(&success(&[n; 300])).expect("healthy");
    }
    won(store.claim(&request("large"))).complete(&success(&[7; 40_000])).expect("healthy");
    won(store.claim(&request("held"))).hold().expect("healthy");
    drop(won(store.claim(&request("in flight").policy(Policy::new(Abandoned::Rerun).no_lease()))));
    store.close().expect("healthy");
}

/// Opening it fails in this way and leaves every byte as it was.
fn is_refused(path: &Path, kind: ErrorKind) {
    let before = fs::read(path).expect("read");
    let error = refused(Store::open(path, options()), kind);
    assert!(error.message().contains(&path.display().to_string()), "{error:?} names the file");
    assert!(fs::read(path).expect("read") == before, "a failed opening changed the file");
    let folder = fs::read_dir(path.parent().expect("a folder")).expect("read");
    assert_eq!(folder.count(), 1, "nothing is left beside it");
}

#[test]
fn what_is_no_store_is_refused_and_left_as_it_is() {
    let folder = fast_folder();
    refused(Store::open(folder.path(), options()), ErrorKind::Invalid);
    refused(Store::open("", options()), ErrorKind::Invalid);
    refused(Store::open(folder.path().join("no folder/store"), options()), ErrorKind::Invalid);
    let path = folder.path().join("file");
    for (bytes, kind) in [
        (&b""[..], ErrorKind::Corrupt),
        (b"a text file of somebody's", ErrorKind::Incompatible),
        (b"redb", ErrorKind::Corrupt),
    ] {
        fs::write(&path, bytes).expect("write");
        is_refused(&path, kind);
    }
    fs::remove_file(&path).expect("remove");
    // Another program's database, also one that calls a table as we do.
    for name in ["theirs", "meta", "records"] {
        let table = redb::TableDefinition::<&[u8], &[u8]>::new(name);
        let db = redb::Database::create(&path).expect("a fresh file");
        let txn = db.begin_write().expect("healthy");
        txn.open_table(table).expect("new").insert(&b"key"[..], &b"value"[..]).expect("healthy");
        txn.commit().expect("healthy");
        drop(db);
        is_refused(&path, ErrorKind::Incompatible);
        fs::remove_file(&path).expect("remove");
    }
}

const META: redb::TableDefinition<'static, &[u8], &[u8]> = redb::TableDefinition::new("meta");

/// Changes rows of `meta` as another program would.
fn edit(path: &Path, change: impl FnOnce(&redb::WriteTransaction)) {
    let db = redb::Database::create(path).expect("closed");
    let txn = db.begin_write().expect("healthy");
    change(&txn);
    txn.commit().expect("healthy");
}

#[test]
fn a_store_of_another_format_or_with_a_damaged_head_is_left_as_it_is() {
    let folder = fast_folder();
    let path = folder.path().join("store");
    let format = |number: u32| [&b"keyclaim"[..], &number.to_be_bytes()].concat();
    let rows: [(&[u8], Vec<u8>, ErrorKind); 7] = [
        (b"format", format(0), ErrorKind::Incompatible),
        (b"format", format(2), ErrorKind::Incompatible),
        (b"format", format(u32::MAX), ErrorKind::Incompatible),
        (b"format", b"other".to_vec(), ErrorKind::Incompatible),
        (b"store id", vec![7; 15], ErrorKind::Corrupt),
        (b"now", vec![7; 66], ErrorKind::Corrupt),
        (b"now", Vec::new(), ErrorKind::Corrupt),
    ];
    for (row, value, kind) in rows {
        closed_store(&path);
        edit(&path, |txn| {
            txn.open_table(META).expect("there").insert(row, value.as_slice()).expect("healthy");
        });
        is_refused(&path, kind);
        fs::remove_file(&path).expect("remove");
    }
    // A table that is gone would be made anew by the next group, and all its keys would be new.
    for name in ["records", "bodies", "due", "archive"] {
        closed_store(&path);
        edit(&path, |txn| {
            let table = redb::TableDefinition::<&[u8], &[u8]>::new(name);
            assert!(txn.delete_table(table).expect("healthy"));
        });
        is_refused(&path, ErrorKind::Corrupt);
        fs::remove_file(&path).expect("remove");
    }
}

#[test]
fn a_store_that_was_cut_short_is_corrupt() {
    let folder = fast_folder();
    let path = folder.path().join("store");
    closed_store(&path);
    let whole = fs::read(&path).expect("read");
    let lengths =
        (0..10).map(|n| n * whole.len() / 10).chain([1, 8, 9, 63, 64, 320, 4_095, 4_096, whole.len() - 1]);
    for len in lengths {
        fs::write(&path, &whole[..len]).expect("write");
        is_refused(&path, ErrorKind::Corrupt);
    }
}

/// Every key is answered rightly or with an error. Whether an error was met, and how many keys were won
/// though they are not new.
fn right_or_refused(path: &Path, options: &Options) -> (u32, u32) {
    let store = match Store::open(path, options.clone()) {
        Ok(store) => store,
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Incompatible), "{error:?}");
            return (1, 0);
        }
    };
    let mut vanished = 0;
    let mut refusals = 0;
    let mut see = |what: &str,
                   decision: keyclaim::Result<Decision<keyclaim::Claim>>,
                   is_right: &dyn Fn(&Decision<keyclaim::Claim>) -> bool| {
        match decision {
            Ok(decision) if is_right(&decision) => {}
            Ok(Decision::Won(_)) => vanished += 1,
            Ok(decision) => panic!("wrong: {what}: {decision:?}"),
            Err(error) => {
                assert!(
                    matches!(
                        error.kind(),
                        ErrorKind::Corrupt
                            | ErrorKind::Incompatible
                            | ErrorKind::Internal
                            | ErrorKind::Unknown
                            | ErrorKind::Poisoned
                    ),
                    "{error:?}"
                );
                refusals += 1;
            }
        }
    };
    for n in 0..20 {
        see(
            "done",
            store.claim(&request(&format!("done {n}"))),
            &|decision| matches!(decision, Decision::Replay(replay) if replay.response == success(&[n; 300]).response),
        );
    }
    see(
        "large",
        store.claim(&request("large")),
        &|decision| matches!(decision, Decision::Replay(replay) if replay.response == success(&[7; 40_000]).response),
    );
    see("held", store.claim(&request("held")), &|decision| matches!(decision, Decision::Held { .. }));
    see("in flight", store.claim(&request("in flight")), &|decision| {
        matches!(decision, Decision::InFlight { .. })
    });
    see(
        "new",
        store.claim(&request("new")),
        &|decision| matches!(decision, Decision::Won(claim) if claim.kind() == WonKind::Fresh && claim.token().0 > 22),
    );
    (u32::from(refusals > 0), vanished)
}

#[test]
fn a_flipped_bit_gives_the_right_answer_or_an_error() {
    // redb panics on some damaged pages; none may come out, and four hundred backtraces help nobody.
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.location().is_some_and(|location| location.file().contains("redb")) {
            PANIC.with_borrow_mut(|last| *last = std::backtrace::Backtrace::force_capture().to_string());
        } else {
            loud(info);
        }
    }));
    let folder = fast_folder();
    let path = folder.path().join("store");
    closed_store(&path);
    let whole = fs::read(&path).expect("read");
    // splitmix64: one seed gives the same flips for ever.
    let mut seed = 0x6b65_7963_6c61_696d_u64;
    let mut random = || {
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let verified = options().verify_on_open(true);
    let (mut flips, mut found, mut found_verified, mut vanished) = (0, 0, 0, 0);
    for page in 0..whole.len() / 4_096 {
        for _ in 0..12 {
            let at = page * 4_096 + usize::try_from(random() % 4_096).expect("small");
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (random() % 8);
            fs::write(&path, &bytes).expect("write");
            let see = |options: &Options| {
                std::panic::catch_unwind(AssertUnwindSafe(|| right_or_refused(&path, options)))
                    .unwrap_or_else(|_| {
                        panic!("it failed, or redb panicked: {}", PANIC.with_borrow(Clone::clone))
                    })
            };
            flips += 1;
            let (was_found, was_wrong) = see(&verified);
            assert_eq!(was_wrong, 0, "byte {at}: verified, and still wrong");
            found_verified += was_found;
            fs::write(&path, &bytes).expect("write");
            // Unverified, a damaged page number can lead past a key; nothing else is ever wrong.
            let (was_found, was_wrong) = see(&options());
            found += was_found;
            vanished += was_wrong;
        }
    }
    eprintln!("{flips} flips: {found} found, {vanished} keys vanished; verified: {found_verified} found");
    assert!(found > 20 && found_verified >= found, "the sample met no data");
    assert!(vanished <= flips / 20, "{vanished} keys vanished in {flips} flips");
}

std::thread_local! {
    static PANIC: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) };
}

#[test]
fn a_store_is_readable_by_its_owner_only() {
    let folder = fast_folder();
    let path = folder.path().join("store");
    closed_store(&path);
    assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
}

/// A file system of its own, if this user may make one.
struct Mounted(PathBuf, #[allow(dead_code, reason = "removed with it")] tempfile::TempDir);

impl Mounted {
    fn new(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().to_path_buf();
        let data = std::ffi::CString::new(format!("size={size}")).expect("no zero");
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tmpfs", &path, "tmpfs", flags, Some(data.as_c_str())).ok()?;
        Some(Self(path, folder))
    }

    fn again(&self, flags: rustix::mount::MountFlags, size: &str) {
        rustix::mount::mount_remount(&self.0, flags, format!("size={size}")).expect("mounted by us");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_read_only_folder_is_named() {
    let disk = Mounted::new("4m")
        .expect("cannot mount a tmpfs; run as root or under `unshare --map-root-user --mount`");
    let path = disk.0.join("store");
    closed_store(&path);
    disk.again(rustix::mount::MountFlags::RDONLY, "4m");
    is_refused(&path, ErrorKind::Invalid);
    refused(Store::open(disk.0.join("new"), options()), ErrorKind::Invalid);
}

#[test]
fn a_full_disk_refuses_an_opening_and_leaves_nothing() {
    let disk = Mounted::new("32k")
        .expect("cannot mount a tmpfs; run as root or under `unshare --map-root-user --mount`");
    let error = refused(Store::open(disk.0.join("store"), options()), ErrorKind::Poisoned);
    assert!(error.message().contains("room"), "{error:?}");
    assert_eq!(fs::read_dir(&disk.0).expect("read").count(), 0);
    disk.again(rustix::mount::MountFlags::empty(), "4m");
    closed_store(&disk.0.join("store"));
}

#[test]
fn a_disk_that_fills_up_fails_closed_and_heals_once_there_is_room() {
    let disk = Mounted::new("600k")
        .expect("cannot mount a tmpfs; run as root or under `unshare --map-root-user --mount`");
    let path = disk.0.join("store");
    let store = Store::open(&path, options()).expect("there is room");
    let body = vec![7; 30_000];
    let mut done = 0;
    let mut in_doubt = None;
    for n in 0..200 {
        let key = format!("key {n}");
        let result = match store.claim(&request(&key)) {
            Ok(Decision::Won(claim)) => {
                let result = claim.complete(&success(&body));
                in_doubt = Some(claim);
                result
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error),
        };
        let Err(error) = result else {
            done += 1;
            in_doubt = None;
            continue;
        };
        assert!(matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::Unknown), "{error:?}");
        assert!(error.message().contains("room") || error.kind() == ErrorKind::Unknown, "{error:?}");
        break;
    }
    assert!((1..200).contains(&done), "{done} were completed");
    refused(store.claim(&request("key 0")), ErrorKind::Poisoned);
    disk.again(rustix::mount::MountFlags::empty(), "8m");
    store.reopen().expect("there is room");
    if let Some(claim) = in_doubt {
        claim.complete(&success(&body)).expect("asked again");
        assert_eq!(replay(store.claim(&request(&format!("key {done}")))).response, success(&body).response);
    }
    for n in 0..done {
        assert_eq!(replay(store.claim(&request(&format!("key {n}")))).response, success(&body).response);
    }
}

#[test]
fn a_full_disk_is_named_in_the_error() {
    // The same by an injected fault, for whoever may not mount.
    let folder = fast_folder();
    let options = options();
    let store = Store::open(folder.path().join("store"), options.clone()).expect("a fresh folder");
    let claim = won(store.claim(&request("a")));
    options.faults().add(Fault { op: Op::SetLen, nth: 1, from_then_on: true, done: false, errno: ENOSPC });
    let error = refused(claim.complete(&success(&[7; 500_000])), ErrorKind::Poisoned);
    assert!(error.message().contains("room"), "{error:?}");
    options.faults().clear();
    store.reopen().expect("there is room");
    claim.complete(&success(&[7; 500_000])).expect("asked again");
}

#[test]
fn what_is_answered_costs_what_it_must() {
    let folder = fast_folder();
    let store = Store::open(folder.path().join("store"), options()).expect("a fresh folder");
    let work = || {
        let stats = store.stats().expect("healthy");
        (stats.file_syncs, stats.file_writes, stats.groups)
    };
    won(store.claim(&request("first"))).complete(&success(b"done")).expect("healthy");
    let _owner = won(store.claim(&request("in flight")));

    // Two-phase commit: one sync for the pages, one for the header that names them.
    for n in 0..50 {
        let (syncs, _, groups) = work();
        won(store.claim(&request(&format!("lone {n}"))));
        assert_eq!((work().0 - syncs, work().2 - groups), (2, 1), "a lone claim, number {n}");
    }
    let before = work();
    for _ in 0..50 {
        replay(store.claim(&request("first")));
        in_flight(store.claim(&request("in flight")));
        in_flight(block_on(store.claim_async(&request("in flight"))));
        let other = ClaimRequest::new(id("first"), Scheme::Raw, Request::default());
        assert!(matches!(store.claim(&other), Ok(Decision::Mismatch { .. })));
    }
    assert_eq!(work(), before, "answers from a snapshot write nothing");

    let barrier = Arc::new(Barrier::new(64));
    let threads: Vec<_> = (0..64)
        .map(|n| {
            let (store, barrier) = (store.clone(), barrier.clone());
            thread::spawn(move || {
                let requests: Vec<_> = (0..8).map(|m| request(&format!("batch {n} {m}"))).collect();
                barrier.wait();
                let futures: Vec<_> = requests
                    .iter()
                    .map(|asked| {
                        let mut future = Box::pin(store.claim_async(asked));
                        let early = poll_once(future.as_mut());
                        (future, early)
                    })
                    .collect();
                for (future, early) in futures {
                    match early {
                        std::task::Poll::Ready(decision) => drop(won(decision)),
                        std::task::Poll::Pending => drop(won(block_on(future))),
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    let groups = work().2 - before.2;
    assert!(groups <= 512 / 4, "512 claims took {groups} commits");
    let Some(seen) = store.inspect(&id("batch 0 0")).expect("healthy") else { panic!("it is there") };
    assert!(matches!(seen.standing, Standing::InFlight { .. }));
}
