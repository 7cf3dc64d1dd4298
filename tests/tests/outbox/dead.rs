//! Dead letters: what they stop, how they are found, and what a person does about them.

use keyclaim::outbox::{DeadLetter, Delivery};
use keyclaim::store::DeadLetterPlace;
use keyclaim::{ErrorKind, Millis, Token};

use crate::faulty::*;
use crate::kit::*;

impl World {
    fn dead_letters(&self) -> Vec<DeadLetter> {
        let page = self.store.dead_letters(None, 1_000).expect("healthy");
        assert!(page.next.is_none() && page.damaged == 0);
        page.letters
    }

    /// One pass that refuses this payload and publishes the others.
    fn pass_refusing(&self, refused: &str) -> Vec<String> {
        let published = Published::default();
        self.pass(|delivery: &Delivery| {
            if payload(delivery) == refused {
                return refused_for_good();
            }
            published.note(delivery);
            Ok(())
        });
        published.payloads()
    }
}

#[test]
fn a_dead_letter_stops_its_own_chain_and_no_other() {
    let world = in_memory();
    world.emit(
        "a",
        [ordered("k", "dies"), ordered("k", "behind it"), ordered("j", "other key"), free("free")],
    );
    world.emit("b", [ordered("k", "other scope"), ordered("k", "behind that")]);
    let mut published = world.pass_refusing("dies");
    published.sort_unstable();
    assert_eq!(published, ["behind that", "free", "other key", "other scope"]);
    // Also what is committed later, and at any later time.
    world.emit("a", [ordered("k", "later"), ordered("j", "goes on")]);
    world.clock.advance(1_000_000);
    assert_eq!(world.drain(), ["goes on"]);
    assert_eq!(world.events(), 3);
}

#[test]
fn an_event_that_fails_too_often_is_a_dead_letter_with_its_last_reason() {
    let world = in_memory();
    world.emit("a", [ordered("k", "fails"), ordered("k", "behind it")]);
    let mut done = world.pass(|_| again());
    assert_eq!((done.begun, done.failed, done.dead), (1, 1, 0));
    for _ in 0..2 {
        world.clock.advance(10_000);
        done = world.pass(|_| again());
    }
    assert_eq!((done.begun, done.failed, done.dead), (1, 0, 1));
    let [letter] = &world.dead_letters()[..] else { panic!("there is one") };
    assert_eq!((letter.attempts, letter.failure.as_deref()), (3, Some("no route")));
    assert_eq!(letter.event.payload(), b"fails");
    assert_eq!(letter.since_ms, world.store.now_ms());
    world.clock.advance(1_000_000);
    assert_eq!(world.pass(|_| Ok(())).begun, 0);
}

#[test]
fn a_requeued_letter_is_delivered_anew_with_its_id_and_then_what_is_behind_it() {
    let world = in_memory();
    world.emit("a", [ordered("k", "dies"), ordered("k", "behind it")]);
    world.pass_refusing("dies");
    let letter = world.dead_letters().remove(0);
    world.store.requeue_event(letter.id, letter.token).expect("it is that letter");
    assert!(world.dead_letters().is_empty());
    let published = Published::default();
    world.pass(published.handler());
    assert_eq!(published.payloads(), ["dies", "behind it"]);
    assert_eq!((published.all()[0].id, published.all()[0].attempt), (letter.id, 1));
}

#[test]
fn a_dropped_letter_is_never_published_and_lets_its_chain_go_on() {
    let world = in_memory();
    world.emit("a", [ordered("k", "dies"), ordered("k", "behind it")]);
    world.pass_refusing("dies");
    let letter = world.dead_letters().remove(0);
    world.store.drop_event(letter.id, letter.token).expect("it is that letter");
    assert_eq!(world.drain(), ["behind it"]);
    assert_eq!((world.events(), world.dead_letters().len()), (0, 0));
}

