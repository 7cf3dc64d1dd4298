//! An attempt is overtaken, and its transaction comes late: after the question about it was answered.

use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use keyclaim::clock::ManualClock;
use keyclaim::fingerprint::{Request, Scheme};
use keyclaim::machine::{Decision, Outcome, Response, StepResult};
use keyclaim::{
    Abandoned, AfterFailure, Call, Claim, ClaimRequest, EffectError, Effected, ErrorKind, Options, Policy,
    Store, Token, downstream_key,
};
use keyclaim_example_sql::Failure;
use keyclaim_example_sql::order::{InDoubt, Orders};

use crate::watched::{Plant, Watched};
use crate::worker::{Job, Worker, name};
use crate::world::{KINDS, Kind, World, order};

const LEASE: Duration = Duration::from_secs(10);
/// The longest that a database waits; store time is moved by hand.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

pub(crate) type Told = Result<Effected, EffectError<Failure>>;

/// One process with two attempts: the first one is stopped at a moment of its transaction.
pub(crate) struct Race {
    pub(crate) world: World,
    store: Store,
    clock: ManualClock,
    plant: Plant,
}

impl Race {
    pub(crate) fn new(kind: Kind, plant: Plant) -> Self {
        let clock = ManualClock::new(1_700_000_000_000);
        let policy = Policy::new(Abandoned::Rerun).lease(LEASE).expect("valid");
        let options =
            Options::with_policy(policy).clock(std::sync::Arc::new(clock.clone())).renew_leases_max(0);
        let store = Store::in_memory(options).expect("memory");
        Self { world: World::new(kind), store, clock, plant }
    }

    pub(crate) fn claim(&self) -> Claim {
        let id = order("request").id;
        let request = Request { method: b"POST", target: b"/orders", ..Request::default() };
        match self.store.claim(&ClaimRequest::new(id, Scheme::Raw, request)).expect("healthy") {
            Decision::Won(claim) => claim,
            told => panic!("expected a win, and was told {}", told.name()),
        }
    }

    pub(crate) fn overtake(&self) -> Claim {
        self.clock.advance(u64::try_from(LIMIT.as_millis()).expect("small"));
        self.claim()
    }

    fn orders<F: FnMut(&str)>(&mut self, reached: F) -> Watched<F> {
        Watched { db: self.world.db(), plant: self.plant, reached }
    }

    /// Runs the step of a new claim in a thread, and returns when it has come to this moment.
    fn stopped_at(&mut self, stop: &'static str) -> Stopped {
        let claim = self.claim();
        let (go, waits) = channel();
        let (tells, reached) = channel();
        let orders = self.orders(move |moment: &str| {
            if moment == stop {
                tells.send(()).expect("somebody waits");
                let _ = waits.recv();
            }
        });
        let thread = thread::spawn(move || run(&claim, orders, LIMIT));
        reached.recv_timeout(LIMIT).expect("it comes there");
        Stopped { go, thread }
    }

    pub(crate) fn orders_placed(&mut self) -> usize {
        self.world.order_count()
    }
}

struct Stopped {
    go: Sender<()>,
    thread: thread::JoinHandle<Told>,
}

impl Stopped {
    fn go_on(self) -> Told {
        self.go.send(()).expect("it waits");
        self.thread.join().expect("no panic")
    }
}

fn run<F: FnMut(&str)>(claim: &Claim, orders: Watched<F>, limit: Duration) -> Told {
    let token = claim.token();
    let orders = std::cell::RefCell::new(orders);
    claim
        .effect("order", limit)
        .reconcile_in_doubt(Duration::ZERO, |call: Call| orders.borrow_mut().ask(&call, token))
        .run_or_ask(|call: Call| orders.borrow_mut().place(&call, token, &order("request")))
}

fn not_sent(told: &Told) {
    assert!(matches!(told, Err(EffectError::NotSent)), "{told:?}");
}

/// The overtaken attempt was refused by the database.
fn refused(told: &Told) {
    assert!(matches!(told, Err(EffectError::InDoubt(Failure::Overtaken { .. }))), "{told:?}");
}

/// The overtaken attempt was told what had happened, and the store then refused to record it.
fn fenced(told: Told) {
    let Err(EffectError::Store(error)) = told else { panic!("{told:?}") };
    assert_eq!(error.kind(), ErrorKind::Fenced);
}

/// What a person sees of a request: the downstream key of its step, and the token.
fn seen(store: &Store, request: &str) -> (String, Token) {
    let id = order(request).id;
    let seen = store.inspect(&id).expect("healthy").expect("there");
    (downstream_key(store.id(), &id, seen.generation, "order"), seen.token)
}

/// The next attempt asks, hears that nothing happened, and places the order; then the first one goes on.
fn places_after_takeover(race: &mut Race) -> (Told, Told) {
    let first = race.stopped_at("entering");
    let claim = race.overtake();
    not_sent(&run(&claim, race.orders(|_| ()), LIMIT));
    let second = run(&claim, race.orders(|_| ()), LIMIT);
    claim.complete(&Outcome::success(Response::new(201, "1"))).expect("the owner");
    (first.go_on(), second)
}

