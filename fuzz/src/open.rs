//! Arbitrary files at open.

use std::fs;
use std::sync::{Arc, OnceLock};

use keyclaim::clock::ManualClock;
use keyclaim::machine::{Decision, Response};
use keyclaim::outbox::RelayOptions;
use keyclaim::store::Which;
use keyclaim::store::disk::SimDisk;
use keyclaim::{Abandoned, ErrorKind, Key, Options, Reap, Result, Store};
use keyclaim_tests::request::{id, request};

static WHOLE: &[u8] = include_bytes!("../../tests/golden/format-1.keyclaim");
/// The instant at which that file was closed.
const CLOSED_MS: u64 = 1_700_000_000_000 + 3_600_000;
/// Arbitrary: more is as good as a file of noise.
const PATCHES_MAX: usize = 24;

/// Opens a file and asks for everything in it.
///
/// The first byte says what the file is: these bytes and no others, or the golden file with patches: of each three
/// bytes of offset, one of length (0 cuts the file off here) and what is written.
pub(crate) fn open_bytes(bytes: &[u8]) {
    let Some((how, rest)) = bytes.split_first() else { return };
    let options = options().verify_on_open(how & 4 != 0);
    let opened = if how % 4 == 0 {
        on_file(rest, options)
    } else {
        Store::on_disk(&SimDisk::holding(patched(rest)), options)
    };
    match opened {
        Ok(store) => ask(&store),
        Err(error) => told(&error),
    }
}

/// A file that holds these bytes, and nothing that redb began, is refused before redb sees it.
fn on_file(bytes: &[u8], options: Options) -> Result<Store> {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let in_memory = || tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let path = FOLDER.get_or_init(|| in_memory().expect("a folder")).path().join("store");
    fs::write(&path, bytes).expect("a folder of our own");
    Store::open(&path, options)
}

fn options() -> Options {
    let clock = ManualClock::new(CLOSED_MS);
    Options::new(Abandoned::Rerun).clock(Arc::new(clock)).renew_leases_max(0).cache_len(256 * 1024)
}

fn patched(mut patches: &[u8]) -> Vec<u8> {
    let mut file = WHOLE.to_vec();
    for _ in 0..PATCHES_MAX {
        let [a, b, c, len, rest @ ..] = patches else { break };
        let at = u32::from_le_bytes([*a, *b, *c, 0]) as usize % file.len().max(1);
        let (new, rest) = rest.split_at(rest.len().min(usize::from(*len)));
        if *len == 0 {
            file.truncate(at);
        }
        file.iter_mut().skip(at).zip(new).for_each(|(byte, new)| *byte = *new);
        patches = rest;
    }
    file
}

/// What damage may be told as.
fn told(error: &keyclaim::Error) {
    use ErrorKind::{Corrupt, Incompatible, Internal, Poisoned, Unknown};
    assert!([Corrupt, Incompatible, Internal, Poisoned, Unknown].contains(&error.kind()), "{error:?}");
}

fn ok<T>(result: Result<T>) -> Option<T> {
    result.inspect_err(told).ok()
}

/// What the golden file answers: no other replay may be made of it.
fn replays() -> &'static [(Key, Option<Response>)] {
    static REPLAYS: OnceLock<Vec<(Key, Option<Response>)>> = OnceLock::new();
    REPLAYS.get_or_init(|| {
        let store = Store::on_disk(&SimDisk::holding(WHOLE.to_vec()), options()).expect("the golden file");
        let page = store.list(id("any").scope(), Which::All, None, 100).expect("it is whole");
        let keys = page.rows.into_iter().map(|(key, _)| key);
        let asked = keys.map(|key| {
            let answer = store.claim(&request(&name(&key))).expect("it is whole");
            let Decision::Replay(replay) = answer else { return (key, None) };
            (key, Some(replay.response))
        });
        asked.collect()
    })
}

fn ask(store: &Store) {
    for (key, response) in replays() {
        ok(store.inspect(&id(&name(key))));
        if let Some(Decision::Replay(replay)) = ok(store.claim(&request(&name(key)))) {
            assert_eq!(Some(&replay.response), response.as_ref(), "a replay was made up");
        }
    }
    ok(store.list(id("any").scope(), Which::All, None, 100));
    ok(store.app_rows("rows", None, 100));
    ok(store.claim(&request("new")));
    ok(store.outbox());
    ok(store.dead_letters(None, 100));
    ok(store.relay_once(store.now_ms(), &RelayOptions::new(), |_| Ok(())));
    ok(store.reap(&Reap::new()));
    ok(store.clone().close());
}

/// The keys of the golden file are text.
fn name(key: &Key) -> String {
    String::from_utf8_lossy(key.as_bytes()).into_owned()
}
