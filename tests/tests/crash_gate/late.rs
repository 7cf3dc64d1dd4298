//! A call that outlasts its limit, and is booked or refused after another attempt has taken over.

use std::thread::scope;
use std::time::Duration;

use keyclaim_tests::gate::{Boundary, Doubt, Manners, Plant, Step};

use crate::scene::Scene;
use crate::verdict::Verdict;

/// What becomes of the attempt whose call is late.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    /// It gives up at the limit.
    GivesUp,
    /// It is killed while it waits.
    Killed,
    /// Against the rules it goes on waiting, and is told late.
    Overruns,
}

/// When the late call lands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Lands {
    /// Past the limit, and before the settling time is over.
    Settling,
    /// When the next attempt has done all it can.
    Last,
}

const KEY: &str = "late";

/// The charge of one order is late; another attempt goes on in its place.
fn late(fate: Fate, doubt: Doubt, fences: bool, lands: Lands, plant: Option<Plant>) -> (Scene, Verdict) {
    let manners = Manners { fences, ..Scene::manners(doubt, plant) };
    let mut scene = Scene::new(doubt, manners, 0);
    scene.settings.plant = plant;
    // Time enough for the call to land within it.
    scene.settings.settle = Duration::from_secs(1);
    if fate == Fate::Overruns {
        scene.settings.renews = false;
        scene.settings.patience = Duration::from_mins(1);
    }
    scene.start();
    scene.until_ready();
    scene.halt([(KEY, Boundary::Waiting(Step::Charge))]);
    scene.send(KEY, None);
    assert!(scene.until(|scene| scene.afloat == 1), "the call does not arrive");
    match fate {
        Fate::GivesUp => assert!(scene.until(|scene| scene.orders[KEY].out == 0), "it does not give up"),
        Fate::Killed => {
            scene.kill();
            scene.start();
            scene.until_ready();
        }
        Fate::Overruns => {}
    }
    scene.send(KEY, None);
    // While it settles the next attempt waits, so there is a second to let the late call go.
    let is_overtaken = |scene: &Scene| scene.orders[KEY].attempt > 1 || scene.orders[KEY].is_settled();
    let is_settled = |scene: &Scene| scene.orders[KEY].is_settled();
    let is_time = match lands {
        Lands::Settling => scene.until(is_overtaken),
        Lands::Last => scene.until(is_settled),
    };
    assert!(is_time, "nobody goes on: {:?}", scene.failures);
    scene.let_go();
    let verdict = scene.finish();
    (scene, verdict)
}

/// Every way in which nobody is charged twice, each with a provider that can do just this.
fn counts_once(fate: Fate) {
    let ways = [
        (Doubt::Repeat, false, Lands::Last),
        (Doubt::Reconcile, false, Lands::Settling),
        (Doubt::Reconcile, true, Lands::Last),
        (Doubt::Hold, false, Lands::Last),
    ];
    scope(|scope| {
        for (doubt, fences, lands) in ways {
            scope.spawn(move || {
                let (scene, verdict) = late(fate, doubt, fences, lands, None);
                verdict.is_clean();
                let order = &scene.orders[KEY];
                assert_eq!(order.holds > 0, doubt == Doubt::Hold, "{fate:?}, {doubt:?}");
                assert!(order.attempt > 1 || doubt == Doubt::Hold, "nobody took over: {fate:?}, {doubt:?}");
                // Whoever finds its order held says so instead.
                if fate == Fate::Overruns && doubt != Doubt::Hold {
                    assert!(!scene.failures.is_empty(), "whoever was overtaken was not told: {doubt:?}");
                }
            });
        }
    });
}

#[test]
fn a_call_that_was_given_up_and_lands_late_counts_once() {
    counts_once(Fate::GivesUp);
}

#[test]
fn a_call_of_a_dead_worker_that_lands_late_counts_once() {
    counts_once(Fate::Killed);
}

#[test]
fn a_call_that_overruns_its_limit_and_is_told_late_counts_once() {
    counts_once(Fate::Overruns);
}

#[test]
fn the_gate_sees_a_call_that_is_asked_about_before_it_has_settled() {
    let plant = Some(Plant::NoSettling);
    let (_, verdict) = late(Fate::Killed, Doubt::Reconcile, false, Lands::Last, plant);
    assert_eq!(verdict.doubled, 1, "{:?}", verdict.wrong);
}
