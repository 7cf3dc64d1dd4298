//! What threads do to each other at one place of the store, and what holds in every order.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use keyclaim::machine::{Command, OperatorAct, OperatorCommand};
use keyclaim::{Id, Key, Scope, Token};

use super::desk;
use super::health::Health;
use super::queue::{Job, Lane, Place, Queue, Reply};
use super::slot::{Taker, slot};
use super::sync::{AtomicUsize, Condvar, Mutex, MutexGuard, Ordering};
use super::wait::{Bell, Ringing, Waiters};
use crate::limits::OWNER_QUEUE_LEN_MAX;
use crate::scheduler::{JoinHandle, in_every_order, spawn};
use crate::{Error, ErrorKind};

/// More threads than loom can try all orders of.
const ASKERS: usize = if cfg!(feature = "loom") { 2 } else { 5 };

fn joined<T>(threads: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    threads.into_iter().map(|thread| thread.join().expect("no model's thread panics")).collect()
}

// ---- the reply slot

#[test]
fn slot_an_answer_that_is_given_is_waited_for() {
    in_every_order("slot_an_answer_that_is_given_is_waited_for", || {
        let (giver, taker) = slot();
        let giving = spawn(move || giver.give(7));
        assert_eq!(taker.wait(), Some(7));
        assert_eq!(joined([giving]), [None]);
    });
}

#[test]
fn slot_a_giver_that_goes_ends_the_wait() {
    in_every_order("slot_a_giver_that_goes_ends_the_wait", || {
        let (giver, taker) = slot::<u8>();
        let going = spawn(move || drop(giver));
        assert_eq!(taker.wait(), None);
        joined([going]);
    });
}

/// A win that nobody hears of is let go of by the writer; one that is heard of twice would be let go of under its
/// owner's hands.
#[test]
fn slot_an_answer_that_is_renounced_comes_back_to_one_side() {
    in_every_order("slot_an_answer_that_is_renounced_comes_back_to_one_side", || {
        let (giver, taker) = slot();
        let giving = spawn(move || giver.give(7));
        let mine = taker.renounce();
        let its = joined([giving]).remove(0);
        assert_eq!([mine, its].iter().flatten().count(), 1, "{mine:?} {its:?}");
    });
}

/// A task: woken, it is polled again.
#[derive(Default)]
struct Task {
    is_woken: Mutex<bool>,
    woken: Condvar,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        *self.is_woken.lock() = true;
        self.woken.notify_all();
    }
}

fn polled<F: Future + Unpin>(mut future: F) -> F::Output {
    let task = Arc::new(Task::default());
    let waker = Waker::from(task.clone());
    loop {
        if let Poll::Ready(output) = Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let mut is_woken = task.is_woken.lock();
        while !*is_woken {
            task.woken.wait(&mut is_woken);
        }
        *is_woken = false;
    }
}

#[test]
fn slot_a_task_is_woken() {
    in_every_order("slot_a_task_is_woken", || {
        let (giver, taker) = slot();
        let giving = spawn(move || giver.give(7));
        assert_eq!(polled(taker), Some(7));
        joined([giving]);
    });
}

// ---- queue and desk

fn job() -> (Job, Taker<Reply>) {
    numbered(1)
}

fn numbered(number: u64) -> (Job, Taker<Reply>) {
    let id = Id::new(Scope::new("s").expect("valid"), Key::new("k").expect("valid"));
    let command = Command::Operator(OperatorCommand { seen: Token(number), act: OperatorAct::Forget });
    let (giver, taker) = slot();
    (Job::new(id, command, giver), taker)
}

fn answer(group: Vec<Job>) {
    for job in group {
        let answer = Err(Error::new(ErrorKind::Fenced, "told"));
        job.giver.give(Reply { answer, untold: None, taken: None });
    }
}

fn told(taker: &Taker<Reply>) -> Option<ErrorKind> {
    taker.wait().and_then(|reply| reply.answer.err()).map(|error| error.kind())
}

/// What the writer has done.
#[derive(Default)]
struct Served(usize);

/// The writer's side of a store.
#[derive(Clone)]
struct Store {
    writer: Arc<Mutex<Served>>,
    queue: Arc<Queue>,
}

impl Store {
    fn new(claims_max: usize) -> Self {
        Self { writer: Arc::default(), queue: Arc::new(Queue::new(claims_max)) }
    }

    fn serve(mut writer: MutexGuard<'_, Served>, group: Vec<Job>) {
        writer.0 += group.len();
        drop(writer);
        answer(group);
    }

    fn writer(&self) -> JoinHandle<()> {
        let store = self.clone();
        spawn(move || desk::serve_groups(&store.writer, &store.queue, Self::serve))
    }

    /// Asks as a store does; what it was told, or why it was not served.
    fn ask(&self, lane: Lane) -> Result<Option<ErrorKind>, ErrorKind> {
        let (job, taker) = job();
        desk::bring(&self.writer, &self.queue, lane, || (job, ()), Self::serve)
            .map_err(|error| error.kind())?;
        Ok(told(&taker))
    }
}

