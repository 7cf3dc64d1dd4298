//! Killed at every boundary, and the next attempt at every boundary again.

use std::collections::BTreeMap;

use keyclaim_tests::gate::{Boundary, Doubt, Plant};

use crate::scene::Scene;
use crate::verdict::{Verdict, must_be_held};

/// Where an order is stopped the first time, and where the second time if it comes by again.
type Stops = (Boundary, Boundary);

/// An order for each pair of boundaries. One SIGKILL takes all of them at their first, a second one all
/// that came by their second; then they are finished.
fn killed_at_every_pair(doubt: Doubt, plant: Option<Plant>) -> (Scene, Verdict) {
    let pairs = Boundary::ALL.into_iter().flat_map(|first| Boundary::ALL.map(|second| (first, second)));
    let stops: BTreeMap<String, Stops> =
        pairs.map(|(first, second)| (format!("{first}_{second}"), (first, second))).collect();
    let mut scene = Scene::new(doubt, Scene::manners(doubt, plant), 0);
    scene.settings.plant = plant;
    let patience = scene.settings.patience;
    // A worker that waits to be killed does not give up what its provider has halted.
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
    scene.settings.patience = patience;
    scene.start();
    scene.until_ready();
    let mut verdict = scene.finish();
    for (key, (first, second)) in &stops {
        let (holds, must) = (scene.orders[key].holds, must_be_held(*first, *second));
        if plant.is_none() && (holds > 0) != (doubt == Doubt::Hold && must) {
            verdict.wrong.push(format!("{key}: held {holds} times"));
        }
    }
    (scene, verdict)
}

#[test]
fn killed_at_any_two_boundaries_it_is_repeated_at_a_provider_that_collapses_repeats() {
    killed_at_every_pair(Doubt::Repeat, None).1.is_clean();
}

#[test]
fn killed_at_any_two_boundaries_it_is_asked_about_and_not_repeated() {
    killed_at_every_pair(Doubt::Reconcile, None).1.is_clean();
}

#[test]
fn killed_at_any_two_boundaries_it_is_held_if_nobody_can_know() {
    killed_at_every_pair(Doubt::Hold, None).1.is_clean();
}

#[test]
fn the_gate_sees_a_call_before_its_intent() {
    assert!(killed_at_every_pair(Doubt::Hold, Some(Plant::CallBeforeIntent)).1.doubled > 0);
}

#[test]
fn the_gate_sees_a_result_that_is_not_recorded() {
    assert!(killed_at_every_pair(Doubt::Hold, Some(Plant::ForgetResult)).1.doubled > 0);
}

#[test]
fn the_gate_sees_a_step_in_doubt_that_is_repeated() {
    assert!(killed_at_every_pair(Doubt::Hold, Some(Plant::RepeatInDoubt)).1.doubled > 0);
}

#[test]
fn the_gate_sees_a_downstream_key_that_changes_with_the_attempt() {
    assert!(killed_at_every_pair(Doubt::Repeat, Some(Plant::KeyOfAttempt)).1.doubled > 0);
}
