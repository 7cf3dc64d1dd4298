//! Killed at random moments: while it opens, commits, calls, or does nothing.

use std::time::{Duration, Instant};

use keyclaim_tests::gate::{Doubt, Manners, Plant};
use keyclaim_tests::seeded::{Draws, number, seed};

use crate::scene::Scene;
use crate::verdict::Verdict;

/// Kills for each way of dealing with doubt: 201 in all.
const KILLS: u64 = 67;
/// The longest life of a worker in milliseconds, from its start (arbitrary; an order takes some tens).
const LIFE_MS_MAX: u64 = 250;

/// Kills one worker after the other, each at a random moment of its life, while old orders are retried and
/// new ones come, some of them sent twice at once. Where the provider collapses nothing the completer goes
/// after them too.
fn killed_at_random(name: &str, doubt: Doubt, plant: Option<Plant>) -> Verdict {
    let seed = seed(name);
    // A mistake made all the time needs few kills to be seen.
    let kills = number("KEYCLAIM_KILLS").unwrap_or(if plant.is_some() { KILLS / 4 } else { KILLS });
    let line = format!(
        "KEYCLAIM_SEED={seed} KEYCLAIM_KILLS={kills} cargo test -p keyclaim-tests --test crash_gate {name}"
    );
    println!("{line}");
    let mut draws = Draws::new(seed);
    let mut scene = Scene::new(doubt, Manners { dawdles_ms: 15, ..Scene::manners(doubt, plant) }, seed);
    scene.settings.plant = plant;
    scene.settings.completes = doubt != Doubt::Repeat;
    for life in 0..kills {
        scene.start();
        let end = Instant::now() + Duration::from_millis(draws.below(LIFE_MS_MAX));
        for key in scene.keys(|order| !order.is_settled()) {
            scene.send(&key, None);
        }
        for fresh in 0..draws.below(4) {
            let key = format!("{life}-{fresh}");
            for _ in 0..=draws.below(2) {
                scene.send(&key, None);
            }
        }
        scene.pass(end);
        scene.kill();
    }
    scene.start();
    scene.until_ready();
    let verdict = scene.finish();
    let count = |wanted: fn(&crate::verdict::Order) -> bool| scene.keys(wanted).len();
    let (resumed, held) = (count(|order| order.attempt > 1), count(|order| order.holds > 0));
    println!(
        "{kills} kills, {} orders, {resumed} resumed, {held} held, {} doubled",
        scene.orders.len(),
        verdict.doubled
    );
    // Else the kills came where nothing was to be hit.
    assert!(kills < KILLS || resumed > 0, "no order was ever under way when the worker was killed\n{line}");
    verdict
}

#[test]
fn killed_at_random_it_is_repeated_at_a_provider_that_collapses_repeats() {
    killed_at_random(
        "killed_at_random_it_is_repeated_at_a_provider_that_collapses_repeats",
        Doubt::Repeat,
        None,
    )
    .is_clean();
}

#[test]
fn killed_at_random_it_is_asked_about_and_not_repeated() {
    killed_at_random("killed_at_random_it_is_asked_about_and_not_repeated", Doubt::Reconcile, None)
        .is_clean();
}

#[test]
fn killed_at_random_it_is_held_if_nobody_can_know() {
    killed_at_random("killed_at_random_it_is_held_if_nobody_can_know", Doubt::Hold, None).is_clean();
}

#[test]
fn the_gate_sees_at_random_moments_that_orders_are_run_unclaimed() {
    let name = "the_gate_sees_at_random_moments_that_orders_are_run_unclaimed";
    assert!(killed_at_random(name, Doubt::Hold, Some(Plant::RunUnclaimed)).doubled > 0);
}
