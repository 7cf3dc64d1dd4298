//! Orders that say where they are, and the plants: the same with a part of the protection left out.

use keyclaim::machine::StepResult;
use keyclaim::{Call, Token};
use keyclaim_example_sql::Failure;
use keyclaim_example_sql::order::{Order, Orders};

use crate::world::{Db, insert};

/// What is left out. A test that finds nothing wrong with these would find nothing at all.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Plant {
    /// Nothing is: the statements of the example.
    Sound,
    /// The row goes into a table without a unique key.
    NoKey,
    /// The key is unique, but no token is compared, and the question is a plain SELECT.
    NoToken,
}

pub(crate) struct Watched<F> {
    pub(crate) db: Db,
    pub(crate) plant: Plant,
    /// Called before, in and after a transaction, with the name of the moment.
    pub(crate) reached: F,
}

impl<F: FnMut(&str)> Orders for Watched<F> {
    fn place(&mut self, call: &Call, token: Token, order: &Order) -> Result<StepResult, Failure> {
        (self.reached)("entering");
        let result = match self.plant {
            Plant::Sound => self.db.place(call, token, order, || (self.reached)("inside")),
            plant => Ok(self.place_planted(plant, call, order)),
        }?;
        (self.reached)("committed");
        Ok(result)
    }

    fn ask(&mut self, call: &Call, token: Token) -> Result<StepResult, Failure> {
        (self.reached)("asking");
        let told = match self.plant {
            Plant::Sound => self.db.ask(call, token)?,
            plant => self.seen(plant, call).unwrap_or(StepResult::NotSent),
        };
        (self.reached)("asked");
        Ok(told)
    }
}

impl<F: FnMut(&str)> Watched<F> {
    fn place_planted(&mut self, plant: Plant, call: &Call, order: &Order) -> StepResult {
        let key = &call.downstream_key;
        let table = table(plant);
        self.db.batch("BEGIN");
        if plant == Plant::NoToken {
            self.db.batch(&format!("INSERT INTO {table} VALUES ('{key}', NULL) ON CONFLICT DO NOTHING"));
            if let Some(known) = self.seen(plant, call) {
                self.db.batch("ROLLBACK");
                return known;
            }
        }
        let number = self.db.texts(&insert(order)).remove(0);
        (self.reached)("inside");
        match plant {
            Plant::NoToken => {
                self.db
                    .batch(&format!("UPDATE {table} SET number = {number} WHERE downstream_key = '{key}'"));
            }
            _ => self.db.batch(&format!("INSERT INTO {table} VALUES ('{key}', '{number}')")),
        }
        self.db.batch("COMMIT");
        done(&number)
    }

    fn seen(&mut self, plant: Plant, call: &Call) -> Option<StepResult> {
        let sql = format!(
            "SELECT number FROM {} WHERE downstream_key = '{}' AND number IS NOT NULL",
            table(plant),
            call.downstream_key
        );
        self.db.texts(&sql).first().map(|number| done(number))
    }
}

fn table(plant: Plant) -> &'static str {
    if plant == Plant::NoToken { "planted_key" } else { "planted_bare" }
}

fn done(number: &str) -> StepResult {
    StepResult::Done(number.as_bytes().into())
}
