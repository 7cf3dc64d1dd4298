//! Small histories whose verdict is plain to see.

use keyclaim_tests::proofs::linear::RULES;
use keyclaim_tests::proofs::linear::history::{Act, Answer, History, Kind, Look, Op, Operation, Stands};

/// A history of calls, one behind the other or as far as they are told to overlap.
#[derive(Clone, Default)]
struct Calls {
    operations: Vec<Operation>,
    at: u64,
}

impl Calls {
    /// A call at this time that is over before the next one.
    fn ask(mut self, ms: u64, op: Op, answer: Answer) -> Self {
        let (called_at, told_at) = (self.at, self.at + 1);
        let operation = Operation { client: 0, op, answer, called_at, told_at, from_ms: ms, to_ms: ms };
        self.operations.push(operation);
        self.at += 2;
        self
    }

    /// Both of the last two calls began before either was over.
    fn overlap(mut self) -> Self {
        let count = self.operations.len();
        if let Some([first, second]) = self.operations.get_mut(count - 2..) {
            std::mem::swap(&mut first.told_at, &mut second.called_at);
        }
        self
    }

    /// The last call took until then.
    fn until(mut self, ms: u64) -> Self {
        if let Some(last) = self.operations.last_mut() {
            last.to_ms = ms;
        }
        self
    }

    /// The last call is written down as the harness does it.
    fn and_its_renewal(mut self) -> Self {
        let last = self.operations.pop();
        self.operations.extend(last.into_iter().flat_map(Operation::and_its_renewal));
        self
    }

    fn history(self) -> History {
        History { operations: self.operations }
    }
}

fn claim(nonce: u64) -> Op {
    Op::Claim { nonce, payload: 0 }
}

fn own(token: u64, number: u64, act: Act) -> Op {
    Op::Own { token, number, act }
}

/// Refused because a lease that began then runs.
fn in_flight_until(began_ms: u64) -> Answer {
    Answer::InFlight { until_ms: began_ms + RULES.lease_ms }
}

fn won(token: u64, ms: u64) -> Answer {
    let until_ms = ms + RULES.lease_ms;
    Answer::Won { token, generation: token, attempt: 1, kind: Kind::Fresh, until_ms, point: None }
}

fn taken_over(token: u64, generation: u64, ms: u64, point: Option<u64>) -> Answer {
    attempt(2, token, generation, ms, point)
}

fn attempt(attempt: u32, token: u64, generation: u64, ms: u64, point: Option<u64>) -> Answer {
    let until_ms = ms + RULES.lease_ms;
    Answer::Won { token, generation, attempt, kind: Kind::Takeover, until_ms, point }
}

/// Won, a duplicate, a recovery point, a takeover, the old owner, the outcome, replays, and the key is used anew.
pub(crate) fn in_order() -> History {
    let (lease, window) = (RULES.lease_ms, RULES.window_ms);
    Calls::default()
        .ask(0, Op::Inspect, Answer::Seen(None))
        .ask(0, claim(1), won(1, 0))
        .ask(5, claim(2), Answer::InFlight { until_ms: lease })
        .overlap()
        .ask(6, Op::Claim { nonce: 3, payload: 1 }, Answer::Mismatch)
        .ask(7, own(1, 1, Act::Checkpoint(7)), Answer::Done)
        .ask(lease, claim(4), taken_over(4, 1, lease, Some(7)))
        .ask(lease, own(1, 2, Act::Complete(9)), Answer::Fenced)
        .ask(lease, own(4, 3, Act::Complete(8)), Answer::Done)
        .ask(lease, own(4, 3, Act::Complete(8)), Answer::Done)
        .ask(lease + window - 1, claim(5), Answer::Replay { body: 8, completed_ms: lease })
        .ask(
            lease + window,
            claim(6),
            Answer::Won {
                token: 5,
                generation: 5,
                attempt: 1,
                kind: Kind::Reused,
                until_ms: lease + window + lease,
                point: None,
            },
        )
        .history()
}