/// The next attempt asks, hears that nothing happened, and answers that nothing will; then the first goes on.
fn gives_up_after_takeover(race: &mut Race) -> Told {
    let first = race.stopped_at("entering");
    let claim = race.overtake();
    not_sent(&run(&claim, race.orders(|_| ()), LIMIT));
    let sold_out = Outcome::failure(Response::new(409, "sold out"), AfterFailure::Replay);
    claim.complete(&sold_out).expect("the owner");
    first.go_on()
}

/// A person asks, hears that nothing happened, and makes the key new; it is run again, and then the first goes on.
fn forgets_after_asking(race: &mut Race) -> Told {
    let first = race.stopped_at("entering");
    let (key, seen) = seen(&race.store, "request");
    if race.plant == Plant::Sound {
        let told = race.world.db().close(&key, seen, LIMIT);
        assert_eq!(told.expect("healthy"), StepResult::NotSent);
    } else {
        assert_eq!(race.orders_placed(), 0, "it is looked up");
    }
    race.store.forget(&order("request").id, seen).expect("as seen");
    let next = race.claim();
    assert!(matches!(run(&next, race.orders(|_| ()), LIMIT), Ok(Effected::Done(_))));
    next.complete(&Outcome::success(Response::new(201, "1"))).expect("the owner");
    first.go_on()
}

#[test]
fn a_transaction_that_comes_after_the_next_attempts_own_places_nothing() {
    for kind in KINDS {
        let mut race = Race::new(kind, Plant::Sound);
        let (first, second) = places_after_takeover(&mut race);
        assert_eq!(second.expect("placed"), Effected::Done(b"1".to_vec()));
        fenced(first);
        assert_eq!(race.orders_placed(), 1, "{kind:?}");
    }
}

#[test]
fn a_transaction_that_comes_after_it_was_said_not_to_have_happened_is_refused() {
    for kind in KINDS {
        let mut race = Race::new(kind, Plant::Sound);
        refused(&gives_up_after_takeover(&mut race));
        assert_eq!(race.orders_placed(), 0, "{kind:?}: answered `sold out`");
    }
}

#[test]
fn a_transaction_that_comes_after_a_person_made_the_key_new_is_refused() {
    for kind in KINDS {
        let mut race = Race::new(kind, Plant::Sound);
        refused(&forgets_after_asking(&mut race));
        assert_eq!(race.orders_placed(), 1, "{kind:?}");
    }
}

/// The plants: what the three tests above find when a part of the protection is left out.
#[test]
fn without_key_or_token_a_late_transaction_is_found_by_these_tests() {
    for kind in KINDS {
        let mut race = Race::new(kind, Plant::NoKey);
        let _late = places_after_takeover(&mut race);
        assert_eq!(race.orders_placed(), 2, "{kind:?}: doubled");
        let mut race = Race::new(kind, Plant::NoToken);
        let _late = gives_up_after_takeover(&mut race);
        assert_eq!(race.orders_placed(), 1, "{kind:?}: ordered, and answered `sold out`");
        let mut race = Race::new(kind, Plant::NoToken);
        let _late = forgets_after_asking(&mut race);
        assert_eq!(race.orders_placed(), 2, "{kind:?}: doubled");
        // The key alone does keep one intent from being done twice.
        let mut race = Race::new(kind, Plant::NoToken);
        let _late = places_after_takeover(&mut race);
        assert_eq!(race.orders_placed(), 1, "{kind:?}");
    }
}

#[test]
fn a_transaction_under_way_is_waited_for_and_its_result_told() {
    for (kind, level) in [(Kind::Postgres, "serializable"), (Kind::Postgres, ""), (Kind::Sqlite, "")] {
        let mut race = Race::new(kind, Plant::Sound);
        // Whatever the database's own default, the statements name the level that they need.
        if !level.is_empty() {
            let option = format!("options='-c default_transaction_isolation={level} ");
            race.world.place = race.world.place.replace("options='", &option);
            assert_eq!(race.world.db().texts("SHOW transaction_isolation"), [level]);
        }
        let first = race.stopped_at("inside");
        let claim = race.overtake();
        let (tells, asking) = channel();
        let orders = race.orders(move |moment: &str| {
            if moment == "asking" {
                tells.send(()).expect("somebody waits");
            }
        });
        let second = thread::spawn(move || (run(&claim, orders, LIMIT), claim));
        asking.recv_timeout(LIMIT).expect("it asks");
        thread::sleep(Duration::from_millis(50));
        assert!(!second.is_finished(), "{kind:?}: it answered while a transaction was under way");
        fenced(first.go_on());
        let (told, _claim) = second.join().expect("no panic");
        assert_eq!(told.expect("known"), Effected::Done(b"1".to_vec()));
        assert_eq!(race.orders_placed(), 1, "{kind:?}");
    }
}

