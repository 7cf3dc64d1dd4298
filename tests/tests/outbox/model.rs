//! The outbox against a model that is a plain list of events.

use keyclaim::outbox::{Delivery, Ending, PublishError, Settled};
use keyclaim_tests::seeded;
use proptest::prelude::*;

use crate::kit::*;

const LEASE: u64 = 1_000;
const ATTEMPTS: u32 = 3;

#[derive(Clone, Debug)]
enum Word {
    /// Events of one command: each with the number of its ordering key, or none.
    Emit {
        scope: u8,
        keys: Vec<Option<u8>>,
    },
    Lease {
        count: usize,
    },
    End {
        which: usize,
        how: How,
    },
    Advance {
        ms: u64,
    },
    Requeue {
        which: usize,
    },
    Drop {
        which: usize,
    },
}

#[derive(Clone, Copy, Debug)]
enum How {
    Published,
    Failed,
    Refused,
    Returned,
}

/// What is true of one event, by the documentation.
struct Event {
    payload: String,
    chain: Option<(u8, u8)>,
    attempts: u32,
    state: State,
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    Waiting { from: u64 },
    Leased { lease: u64, until: u64 },
    Dead { death: u64 },
    Gone,
}

#[derive(Default)]
struct Model {
    events: Vec<Event>,
    now: u64,
    names: u64,
}

impl Model {
    fn name(&mut self) -> u64 {
        self.names += 1;
        self.names
    }

    /// Whether nothing of its chain is before it.
    fn is_first(&self, at: usize) -> bool {
        let chain = self.events[at].chain;
        chain.is_none() || !self.events[..at].iter().any(|e| e.chain == chain && e.state != State::Gone)
    }

    /// Those that a relay may be given.
    fn due(&self) -> Vec<usize> {
        let is_due = |at: &usize| {
            self.is_first(*at)
                && match self.events[*at].state {
                    State::Waiting { from } => from <= self.now,
                    State::Leased { until, .. } => until <= self.now,
                    State::Dead { .. } | State::Gone => false,
                }
        };
        (0..self.events.len()).filter(is_due).collect()
    }

    fn find(&self, payload: &str) -> usize {
        self.events.iter().position(|event| event.payload == payload).expect("it was emitted")
    }
}

struct Run {
    world: World,
    model: Model,
    /// Every delivery there ever was, with the name of its lease in the model.
    deliveries: Vec<(Delivery, u64)>,
}

impl Run {
    fn say(&mut self, word: &Word) -> Result<(), TestCaseError> {
        match word {
            Word::Emit { scope, keys } => self.emit(*scope, keys),
            Word::Lease { count } => self.lease(*count)?,
            Word::End { which, how } => self.end(*which, *how)?,
            Word::Advance { ms } => {
                self.world.clock.advance(*ms);
                self.model.now += ms;
            }
            Word::Requeue { which } => self.letter(*which, true)?,
            Word::Drop { which } => self.letter(*which, false)?,
        }
        let standing = self.world.store.outbox().expect("healthy");
        let count = |is: fn(&State) -> bool| self.model.events.iter().filter(|e| is(&e.state)).count() as u64;
        prop_assert_eq!(standing.events, count(|state| *state != State::Gone));
        prop_assert_eq!(standing.dead_letters, count(|state| matches!(state, State::Dead { .. })));
        prop_assert_eq!(standing.lag_ms.is_some(), !self.model.due().is_empty());
        Ok(())
    }

    fn emit(&mut self, scope: u8, keys: &[Option<u8>]) {
        let mut events = Vec::new();
        for key in keys {
            let payload = self.model.events.len().to_string();
            events.push(match key {
                Some(key) => ordered(&format!("key {key}"), &payload),
                None => free(&payload),
            });
            let state = State::Waiting { from: self.model.now };
            self.model.events.push(Event { payload, chain: key.map(|key| (scope, key)), attempts: 0, state });
        }
        self.world.emit(&format!("scope {scope}"), events);
    }

    fn lease(&mut self, count: usize) -> Result<(), TestCaseError> {
        // Events whose last delivery never ended die instead, wherever the lease meets them; let it meet all.
        let mut due = self.model.due();
        let doomed: Vec<_> =
            due.iter().copied().filter(|at| self.model.events[*at].attempts >= ATTEMPTS).collect();
        let count = if doomed.is_empty() { count } else { 256 };
        due.retain(|at| !doomed.contains(at));
        let leased = self.world.store.outbox_lease(count, &options()).expect("healthy");
        prop_assert_eq!(leased.len(), due.len().min(count));
        for at in doomed {
            let death = self.model.name();
            self.model.events[at].state = State::Dead { death };
        }
        for delivery in leased {
            let at = self.model.find(&payload(&delivery));
            prop_assert!(due.contains(&at), "{} was not due, or twice", at);
            due.retain(|other| *other != at);
            let (lease, until) = (self.model.name(), self.model.now + LEASE);
            let event = &mut self.model.events[at];
            event.attempts += 1;
            event.state = State::Leased { lease, until };
            prop_assert_eq!(delivery.attempt, event.attempts);
            self.deliveries.push((delivery, lease));
        }
        Ok(())
    }

