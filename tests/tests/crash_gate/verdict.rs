//! What became of an order, held against what the providers' ledgers say.

use keyclaim_tests::gate::{Boundary, Row, Step};

/// What the client of an order knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    /// How often it is sent and neither answered nor killed.
    pub(crate) out: u32,
    /// Whether it has come to the boundary where the worker is to be killed.
    pub(crate) is_there: bool,
    /// Its answer: names of the order, the charge, the mail.
    pub(crate) answer: Option<String>,
    /// The step in doubt that it is held for, until a person has resolved it.
    pub(crate) held: Option<Step>,
    /// Whether it is held for what no person here resolves.
    pub(crate) is_stuck: bool,
    /// How often it was found held, each time after something else.
    pub(crate) holds: u32,
    /// The latest attempt of the client's; the completer's are not heard of.
    pub(crate) attempt: u32,
    /// Whether its first answer was a replay already.
    pub(crate) is_replay: bool,
    /// What it was told that nobody may be told.
    pub(crate) wrong: Vec<String>,
}

/// What the gate found.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// Orders that were charged or mailed more than once.
    pub(crate) doubled: usize,
    /// Orders without an answer, or with an answer that no booking stands for.
    pub(crate) lost: usize,
    /// Everything that is wrong, in words.
    pub(crate) wrong: Vec<String>,
}

impl Order {
    pub(crate) fn is_settled(&self) -> bool {
        self.answer.is_some() || self.held.is_some() || self.is_stuck
    }

    pub(crate) fn done(&mut self, is_replay: bool, answer: &str) {
        self.out = self.out.saturating_sub(1);
        self.is_replay |= is_replay && self.answer.is_none();
        match &self.answer {
            Some(first) if first != answer => {
                self.wrong.push(format!("first answered {first:?}, then {answer:?}"));
            }
            _ => self.answer = Some(answer.into()),
        }
    }

    pub(crate) fn found_held(&mut self, reason: &str, step: &str) {
        self.out = self.out.saturating_sub(1);
        let held = [Step::Charge, Step::Mail].into_iter().find(|known| known.name() == step);
        if reason != "StepInDoubt" || held.is_none() || self.answer.is_some() {
            self.is_stuck = true;
            self.wrong.push(format!("held for {reason}, step {step}, answered {:?}", self.answer));
        }
        self.holds += u32::from(self.held.is_none());
        self.held = held;
    }

    /// Holds this order against the ledgers.
    fn faults(&self, key: &str, ledgers: [&[Row]; 2], verdict: &mut Verdict) {
        let booked = ledgers.map(|rows| {
            rows.iter().filter(|row| row.reference == key).map(|row| row.name.as_str()).collect::<Vec<_>>()
        });
        verdict.wrong.extend(self.wrong.iter().map(|wrong| format!("{key}: {wrong}")));
        let [charges, mails] = booked;
        if charges.len() > 1 || mails.len() > 1 {
            verdict.doubled += 1;
            verdict.wrong.push(format!("{key}: charges {charges:?}, mails {mails:?}"));
            return;
        }
        let is_right = match &self.answer {
            Some(answer) => answer.split(' ').skip(1).eq(charges.iter().chain(&mails).copied()),
            None => false,
        };
        if !is_right {
            verdict.lost += 1;
            let answer = &self.answer;
            verdict.wrong.push(format!("{key}: answered {answer:?}, charges {charges:?}, mails {mails:?}"));
        }
    }
}

impl Verdict {
    /// What the ledgers of charges and mails say about these orders.
    pub(crate) fn of<'a>(
        orders: impl IntoIterator<Item = (&'a String, &'a Order)>,
        charges: &[Row],
        mails: &[Row],
    ) -> Self {
        let mut verdict = Self::default();
        for (key, order) in orders {
            order.faults(key, [charges, mails], &mut verdict);
        }
        verdict
    }

    /// Fails if anything is wrong.
    pub(crate) fn is_clean(&self) {
        let shown: Vec<_> = self.wrong.iter().take(20).collect();
        assert!(self.wrong.is_empty(), "{} doubled, {} lost: {shown:#?}", self.doubled, self.lost);
    }
}

/// Whether an order is held that was killed at the first boundary and, if it came by again, at the second.
pub(crate) fn must_be_held(first: Boundary, second: Boundary) -> bool {
    let comes_by = |step| first.is_before(Boundary::Finished(step));
    first.in_doubt().is_some() || second.in_doubt().is_some_and(comes_by)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str) -> Row {
        Row { name: name.into(), reference: "k".into(), downstream_key: "d".into(), token: 1 }
    }

    fn verdict(order: &Order, charges: &[&str], mails: &[&str]) -> Verdict {
        let rows = |names: &[&str]| names.iter().map(|name| row(name)).collect::<Vec<_>>();
        Verdict::of([(&"k".to_owned(), order)], &rows(charges), &rows(mails))
    }

    #[test]
    fn a_booking_too_many_a_booking_too_few_and_a_made_up_answer_are_seen() {
        let order = Order { answer: Some("o1 b1 b2".into()), ..Order::default() };
        verdict(&order, &["b1"], &["b2"]).is_clean();
        for (charges, mails) in [(&["b1", "b3"][..], &["b2"][..]), (&["b1"], &["b2", "b2"])] {
            assert_eq!(verdict(&order, charges, mails).doubled, 1);
        }
        for (charges, mails) in [(&[][..], &["b2"][..]), (&["b1"], &[]), (&["b7"], &["b2"])] {
            assert_eq!(verdict(&order, charges, mails).lost, 1);
        }
        assert_eq!(verdict(&Order::default(), &["b1"], &[]).lost, 1);
    }

    #[test]
    fn another_answer_and_a_hold_for_another_reason_are_seen() {
        let mut order = Order::default();
        order.done(false, "o1 b1 b2");
        order.done(true, "o1 b1 b2");
        assert!(order.wrong.is_empty());
        order.done(true, "o1 b1 b3");
        assert_eq!(order.wrong.len(), 1);
        for (reason, step) in [("StepsChanged", "charge"), ("StepInDoubt", "-")] {
            let mut order = Order::default();
            order.found_held(reason, step);
            assert_eq!(order.wrong.len(), 1);
        }
    }

    #[test]
    fn an_order_is_held_if_a_step_in_doubt_was_met() {
        let (charge, mail) = (Boundary::Booked(Step::Charge), Boundary::Intended(Step::Mail));
        assert!(must_be_held(charge, Boundary::Claimed));
        assert!(
            must_be_held(Boundary::Claimed, mail) && must_be_held(Boundary::Finished(Step::Charge), mail)
        );
        assert!(!must_be_held(Boundary::Finished(Step::Charge), charge));
        assert!(!must_be_held(Boundary::Completed, mail));
        assert!(!must_be_held(Boundary::BeforeClaim, Boundary::Finished(Step::Mail)));
    }
}