#[test]
fn a_transaction_that_does_not_end_is_no_answer_and_nothing_is_repeated() {
    for kind in KINDS {
        let mut race = Race::new(kind, Plant::Sound);
        let first = race.stopped_at("inside");
        let claim = race.overtake();
        let start = Instant::now();
        let (key, token) = seen(&race.store, "request");
        let told = race.world.db().close(&key, token, Duration::from_millis(100));
        assert!(matches!(told, Err(Failure::Sql(_))), "{told:?}");
        assert!(start.elapsed() < LIMIT, "it kept to its limit");
        fenced(first.go_on());
        let told = run(&claim, race.orders(|_| ()), LIMIT);
        assert_eq!(told.expect("known"), Effected::Done(b"1".to_vec()));
        assert_eq!(race.orders_placed(), 1, "{kind:?}");
    }
}

#[test]
fn a_connection_cut_before_the_commit_leaves_nothing_behind() {
    let mut race = Race::new(Kind::Postgres, Plant::Sound);
    let claim = race.claim();
    let mut other = race.world.db();
    let cut = "SELECT CAST(pg_terminate_backend(pid) AS TEXT) FROM pg_stat_activity \
        WHERE application_name = current_setting('application_name') AND pid <> pg_backend_pid()";
    let orders = race.orders(|moment: &str| {
        if moment == "inside" {
            assert_eq!(other.texts(cut), ["true"]);
        }
    });
    let told = run(&claim, orders, LIMIT);
    assert!(matches!(told, Err(EffectError::InDoubt(Failure::Sql(_)))), "{told:?}");
    race.clock.advance(u64::try_from(LIMIT.as_millis()).expect("small"));
    not_sent(&run(&claim, race.orders(|_| ()), LIMIT));
    assert_eq!(race.orders_placed(), 0);
    assert!(matches!(run(&claim, race.orders(|_| ()), LIMIT), Ok(Effected::Done(_))));
    assert_eq!(race.orders_placed(), 1);
}

/// What a killed client had sent goes on in the server: here a COMMIT that waits for a lock. A plain SELECT
/// sees nothing of it; the question waits for it.
#[test]
fn a_commit_that_outlives_its_killed_client_is_waited_for() {
    let mut world = World::new(Kind::Postgres);
    world.db().batch(
        "CREATE FUNCTION stall() RETURNS trigger LANGUAGE plpgsql AS \
            'BEGIN PERFORM pg_advisory_xact_lock(hashtext(current_schema())); RETURN NULL; END'; \
         CREATE CONSTRAINT TRIGGER stall AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED \
            FOR EACH ROW EXECUTE FUNCTION stall()",
    );
    let mut lock = world.db();
    lock.batch("SELECT pg_advisory_lock(hashtext(current_schema()))");
    let job = Job { limit: Duration::from_secs(3), ..Job::new(InDoubt::Ask) };
    let mut worker = Worker::start(&world, &job);
    worker.wait_for("inside");
    let waiting = "SELECT CAST(pid AS TEXT) FROM pg_stat_activity WHERE wait_event = 'advisory' \
        AND application_name = current_setting('application_name') AND query = 'COMMIT'";
    let start = Instant::now();
    while lock.texts(waiting).is_empty() {
        assert!(start.elapsed() < job.limit, "it does not come to its COMMIT");
        thread::sleep(Duration::from_millis(5));
    }
    worker.kill();
    assert_eq!(lock.texts(waiting).len(), 1, "the server goes on without its client");
    assert_eq!(world.order_count(), 0, "a SELECT sees nothing");
    let rows = lock.texts("SELECT downstream_key FROM keyclaim_effects");
    assert!(rows.is_empty(), "a SELECT sees nothing: {rows:?}");
    let store = Store::open(world.store(), Options::new(Abandoned::Rerun)).expect("its user is dead");
    let (key, token) = seen(&store, &name(0));
    store.close().expect("healthy");
    let told = world.db().close(&key, token, Duration::from_millis(100));
    assert!(matches!(told, Err(Failure::Sql(_))), "it may still commit: {told:?}");
    lock.batch("SELECT pg_advisory_unlock(hashtext(current_schema()))");
    let told = world.db().close(&key, token, job.limit).expect("healthy");
    assert_eq!(told, StepResult::Done(b"1"[..].into()));

    let said = Worker::start(&world, &job).end();
    assert!(said.contains(&(0, "asked".into())), "{said:?}");
    assert!(said.contains(&(0, "answer 1".into())), "{said:?}");
    assert_eq!(world.order_count(), 1);
}

/// A claim held for a person is no way around the table either.
#[test]
fn a_person_is_told_what_happened_before_anything_is_made_new() {
    for kind in KINDS {
        let mut race = Race::new(kind, Plant::Sound);
        let first = race.stopped_at("committed");
        let (key, token) = seen(&race.store, "request");
        let told = race.world.db().close(&key, token, LIMIT).expect("healthy");
        assert_eq!(told, StepResult::Done(b"1"[..].into()), "{kind:?}");
        assert!(first.go_on().is_ok());
    }
}
