//! A store of a million records: whether it is still as fast, and how soon it opens.

use std::fs;
use std::path::Path;
use std::time::Duration;

use keyclaim::Store;

use super::kill::kill_while_claiming;
use super::load::{self, Keys, micros, millis, timed};
use super::raw::{self, Template};
use super::report::{Row, Spread, Target};
use super::settings::Settings;

/// A child that is killed may have claimed more than it told of.
const KEYS_PER_CHILD: u64 = 10_000_000;

/// Claims at a million records against 10,000, and opening: after a close, and after `kill -9`.
pub(super) fn rows(settings: &Settings) -> Vec<Row> {
    let folder = settings.folder();
    let (small, large) = (folder.path().join("small.keyclaim"), folder.path().join("large.keyclaim"));
    let template = Template::of_complete(folder.path());
    fill(&small, &template, settings.records_small);
    let (filling, ()) = timed(|| fill(&large, &template, settings.records_large));
    let len = fs::metadata(&large).expect("the store's file").len();
    let title = |what: &str| format!("large: {what}, {} records", settings.records_large);
    let mut rows = vec![claims(settings, &small, &large, &title("a durable claim"))];

    let (mut clean, mut killed) = (Vec::new(), Vec::new());
    for rep in 1..=settings.reps as u64 {
        let (took, store) = timed(|| load::open(&large));
        check(&store, settings.records_large);
        store.close().expect("the store closes");
        clean.push(millis(took));

        let from = settings.records_large + rep * KEYS_PER_CHILD;
        let told = kill_while_claiming(&large, from, settings.acks_before_kill);
        let (took, store) = timed(|| load::open(&large));
        check(&store, settings.records_large);
        assert!(told > 0, "the child was killed before it claimed");
        store.close().expect("the store closes");
        killed.push(millis(took));
    }
    let opening = |what: &str, took: Vec<f64>, at_most: f64| Row {
        name: title(what),
        unit: "ms",
        ours: Spread::of(took),
        raw: None,
        ratio: None,
        target: Some(Target::AtMost(at_most)),
        note: "the file is in the page cache".into(),
    };
    rows.push(opening("open after a close", clean, 100.0));
    rows.push(opening("open after kill -9", killed, 200.0));
    rows.push(Row {
        name: title("file bytes per record"),
        unit: "bytes",
        ours: Spread::of(vec![len as f64 / settings.records_large as f64]),
        raw: None,
        ratio: None,
        target: None,
        note: format!(
            "{} MiB, keys in time order; filled in {:.0} s, straight into the tables",
            len >> 20,
            filling.as_secs_f64()
        ),
    });
    rows
}

fn fill(path: &Path, template: &Template, records: u64) {
    load::open(path).close().expect("the store closes");
    raw::fill(path, template, records);
    let store = load::open(path);
    check(&store, records);
    store.close().expect("the store closes");
}

/// What was filled in is what the store itself would have written: it answers from it.
fn check(store: &Store, records: u64) {
    for number in [1, records / 2 + 1, records] {
        assert_eq!(load::replay(store, &load::request(load::id(number))), 201);
    }
}

fn claims(settings: &Settings, small: &Path, large: &Path, name: &str) -> Row {
    let keys = Keys::from(settings.records_large + 1);
    let stores = [load::open(small), load::open(large)];
    let (mut at_small, mut at_large, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for rep in 0..=settings.reps {
        let mut took: [Vec<Duration>; 2] = Default::default();
        for turn in 0..settings.lone {
            for at in [turn % 2, 1 - turn % 2] {
                let request = load::request(keys.next());
                took[at].push(timed(|| load::win(&stores[at], &request)).0);
            }
        }
        if rep > 0 {
            let [few, many] = took.map(|took| micros(load::median(&took)));
            at_small.push(few);
            at_large.push(many);
            ratios.push(many / few);
        }
    }
    for store in stores {
        store.close().expect("the store closes");
    }
    Row {
        name: name.into(),
        unit: "us",
        ours: Spread::of(at_large),
        raw: Some(Spread::of(at_small)),
        ratio: Some(Spread::of(ratios)),
        target: Some(Target::RatioAtMost(1.5)),
        note: format!("medians; raw: the same at {} records", settings.records_small),
    }
}