#[test]
fn a_person_who_saw_another_death_changes_nothing() {
    let world = in_memory();
    world.emit("a", [ordered("k", "dies"), ordered("k", "behind it")]);
    world.pass_refusing("dies");
    let first = world.dead_letters().remove(0);
    refused(world.store.drop_event(first.id, Token(first.token.0 + 1)), ErrorKind::Fenced);
    world.store.requeue_event(first.id, first.token).expect("it is that letter");
    refused(world.store.drop_event(first.id, first.token), ErrorKind::Fenced);
    // It dies again: whoever saw the first death does not drop it for the second.
    world.pass_refusing("dies");
    let second = world.dead_letters().remove(0);
    assert_ne!(first.token, second.token);
    refused(world.store.drop_event(first.id, first.token), ErrorKind::Fenced);
    refused(world.store.requeue_event(first.id, first.token), ErrorKind::Fenced);
    assert_eq!(world.events(), 2);
}

#[test]
fn dead_letters_are_listed_in_pages_longest_dead_first() {
    let world = in_memory();
    for n in 0..7 {
        world.emit("a", [free(n)]);
        world.pass_refusing(&n.to_string());
        world.clock.advance(10);
    }
    let mut after: Option<DeadLetterPlace> = None;
    let mut pages = Vec::new();
    loop {
        let page = world.store.dead_letters(after.as_ref(), 3).expect("healthy");
        pages.push(page.letters.iter().map(|l| String::from_utf8_lossy(l.event.payload()).into()).collect());
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let pages: Vec<Vec<String>> = pages;
    assert_eq!(pages, [vec!["0", "1", "2"], vec!["3", "4", "5"], vec!["6"]]);
    refused(world.store.dead_letters(None, 0), ErrorKind::Invalid);
}

#[test]
fn ten_thousand_events_behind_a_dead_letter_are_not_read() {
    let world = in_memory();
    world.emit("a", [ordered("k", "dies")]);
    world.pass_refusing("dies");
    for n in 0..160 {
        world.emit("a", (0..64).map(|m| ordered("k", n * 64 + m)));
    }
    world.emit("a", [ordered("j", "1"), free("2"), ordered("j", "3")]);
    assert_eq!(world.events(), 10_244);
    let done = world.pass(|_| Ok(()));
    assert_eq!((done.published, done.rows_read), (3, 3));
    let letter = world.dead_letters().remove(0);
    world.store.requeue_event(letter.id, letter.token).expect("it is that letter");
    let leased = world.store.outbox_lease(256, &options()).expect("healthy");
    assert_eq!(leased.len(), 1, "a chain is leased one event at a time");
}

#[test]
fn lag_is_the_wait_of_the_event_that_is_due_longest() {
    let world = in_memory();
    let lag = || world.store.outbox().expect("healthy").lag_ms;
    assert_eq!(lag(), None);
    world.emit("a", [ordered("k", "1"), ordered("k", "2")]);
    world.clock.advance(700);
    world.emit("b", [free("3")]);
    assert_eq!(lag(), Some(Millis(700)));
    let leased = world.store.outbox_lease(9, &options()).expect("healthy");
    assert_eq!((leased.len(), lag()), (2, None), "what is being delivered does not wait");
    world.clock.advance(1_500);
    assert_eq!(lag(), Some(Millis(500)), "its lease is over since then");
    world.pass(|_| refused_for_good());
    let standing = world.store.outbox().expect("healthy");
    assert_eq!((standing.events, standing.dead_letters, standing.lag_ms), (3, 2, None));
    world.emit("b", [free("4")]);
    world.clock.advance(250);
    let stats = world.store.stats().expect("healthy");
    assert_eq!((stats.outbox_events, stats.outbox_dead_letters, stats.outbox_lag_ms), (4, 2, 250));
    assert!(stats.to_prometheus().contains("\nkeyclaim_outbox_lag_seconds 0.250\n"));
}