#[test]
fn desk_everyone_who_asks_is_told_once() {
    in_every_order("desk_everyone_who_asks_is_told_once", || {
        let store = Store::new(10);
        let writer = store.writer();
        let asking: Vec<_> = (0..ASKERS)
            .map(|_| {
                let store = store.clone();
                spawn(move || store.ask(Lane::Claims))
            })
            .collect();
        assert!(joined(asking).iter().all(|told| *told == Ok(Some(ErrorKind::Fenced))));
        store.queue.close();
        joined([writer]);
        assert_eq!(store.writer.lock().0, ASKERS, "each is served once");
    });
}

/// Told an answer or that it is closed; nobody waits for ever, and nobody is served without being told.
#[test]
fn desk_whoever_asks_while_it_closes_is_told() {
    in_every_order("desk_whoever_asks_while_it_closes_is_told", || {
        let store = Store::new(10);
        let writer = store.writer();
        let asking: Vec<_> = (0..ASKERS)
            .map(|_| {
                let store = store.clone();
                spawn(move || store.ask(Lane::Claims))
            })
            .collect();
        store.queue.close();
        let told = joined(asking);
        joined([writer]);
        let answered = told.iter().filter(|told| **told == Ok(Some(ErrorKind::Fenced))).count();
        let refused = told.iter().filter(|told| **told == Err(ErrorKind::Closed)).count();
        assert_eq!((answered, answered + refused), (store.writer.lock().0, ASKERS), "{told:?}");
    });
}

/// One caller says two things, the second without waiting for the first: they are served in that order, although the
/// second one might find the writer free.
#[test]
fn desk_what_one_caller_says_is_served_in_its_order() {
    in_every_order("desk_what_one_caller_says_is_served_in_its_order", || {
        let store = Store::new(10);
        let served: Arc<Mutex<Vec<u64>>> = Arc::default();
        // Numbers are given out with the order held, as a claim object does it.
        let order: Arc<Mutex<u64>> = Arc::default();
        let say = |store: &Store, served: &Arc<Mutex<Vec<u64>>>, order: &Mutex<u64>| {
            let mut hears = None;
            let noted: Arc<Mutex<Vec<u64>>> = served.clone();
            let make = || {
                let mut order = order.lock();
                *order += 1;
                let (job, taker) = numbered(*order);
                hears = Some(taker);
                (job, order)
            };
            desk::bring(&store.writer, &store.queue, Lane::Store, make, |writer, group| {
                noted.lock().extend(group.iter().map(number_of));
                Store::serve(writer, group);
            })
            .expect("open");
            hears
        };
        let other = {
            let (store, served, order) = (store.clone(), served.clone(), order.clone());
            spawn(move || drop(say(&store, &served, &order)))
        };
        drop(say(&store, &served, &order));
        joined([other]);
        // What was queued is served behind it.
        store.queue.close();
        desk::serve_groups(&store.writer, &store.queue, |writer, group| {
            served.lock().extend(group.iter().map(number_of));
            Store::serve(writer, group);
        });
        assert_eq!(*served.lock(), [1, 2]);
    });
}

fn number_of(job: &Job) -> u64 {
    match &job.command {
        Command::Operator(command) => command.seen.0,
        other => panic!("{other:?}"),
    }
}

/// Whoever finds it full is told so; nobody else is.
#[test]
fn queue_takes_as_many_claims_as_it_says() {
    in_every_order("queue_takes_as_many_claims_as_it_says", || {
        let queue = Arc::new(Queue::new(1));
        let pushing: Vec<_> = (0..ASKERS)
            .map(|_| {
                let queue = queue.clone();
                spawn(move || queue.push(Lane::Claims, job().0).map_err(|error| error.kind()))
            })
            .collect();
        let pushed = joined(pushing);
        assert_eq!(pushed.iter().filter(|pushed| pushed.is_ok()).count(), 1, "{pushed:?}");
        assert!(pushed.iter().all(|pushed| pushed.is_ok() || *pushed == Err(ErrorKind::Busy)));
        assert_eq!(queue.take_group().len(), 1);
    });
}

/// Places are given back when a command is answered or gone, so that none is lost.
#[test]
fn queue_places_of_an_owner_come_back() {
    in_every_order("queue_places_of_an_owner_come_back", || {
        let taken = Arc::new(AtomicUsize::new(0));
        let store = Store::new(10);
        let writer = store.writer();
        let saying: Vec<_> = (0..ASKERS.min(OWNER_QUEUE_LEN_MAX))
            .map(|_| {
                let (store, taken) = (store.clone(), taken.clone());
                spawn(move || store.ask(Lane::Owner(Place::take(&taken).expect("there are some"))))
            })
            .collect();
        joined(saying).into_iter().for_each(|told| assert_eq!(told, Ok(Some(ErrorKind::Fenced))));
        store.queue.close();
        joined([writer]);
        assert_eq!(taken.load(Ordering::Acquire), 0);
    });
}

// ---- waiters

fn far() -> Instant {
    Instant::now() + Duration::from_secs(3_600)
}

