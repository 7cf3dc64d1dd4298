//! A call that outlasts its limit, and is booked or refused after another attempt has taken over.

use std::thread::scope;
use std::time::{Duration, Instant};

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
    if fate == Fate::Overruns {
        scene.settings.renews = false;
        scene.settings.patience = Duration::from_mins(1);
    }
    scene.start();
    scene.until_ready();
    scene.halt([(KEY, Boundary::Waiting(Step::Charge))]);
    scene.send(KEY, None);
    assert!(scene.until(|scene| scene.orders[KEY].is_there), "the call does not arrive");
    let sent = Instant::now();
    match fate {
        Fate::GivesUp => assert!(scene.until(|scene| scene.orders[KEY].out == 0), "it does not give up"),
        Fate::Killed => {
            scene.kill();
            scene.start();
            scene.until_ready();
        }
        Fate::Overruns => {}
    }
    let until_ended = |scene: &mut Scene| {
        scene.send(KEY, None);
        assert!(scene.until(|scene| scene.orders[KEY].is_settled()), "{:?}", scene.failures);
    };
    match lands {
        Lands::Settling => {
            scene.pass(sent + scene.settings.limit + scene.settings.settle / 6);
            scene.let_go();
            until_ended(&mut scene);
        }
        Lands::Last => {
            until_ended(&mut scene);
            scene.let_go();
        }
    }
    assert!(scene.until(|scene| scene.landed == 1), "the late call does not land");
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
                assert!(order.attempt > 1, "nobody took over: {fate:?}, {doubt:?}");
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
