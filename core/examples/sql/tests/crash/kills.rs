//! The worker is killed with SIGKILL: at every step boundary, and at random moments.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::thread;
use std::time::Duration;
use std::{env, iter};

use keyclaim_example_sql::order::InDoubt;

use crate::watched::Plant;
use crate::worker::{Job, Worker, name};
use crate::world::{KINDS, Kind, World};

fn answers(said: &[(u32, String)]) -> Vec<(u32, String)> {
    let answer = |(request, what): &(u32, String)| Some((*request, what.strip_prefix("answer ")?.to_owned()));
    said.iter().filter_map(answer).collect()
}

/// Killed there, and what the next worker then answers.
fn killed_at(world: &World, job: &Job, moments: &[&'static str]) -> Vec<(u32, String)> {
    for moment in moments {
        let mut worker = Worker::start(world, &job.clone().stop_at(moment));
        worker.wait_for(moment);
        worker.kill();
    }
    answers(&Worker::start(world, job).end())
}

#[test]
fn a_process_killed_at_any_step_boundary_has_placed_its_order_once() {
    let boundaries: [(InDoubt, &[&str]); 8] = [
        (InDoubt::Ask, &["entering"]),
        (InDoubt::Ask, &["inside"]),
        (InDoubt::Ask, &["committed"]),
        (InDoubt::Ask, &["committed", "asked"]),
        (InDoubt::Ask, &["inside", "asking", "asked", "inside", "committed", "asking", "asked"]),
        (InDoubt::Repeat, &["entering"]),
        (InDoubt::Repeat, &["inside", "committed"]),
        (InDoubt::Repeat, &["committed", "committed"]),
    ];
    for kind in KINDS {
        for (in_doubt, moments) in boundaries {
            let mut world = World::new(kind);
            let job = Job::new(in_doubt);
            let told = killed_at(&world, &job, moments);
            let numbers = world.numbers(&name(0));
            assert_eq!(numbers.len(), 1, "{kind:?} {in_doubt:?} {moments:?}");
            assert_eq!(told, [(0, numbers[0].clone())], "{kind:?} {in_doubt:?} {moments:?}");
            assert_eq!(answers(&Worker::start(&world, &job).end()), told, "it is replayed");
        }
    }
}

/// The plant: without the unique key the kill between the two commits doubles the order.
#[test]
fn without_the_unique_key_a_kill_between_the_commits_places_an_order_twice() {
    for kind in KINDS {
        let mut world = World::new(kind);
        let job = Job { plant: Plant::NoKey, ..Job::new(InDoubt::Repeat) };
        killed_at(&world, &job, &["committed"]);
        assert_eq!(world.numbers(&name(0)).len(), 2, "{kind:?}: this test cannot find a double");
    }
}

#[test]
fn postgres_killed_at_60_random_moments_places_every_order_once() {
    random_kills(Kind::Postgres, "postgres_killed");
}

#[test]
fn sqlite_killed_at_60_random_moments_places_every_order_once() {
    random_kills(Kind::Sqlite, "sqlite_killed");
}

fn random_kills(kind: Kind, test: &str) {
    const KILLS: usize = 60;
    let seed = env::var("KEYCLAIM_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| RandomState::new().hash_one(test));
    println!("replay: KEYCLAIM_SEED={seed} make step-sql");
    let mut world = World::new(kind);
    let job = |requests| Job { requests, limit: Duration::from_millis(30), in_doubt: None, ..Job::default() };
    let mut told: BTreeMap<u32, String> = BTreeMap::new();
    let mut died_at: BTreeMap<String, u32> = BTreeMap::new();
    for random in randoms(seed).take(KILLS) {
        // The first request without an answer: the one that the last worker died in.
        let first = told.keys().next_back().map_or(0, |last| last + 1);
        let mut worker = Worker::start(&world, &job(first..u32::MAX));
        // A request has five moments that it tells, so this kills in one of the first three.
        let mut said: Vec<_> =
            (0..=random % 13).map(|_| worker.said().expect("it goes on for ever")).collect();
        thread::sleep(Duration::from_micros((random >> 8) % 4_000));
        said.extend(worker.kill());
        let moment = said.last().map(|(_, what)| what.split(' ').next().unwrap_or_default().to_owned());
        *died_at.entry(moment.expect("it said something")).or_default() += 1;
        told.extend(answers(&said));
    }
    println!("{kind:?}: {} orders, killed after {died_at:?}", told.len());
    assert!(died_at.contains_key("committed"), "seed {seed}: no kill hit the gap: {died_at:?}");
    let last = told.keys().next_back().map_or(0, |last| last + 1);
    let final_answers: BTreeMap<_, _> =
        answers(&Worker::start(&world, &job(0..last + 1)).end()).into_iter().collect();
    for (request, number) in &final_answers {
        assert_eq!(world.numbers(&name(*request)), [number.as_str()], "seed {seed}: request {request}");
        assert!(told.get(request).is_none_or(|before| before == number), "seed {seed}: request {request}");
    }
    assert_eq!(
        (final_answers.len(), world.order_count()),
        (last as usize + 1, last as usize + 1),
        "seed {seed}"
    );
}

fn randoms(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed;
    iter::repeat_with(move || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}
