//! One caller, nobody beside it.

use super::load::{self, Keys, micros, timed};
use super::raw::{Raw, Template};
use super::report::{Row, Spread, Target};
use super::settings::Settings;

/// A claim on a fresh key against one commit of the engine alone, in turns.
pub(super) fn rows(settings: &Settings) -> Vec<Row> {
    let folder = settings.folder();
    let store = load::open(&folder.path().join("lone.keyclaim"));
    let raw = Raw::create(&folder.path().join("raw.redb"), Template::of_claim(folder.path()));
    let keys = Keys::from(1);
    let mut spreads = (Vec::new(), Vec::new(), Vec::new());
    // The first repetition only warms both up.
    for rep in 0..=settings.reps {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for turn in 0..settings.lone {
            let request = load::request(keys.next());
            let (id, due) = raw.prepare(request.id());
            let mut claim = || ours.push(timed(|| load::win(&store, &request)).0);
            // In turns who is first, since a commit is not free of what the one before it left.
            if turn % 2 == 0 {
                claim();
                theirs.push(timed(|| raw.commit(&id, &due)).0);
            } else {
                theirs.push(timed(|| raw.commit(&id, &due)).0);
                claim();
            }
        }
        if rep > 0 {
            let (ours, theirs) = (micros(load::median(&ours)), micros(load::median(&theirs)));
            spreads.0.push(ours);
            spreads.1.push(theirs);
            spreads.2.push(ours / theirs);
        }
    }
    store.close().expect("the store closes");
    vec![Row {
        name: "lone: a durable claim".into(),
        unit: "us",
        ours: Spread::of(spreads.0),
        raw: Some(Spread::of(spreads.1)),
        ratio: Some(Spread::of(spreads.2)),
        target: Some(Target::RatioAtMost(1.25)),
        note: "medians; raw: one commit of the same rows".into(),
    }]
}
