//! The fast path: an outcome answered again.

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use keyclaim::codec;

use super::load::{self, micros, timed};
use super::raw::RawReader;
use super::report::{Row, Spread, Target};
use super::settings::Settings;

/// Reads timed together, since one is about as short as a look at the clock.
const BATCH: usize = 10;
const RECORDS: u64 = 1_000;

/// A replay against a read of the same bytes from a copy of the same file, in turns; then the two
/// parts of a replay that a read has not.
pub(super) fn rows(settings: &Settings) -> Vec<Row> {
    let folder = settings.folder();
    let path = folder.path().join("replay.keyclaim");
    let records = RECORDS.min(settings.records_small);
    fill(&path, records);
    let copy = folder.path().join("copy.redb");
    fs::copy(&path, &copy).expect("the closed file can be copied");
    let (store, raw) = (load::open(&path), RawReader::open(&copy));
    let requests: Vec<_> = (1..=records).map(|number| load::request(load::id(number))).collect();
    let ids: Vec<_> = requests.iter().map(|request| request.id().encode()).collect();
    let rows: Vec<_> = ids.iter().map(|id| (id, raw.record(id))).collect();
    let mut took: [Vec<f64>; 4] = Default::default();
    for rep in 0..=settings.reps {
        let mut batches: [Vec<Duration>; 4] = Default::default();
        for turn in 0..settings.replays.div_ceil(BATCH) {
            batches[0].push(batch(turn, &requests, |request| load::replay(&store, request)));
            batches[1].push(batch(turn, &ids, |id| raw.record_len(id)));
            batches[2].push(batch(turn, &rows, |(id, bytes)| codec::decode(id, bytes)));
            batches[3].push(batch(turn, &requests, |_| load::fingerprint()));
        }
        if rep > 0 {
            let each = batches.map(|batches| micros(load::median(&batches)) / BATCH as f64);
            took.iter_mut().zip(each).for_each(|(took, each)| took.push(each));
        }
    }
    store.close().expect("the store closes");
    let [replays, reads, decodes, fingerprints] = took;
    let ratios = replays.iter().zip(&reads).map(|(ours, theirs)| ours / theirs).collect();
    let part = |name: &str, took, note: &str| Row {
        name: name.into(),
        unit: "us",
        ours: Spread::of(took),
        raw: None,
        ratio: None,
        target: None,
        note: note.into(),
    };
    vec![
        Row {
            raw: Some(Spread::of(reads)),
            ratio: Some(Spread::of(ratios)),
            target: Some(Target::RatioAtMost(2.0)),
            ..part(
                "replay: of a stored outcome",
                replays,
                "medians; raw: snapshot, table, get of the same bytes",
            )
        },
        part("replay: of it, checking and decoding the record", decodes, "checksum, bincode, invariants"),
        part("replay: of it, the request's fingerprint", fingerprints, "BLAKE3 of some 280 bytes"),
    ]
}

fn fill(path: &Path, records: u64) {
    let store = load::open(path);
    for number in 1..=records {
        let claim = load::win(&store, &load::request(load::id(number)));
        claim.complete(&load::outcome()).expect("the claim is ours");
    }
    store.close().expect("the store closes");
}

/// The time of one batch of reads, over other keys in each turn.
fn batch<K, R>(turn: usize, keys: &[K], read: impl Fn(&K) -> R) -> Duration {
    let keys = keys.iter().cycle().skip(turn * BATCH % keys.len()).take(BATCH);
    timed(|| keys.for_each(|key| _ = black_box(read(key)))).0
}
