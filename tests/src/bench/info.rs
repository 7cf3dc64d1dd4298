//! What else is good to know; no targets.

use std::fs;

use keyclaim::Store;

use super::load::{self, Keys, Took, micros, on_threads};
use super::raw::{Raw, Template};
use super::report::{Row, Spread};
use super::settings::Settings;

/// Rates of claims, completions and whole lives, what they write, and the memory of it all.
pub(super) fn rows(settings: &Settings) -> Vec<Row> {
    let folder = settings.folder();
    let store = load::open(&folder.path().join("info.keyclaim"));
    let raw = Raw::create(&folder.path().join("raw.redb"), Template::of_claim(folder.path()));
    let keys = Keys::from(1);
    let mut rows = Vec::new();
    for threads in [1, 8, 64] {
        rows.push(claims(settings, threads, &store, &raw, &keys));
    }
    for threads in [1, 64] {
        rows.push(repeated(settings, &format!("info: complete, {}", counted(threads)), &store, || {
            on_threads(
                threads,
                steps(settings, threads),
                || load::win(&store, &load::request(keys.next())),
                |claim| claim.complete(&load::outcome()).expect("the claim is ours"),
            )
        }));
        rows.push(repeated(
            settings,
            &format!("info: claim and complete, {}", counted(threads)),
            &store,
            || {
                on_threads(
                    threads,
                    steps(settings, threads),
                    || (),
                    |()| {
                        let claim = load::win(&store, &load::request(keys.next()));
                        claim.complete(&load::outcome()).expect("the claim is ours");
                    },
                )
            },
        ));
    }
    rows.push(Row {
        name: "info: resident memory".into(),
        unit: "MiB",
        ours: Spread::of(vec![resident_mib()]),
        raw: None,
        ratio: None,
        target: None,
        note: "of the whole bench, two page caches of 64 MiB and its threads included".into(),
    });
    store.close().expect("the store closes");
    rows
}

fn claims(settings: &Settings, threads: usize, store: &Store, raw: &Raw, keys: &Keys) -> Row {
    let mut theirs = Vec::new();
    let row = repeated(settings, &format!("info: claim, {}", counted(threads)), store, || {
        let all = if threads == 1 { settings.lone } else { settings.raw_grouped };
        let committed = on_threads(threads, all, || (), |()| raw.commit_claim(&keys.next()));
        theirs.push(committed.per_second());
        on_threads(
            threads,
            steps(settings, threads),
            || (),
            |()| load::win(store, &load::request(keys.next())),
        )
    });
    Row { raw: Some(Spread::of(theirs)), ..row }
}

/// Measures the same load several times; how long its steps took and what they wrote are the note.
fn repeated(settings: &Settings, name: &str, store: &Store, mut load: impl FnMut() -> Took) -> Row {
    let before = store.stats().expect("the store is open");
    let took: Vec<_> = (0..settings.reps).map(|_| load()).collect();
    let after = store.stats().expect("the store is open");
    let answered = after.grouped_commands - before.grouped_commands;
    let per = |after: u64, before: u64| (after - before) as f64 / answered as f64;
    let at = |share| Spread::of(took.iter().map(|took| micros(took.quantile(share))).collect()).median;
    Row {
        name: name.into(),
        unit: "1/s",
        ours: Spread::of(took.iter().map(Took::per_second).collect()),
        raw: None,
        ratio: None,
        target: None,
        note: format!(
            "p50 {:.0} us, p99 {:.0} us; per command {:.2} syncs, {:.1} KiB written",
            at(0.5),
            at(0.99),
            per(after.file_syncs, before.file_syncs),
            per(after.file_bytes_written, before.file_bytes_written) / 1024.0,
        ),
    }
}

fn counted(threads: usize) -> String {
    if threads == 1 { "1 thread".into() } else { format!("{threads} threads") }
}

fn steps(settings: &Settings, threads: usize) -> usize {
    if threads == 1 { settings.lone } else { settings.grouped }
}

fn resident_mib() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.trim().parse::<f64>().ok()).map_or(f64::NAN, |kib| kib / 1024.0)
}