/// Takes its place, looks, and waits if there is nothing: what is decided meanwhile rings.
#[test]
fn waiters_nobody_misses_what_is_decided() {
    in_every_order("waiters_nobody_misses_what_is_decided", || {
        let (waiters, is_decided) = (Arc::new(Waiters::new()), Arc::new(Mutex::new(false)));
        let waiting: Vec<_> = (0..ASKERS)
            .map(|_| {
                let (waiters, is_decided) = (waiters.clone(), is_decided.clone());
                spawn(move || {
                    let ticket = waiters.join(b"key".to_vec());
                    if !*is_decided.lock() {
                        ticket.bell().wait_until(far());
                        assert!(*is_decided.lock(), "woken for nothing");
                    }
                })
            })
            .collect();
        *is_decided.lock() = true;
        waiters.ring(b"key");
        joined(waiting);
        assert_eq!(waiters.len(), 0, "a place was not given up");
    });
}

/// One leaves while another one waits and a third rings: whoever stays is woken.
#[test]
fn waiters_who_leaves_takes_nobody_with_him() {
    in_every_order("waiters_who_leaves_takes_nobody_with_him", || {
        let waiters = Arc::new(Waiters::new());
        let leaving = {
            let waiters = waiters.clone();
            spawn(move || drop(waiters.join(b"key".to_vec())))
        };
        let ticket = waiters.join(b"key".to_vec());
        let ringing = {
            let waiters = waiters.clone();
            spawn(move || waiters.ring(b"key"))
        };
        ticket.bell().wait_until(far());
        drop(ticket);
        joined([leaving, ringing]);
        assert_eq!(waiters.len(), 0);
    });
}

#[test]
fn waiters_all_hear_of_the_end() {
    in_every_order("waiters_all_hear_of_the_end", || {
        let (waiters, health) = (Arc::new(Waiters::new()), Arc::new(Health::new()));
        // Of one key: the order of several in a map is another one each time, which loom cannot follow.
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                let (waiters, health) = (waiters.clone(), health.clone());
                spawn(move || {
                    let ticket = waiters.join(b"key".to_vec());
                    if health.check().is_ok() {
                        ticket.bell().wait_until(far());
                    }
                    health.check().expect_err("it was closed").kind()
                })
            })
            .collect();
        health.close();
        waiters.ring_all();
        assert_eq!(joined(waiting), [ErrorKind::Closed; 2]);
    });
}

#[test]
fn waiters_a_task_is_woken() {
    in_every_order("waiters_a_task_is_woken", || {
        let bell = Arc::new(Bell::default());
        let ringing = {
            let bell = bell.clone();
            spawn(move || bell.ring())
        };
        polled(Ringing(bell));
        joined([ringing]);
    });
}

// ---- poison and shutdown

/// A poisoned store is news once, and whoever asks behind it is told.
#[test]
fn health_is_poisoned_once() {
    in_every_order("health_is_poisoned_once", || {
        let health = Arc::new(Health::new());
        let poisoning: Vec<_> = (0..ASKERS)
            .map(|_| {
                let health = health.clone();
                spawn(move || {
                    let is_news = health.poison();
                    assert_eq!(health.check().expect_err("poisoned").kind(), ErrorKind::Poisoned);
                    is_news
                })
            })
            .collect();
        assert_eq!(joined(poisoning).into_iter().filter(|is_news| *is_news).count(), 1);
        assert_eq!(health.poisonings(), 1);
    });
}

/// Whatever fails and is healed meanwhile: closed is closed.
#[test]
fn health_closed_is_for_good() {
    in_every_order("health_closed_is_for_good", || {
        let health = Arc::new(Health::new());
        let failing = {
            let health = health.clone();
            spawn(move || {
                health.poison();
                health.heal();
            })
        };
        let closing = {
            let health = health.clone();
            spawn(move || {
                health.close();
                assert_eq!(health.check().expect_err("closed").kind(), ErrorKind::Closed);
            })
        };
        joined([failing, closing]);
        assert_eq!(health.check().expect_err("closed").kind(), ErrorKind::Closed);
    });
}

/// A group that fails poisons before any of it is told, and those behind it are not served.
#[test]
fn health_nobody_is_served_behind_a_failure() {
    in_every_order("health_nobody_is_served_behind_a_failure", || {
        let (store, health) = (Store::new(10), Arc::new(Health::new()));
        let serve = |health: &Arc<Health>| {
            let health = health.clone();
            move |mut writer: MutexGuard<'_, Served>, group: Vec<Job>| {
                // The first commit fails.
                if health.check().is_ok() {
                    writer.0 += 1;
                    health.poison();
                }
                drop(writer);
                answer(group);
            }
        };
        let other = {
            let (store, serve) = (store.clone(), serve(&health));
            spawn(move || desk::bring(&store.writer, &store.queue, Lane::Store, || (job().0, ()), serve))
        };
        desk::bring(&store.writer, &store.queue, Lane::Store, || (job().0, ()), serve(&health))
            .expect("open");
        joined([other]).remove(0).expect("open");
        store.queue.close();
        desk::serve_groups(&store.writer, &store.queue, serve(&health));
        assert_eq!(store.writer.lock().0, 1, "it committed behind a failed commit");
        assert!(health.is_poisoned());
    });
}
