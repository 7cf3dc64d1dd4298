//! What a step can answer, and what of its transaction stays.

use std::cell::RefCell;
use std::time::Duration;

use keyclaim::machine::StepResult;
use keyclaim::{Call, Claim, EffectError, Effected};
use keyclaim_example_sql::Failure;

use crate::late::{LIMIT, Race, Told};
use crate::watched::Plant;
use crate::world::{Db, KINDS, Kind, order};

/// Writes the order, then says this of it; in doubt it is asked about.
fn run(claim: &Claim, db: Db, said: &StepResult) -> Told {
    let (token, db) = (claim.token(), RefCell::new(db));
    claim
        .effect("order", LIMIT)
        .reconcile_in_doubt(Duration::ZERO, |call: Call| db.borrow_mut().ask(&call, token))
        .run_or_ask(|call: Call| {
            db.borrow_mut().place_and_say(&call, token, &order("request"), |_| said.clone())
        })
}

#[test]
fn a_refusal_takes_its_writes_back_and_stays() {
    for kind in KINDS {
        let mut race = Race::new(kind, Plant::Sound);
        let claim = race.claim();
        let refusal = StepResult::Refused(b"sold out"[..].into());
        let told = run(&claim, race.world.db(), &refusal).expect("an answer");
        assert_eq!(told, Effected::Refused(b"sold out".to_vec()), "{kind:?}");
        assert_eq!(race.orders_placed(), 0, "{kind:?}");
        let states = race.world.db().texts("SELECT state FROM keyclaim_effects");
        assert_eq!(states, ["refused"], "{kind:?}: it commits with the token");
    }
}

#[test]
fn what_was_not_sent_leaves_no_trace_and_can_be_run_again() {
    for kind in KINDS {
        let mut race = Race::new(kind, Plant::Sound);
        let claim = race.claim();
        let told = run(&claim, race.world.db(), &StepResult::NotSent);
        assert!(matches!(told, Err(EffectError::NotSent)), "{told:?}");
        assert_eq!(race.orders_placed(), 0, "{kind:?}");
        assert!(race.world.db().texts("SELECT state FROM keyclaim_effects").is_empty(), "{kind:?}");
        let done = StepResult::Done(b"1"[..].into());
        assert_eq!(run(&claim, race.world.db(), &done).expect("an answer"), Effected::Done(b"1".to_vec()));
        assert_eq!(race.orders_placed(), 1, "{kind:?}");
    }
}

#[test]
fn a_row_that_somebody_deletes_under_the_transaction_stops_it() {
    for kind in KINDS {
        let mut race = Race::new(kind, Plant::Sound);
        race.world.db().batch(&deleting_trigger(kind));
        let claim = race.claim();
        let told = run(&claim, race.world.db(), &StepResult::Done(b"1"[..].into()));
        assert!(matches!(told, Err(EffectError::InDoubt(Failure::Foreign(_)))), "{kind:?}: {told:?}");
        assert_eq!(race.orders_placed(), 0, "{kind:?}");
    }
}

/// Deletes the row of the intent when the order is written.
fn deleting_trigger(kind: Kind) -> String {
    match kind {
        Kind::Sqlite => {
            "CREATE TRIGGER cleans AFTER INSERT ON orders BEGIN DELETE FROM keyclaim_effects; END".into()
        }
        Kind::Postgres => "CREATE FUNCTION cleans() RETURNS trigger LANGUAGE plpgsql AS \
                'BEGIN DELETE FROM keyclaim_effects; RETURN NULL; END'; \
             CREATE TRIGGER cleans AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION cleans()"
            .into(),
    }
}