    fn end(&mut self, which: usize, how: How) -> Result<(), TestCaseError> {
        let Some(which) = which.checked_rem(self.deliveries.len()) else { return Ok(()) };
        let (delivery, lease) = &self.deliveries[which];
        let ending = match how {
            How::Published => Ending::Published,
            How::Failed => Ending::Failed(PublishError::again("")),
            How::Refused => Ending::Failed(PublishError::refused("")),
            How::Returned => Ending::Returned,
        };
        let ended =
            self.world.store.outbox_end(&[(delivery, ending)], &options()).expect("healthy").remove(0);
        let at = self.model.find(&payload(delivery));
        let death = self.model.names + 1;
        let now = self.model.now;
        let event = &mut self.model.events[at];
        let is_current = matches!(event.state, State::Leased { lease: current, .. } if current == *lease);
        prop_assert_eq!(ended.is_ok(), is_current, "{:?}", ended);
        let Ok(settled) = ended else { return Ok(()) };
        event.state = match (how, settled) {
            (How::Published, Settled::Published) => State::Gone,
            (How::Returned, Settled::Again { .. }) => {
                event.attempts -= 1;
                State::Waiting { from: now }
            }
            (How::Failed, Settled::Again { at_ms }) => {
                prop_assert!(event.attempts < ATTEMPTS);
                let delay = at_ms.since(delivery.lease_until_ms).0.max(at_ms.0) - self.world.store.now_ms().0;
                prop_assert!(delay <= 100 << (event.attempts - 1), "{} ms", delay);
                State::Waiting { from: now + delay }
            }
            (How::Failed, Settled::Dead) => {
                prop_assert!(event.attempts >= ATTEMPTS);
                State::Dead { death }
            }
            (How::Refused, Settled::Dead) => State::Dead { death },
            other => return Err(TestCaseError::fail(format!("{other:?}"))),
        };
        self.model.names = death;
        Ok(())
    }

    fn letter(&mut self, which: usize, requeue: bool) -> Result<(), TestCaseError> {
        let letters = self.world.store.dead_letters(None, 1_000).expect("healthy").letters;
        let Some(which) = which.checked_rem(letters.len()) else { return Ok(()) };
        let letter = &letters[which];
        let at = self.model.find(&String::from_utf8_lossy(letter.event.payload()));
        let event = &mut self.model.events[at];
        let is_dead = matches!(event.state, State::Dead { .. });
        prop_assert!(is_dead);
        if requeue {
            self.world.store.requeue_event(letter.id, letter.token).expect("listed just now");
            event.attempts = 0;
            event.state = State::Waiting { from: self.model.now };
        } else {
            self.world.store.drop_event(letter.id, letter.token).expect("listed just now");
            event.state = State::Gone;
        }
        Ok(())
    }
}

fn words() -> impl Strategy<Value = Vec<Word>> {
    let how = prop_oneof![
        4 => Just(How::Published),
        3 => Just(How::Failed),
        1 => Just(How::Refused),
        1 => Just(How::Returned),
    ];
    let key = proptest::option::weighted(0.8, 0..3_u8);
    let word = prop_oneof![
        3 => (0..2_u8, prop::collection::vec(key, 1..5)).prop_map(|(scope, keys)| Word::Emit { scope, keys }),
        4 => (1..5_usize).prop_map(|count| Word::Lease { count }),
        // The latest deliveries most of the time: an older one is likely to be stale.
        5 => (any::<usize>(), how).prop_map(|(which, how)| Word::End { which, how }),
        2 => prop_oneof![0..300_u64, Just(LEASE)].prop_map(|ms| Word::Advance { ms }),
        1 => any::<usize>().prop_map(|which| Word::Requeue { which }),
        1 => any::<usize>().prop_map(|which| Word::Drop { which }),
    ];
    prop::collection::vec(word, 1..60)
}

#[test]
fn the_outbox_behaves_as_its_model_does() {
    seeded::check("the_outbox_behaves_as_its_model_does", 200, &words(), |words| {
        let mut run = Run { world: in_memory(), model: Model::default(), deliveries: Vec::new() };
        words.iter().try_for_each(|word| run.say(word))
    });
}
