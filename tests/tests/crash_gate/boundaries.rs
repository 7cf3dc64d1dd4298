//! Killed at every boundary, and the next attempt at every boundary again.

use std::collections::BTreeMap;
use std::thread::scope;

use keyclaim_tests::gate::{Boundary, Doubt, Plant};

use crate::scene::Scene;
use crate::verdict::{Verdict, must_be_held};

/// Where an order is stopped the first time, and where the second time if it comes by again.
type Stops = (Boundary, Boundary);

/// Who goes on after the second kill.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Finisher {
    /// The client, who sends its orders again.
    Retry,
    /// The completer, while nobody asks.
    Completer,
}

/// An order for each pair of boundaries. One SIGKILL takes all of them at their first, a second one all
/// that came by their second; then they are finished.
fn killed_at_every_pair(doubt: Doubt, finisher: Finisher, plant: Option<Plant>) -> Verdict {
    let pairs = Boundary::ALL.into_iter().flat_map(|first| Boundary::ALL.map(|second| (first, second)));
    let stops: BTreeMap<String, Stops> =
        pairs.map(|(first, second)| (format!("{first}_{second}"), (first, second))).collect();
    let mut scene = Scene::new(doubt, Scene::manners(doubt, plant), 0);
    scene.settings.plant = plant;
    // A worker that waits to be killed does not give up what its provider has halted; and nothing is put in
    // doubt by a slow machine.
    scene.settings.patience = std::time::Duration::from_mins(1);
    for attempt in [|stops: &Stops| stops.0, |stops: &Stops| stops.1] {
        scene.start();
        scene.until_ready();
        let stops: Vec<(&str, Boundary)> =
            stops.iter().map(|(key, stops)| (key.as_str(), attempt(stops))).collect();
        scene.halt(stops.iter().copied());
        for (key, stop) in &stops {
            scene.send(key, Some(*stop));
        }
        let all_there = |scene: &Scene| scene.orders.values().all(|order| order.is_there || order.out == 0);
        assert!(scene.until(all_there), "orders are lost on their way: {:?}", scene.failures);
        scene.kill();
        scene.let_go();
    }
    scene.settings.completes = finisher == Finisher::Completer;
    scene.start();
    scene.until_ready();
    if finisher == Finisher::Completer {
        assert!(scene.settle_by_itself(), "the completer leaves orders in flight");
    }
    let mut verdict = scene.finish();
    for (key, (first, second)) in &stops {
        let (holds, must) = (scene.orders[key].holds, must_be_held(*first, *second));
        if plant.is_none() && (holds > 0) != (doubt == Doubt::Hold && must) {
            verdict.wrong.push(format!("{key}: held {holds} times"));
        }
    }
    // An order whose worker died before the outcome was on record, and that nobody asked for again.
    let is_completed = scene.orders["claimed_claimed"].is_replay;
    if finisher == Finisher::Completer && !is_completed {
        verdict.wrong.push("the completer has completed nothing".into());
    }
    verdict
}

#[test]
fn killed_at_any_two_boundaries_it_is_repeated_at_a_provider_that_collapses_repeats() {
    killed_at_every_pair(Doubt::Repeat, Finisher::Retry, None).is_clean();
}

#[test]
fn killed_at_any_two_boundaries_it_is_asked_about_and_not_repeated() {
    killed_at_every_pair(Doubt::Reconcile, Finisher::Retry, None).is_clean();
}

#[test]
fn killed_at_any_two_boundaries_it_is_held_if_nobody_can_know() {
    killed_at_every_pair(Doubt::Hold, Finisher::Retry, None).is_clean();
}

#[test]
fn killed_at_any_two_boundaries_it_is_finished_by_the_completer() {
    scope(|scope| {
        for doubt in Doubt::ALL {
            scope.spawn(move || killed_at_every_pair(doubt, Finisher::Completer, None).is_clean());
        }
    });
}

#[test]
fn the_gate_sees_a_call_before_its_intent() {
    assert!(killed_at_every_pair(Doubt::Hold, Finisher::Retry, Some(Plant::CallBeforeIntent)).doubled > 0);
}

#[test]
fn the_gate_sees_a_result_that_is_not_recorded() {
    assert!(killed_at_every_pair(Doubt::Hold, Finisher::Retry, Some(Plant::ForgetResult)).doubled > 0);
}

#[test]
fn the_gate_sees_a_step_in_doubt_that_is_repeated() {
    assert!(killed_at_every_pair(Doubt::Hold, Finisher::Retry, Some(Plant::RepeatInDoubt)).doubled > 0);
}

#[test]
fn the_gate_sees_a_downstream_key_that_changes_with_the_attempt() {
    assert!(killed_at_every_pair(Doubt::Repeat, Finisher::Retry, Some(Plant::KeyOfAttempt)).doubled > 0);
}