/// Each breaks one promise.
pub(crate) fn broken() -> Vec<(&'static str, History)> {
    let lease = RULES.lease_ms;
    let first = Calls::default().ask(0, claim(1), won(1, 0));
    let done = first.clone().ask(1, own(1, 1, Act::Complete(8)), Answer::Done);
    let held = first.clone().ask(1, own(1, 1, Act::Hold), Answer::Done);
    let taken = first.clone().ask(lease, claim(2), taken_over(2, 1, lease, None));
    let replay = |body, completed_ms| Answer::Replay { body, completed_ms };
    vec![
        ("two winners", first.clone().ask(0, claim(2), won(2, 0))),
        ("two winners at a time", first.clone().ask(0, claim(2), won(2, 0)).overlap()),
        (
            "a token twice",
            taken.clone().ask(lease, own(2, 2, Act::Release), Answer::Done).ask(
                lease * 3,
                claim(3),
                attempt(3, 2, 1, lease * 3, None),
            ),
        ),
        (
            "a takeover before the lease is over",
            first.clone().ask(lease - 1, claim(2), taken_over(2, 1, lease - 1, None)),
        ),
        ("a stale owner is obeyed", taken.clone().ask(lease, own(1, 2, Act::Complete(8)), Answer::Done)),
        ("the owner is fenced", first.clone().ask(1, own(1, 1, Act::Complete(8)), Answer::Fenced)),
        ("an outcome is lost", done.clone().ask(2, claim(2), won(2, 2))),
        ("an outcome is not seen", done.clone().ask(2, claim(2), Answer::InFlight { until_ms: lease })),
        ("another body", done.clone().ask(2, claim(2), replay(9, 1))),
        ("an outcome is moved", done.clone().ask(2, claim(2), replay(8, 2))),
        (
            "an outcome before it was told",
            first.clone().ask(1, claim(2), replay(8, 1)).ask(1, own(1, 1, Act::Complete(8)), Answer::Done),
        ),
        (
            "a replay for another request",
            done.clone().ask(2, Op::Claim { nonce: 2, payload: 1 }, replay(8, 1)),
        ),
        ("a replay behind its window", done.clone().ask(1 + RULES.window_ms, claim(2), replay(8, 1))),
        (
            "a recovery point is lost",
            first.clone().ask(1, own(1, 1, Act::Checkpoint(7)), Answer::Done).ask(
                lease,
                claim(2),
                taken_over(2, 1, lease, None),
            ),
        ),
        ("a held key is won", held.clone().ask(lease, claim(2), taken_over(2, 1, lease, None))),
        ("a look shows what was before", done.ask(2, Op::Inspect, Answer::Seen(Some(in_flight(1, lease))))),
        (
            "a person is obeyed twice",
            held.ask(2, Op::Resolve { seen: 1, absent: true }, Answer::Resolved { token: 2 }).ask(
                2,
                Op::Resolve { seen: 1, absent: true },
                Answer::Resolved { token: 3 },
            ),
        ),
        (
            "a lease that nobody renewed",
            first.clone().ask(1, claim(2), Answer::Unknown).and_its_renewal().ask(
                5,
                claim(3),
                in_flight_until(5),
            ),
        ),
        (
            "a release is forgotten",
            first.ask(1, own(1, 1, Act::Release), Answer::Done).ask(
                2,
                claim(2),
                Answer::InFlight { until_ms: lease },
            ),
        ),
    ]
    .into_iter()
    .map(|(what, calls)| (what, calls.history()))
    .collect()
}

/// Each has a call that was told nothing, and what follows shows that it happened, or that it did not.
pub(crate) fn in_doubt() -> Vec<(&'static str, History)> {
    let lease = RULES.lease_ms;
    let first = Calls::default().ask(0, claim(1), won(1, 0));
    let doubt = first.ask(1, own(1, 1, Act::Complete(8)), Answer::Unknown);
    let again = Answer::Won {
        token: 3,
        generation: 3,
        attempt: 1,
        kind: Kind::Again,
        until_ms: 2 + lease,
        point: None,
    };
    let claimed = Calls::default().ask(0, claim(1), Answer::Unknown);
    let late = claimed.clone().until(5).and_its_renewal();
    vec![
        ("completed", doubt.clone().ask(2, claim(2), Answer::Replay { body: 8, completed_ms: 1 })),
        ("not completed", doubt.clone().ask(2, claim(2), Answer::InFlight { until_ms: lease })),
        ("asked again", doubt.clone().ask(2, own(1, 1, Act::Complete(8)), Answer::Done)),
        (
            "late",
            doubt.ask(2, claim(2), Answer::InFlight { until_ms: lease }).ask(
                3,
                claim(3),
                Answer::Replay { body: 8, completed_ms: 1 },
            ),
        ),
        ("won", claimed.clone().ask(2, claim(1), again)),
        ("not won", claimed.clone().ask(2, claim(2), won(1, 2))),
        (
            "won, and renewed before it would have been told",
            late.clone().ask(5, claim(3), in_flight_until(5)),
        ),
        (
            "seen, then renewed",
            late.ask(1, claim(2), in_flight_until(0)).ask(5, claim(3), in_flight_until(5)),
        ),
        ("seen", claimed.ask(2, Op::Inspect, Answer::Seen(Some(in_flight(3, lease))))),
    ]
    .into_iter()
    .map(|(what, calls)| (what, calls.history()))
    .collect()
}

fn in_flight(token: u64, until_ms: u64) -> Look {
    Look { token, generation: token, attempt: 1, point: None, stands: Stands::InFlight(until_ms) }
}
