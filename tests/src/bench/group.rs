//! Many callers at once.

use super::load::{self, Keys, on_threads};
use super::raw::{Raw, Template};
use super::report::{Row, Spread, Target};
use super::settings::Settings;

pub(super) const THREADS: usize = 64;

/// Claims of 64 threads on distinct keys against a commit each.
pub(super) fn rows(settings: &Settings) -> Vec<Row> {
    let folder = settings.folder();
    let store = load::open(&folder.path().join("group.keyclaim"));
    let raw = Raw::create(&folder.path().join("raw.redb"), Template::of_claim(folder.path()));
    let keys = Keys::from(1);
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for rep in 0..=settings.reps {
        let claimed =
            on_threads(THREADS, settings.grouped, || (), |()| load::win(&store, &load::request(keys.next())));
        let committed = on_threads(THREADS, settings.raw_grouped, || (), |()| raw.commit_claim(&keys.next()));
        if rep > 0 {
            ours.push(claimed.per_second());
            theirs.push(committed.per_second());
            ratios.push(claimed.per_second() / committed.per_second());
        }
    }
    store.close().expect("the store closes");
    vec![Row {
        name: format!("group: claims of {THREADS} threads"),
        unit: "1/s",
        ours: Spread::of(ours),
        raw: Some(Spread::of(theirs)),
        ratio: Some(Spread::of(ratios)),
        target: Some(Target::RatioAtLeast(6.0)),
        note: format!("raw: {THREADS} threads, one commit per claim"),
    }]
}
