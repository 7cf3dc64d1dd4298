//! Random commands at random times, up to the end of time: nothing panics, only sound records are
//! written, and every answer is the one that a naive model gives.

#[path = "machine_props/commands.rs"]
mod commands;
#[path = "machine_props/model.rs"]
mod model;

use keyclaim::machine::{Answer, Change, Changes, Command, Decision, Refusal, WonKind, decide};
use keyclaim::{Abandoned, AfterWindow};
use keyclaim_tests::machine_kit::World;
use proptest::prelude::*;

use commands::{Shape, Turn};
use model::Model;

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_commands_keep_the_promises(
        turns in proptest::collection::vec(commands::turn(), 1..40),
        start_ms in commands::start(),
    ) {
        let mut world = World { now_ms: start_ms, ..World::new() };
        let mut highest = 0;
        let mut claims_wrote = Vec::new();
        for turn in turns {
            world.now_ms = world.now_ms.saturating_add(turn.wait_ms);
            world.owner_here = turn.owner_here;
            let command = turn.command(&world);
            let (before, next) = (world.record.clone(), world.next);
            let verdict = world.verdict(&command);
            prop_assert_eq!(world.next, next + u64::from(verdict.changes.took_token));
            if let Ok(Answer::Decision(Decision::Won(won))) = &verdict.answer
                && won.kind != WonKind::Again
            {
                prop_assert!(won.token.0 > highest, "tokens strictly increase");
                highest = won.token.0;
            }
            if verdict.changes.with_writes {
                let Change::Put(record) = &verdict.changes.record else { panic!("writes without a record") };
                let events = before.as_ref().filter(|before| before.generation == record.generation);
                let events = events.map_or(0, |before| before.events);
                prop_assert_eq!(record.events, events + 1, "an event has its own number");
                prop_assert!(verdict.answer.is_ok() && verdict.changes.took_token);
                if let Command::Claim(_) = command {
                    prop_assert!(!claims_wrote.contains(&record.generation), "written once in a generation");
                    claims_wrote.push(record.generation);
                }
            }
            let may_write = matches!(verdict.answer, Ok(_) | Err(Refusal::StepsChanged));
            prop_assert!(may_write || verdict.changes.record == Change::Keep, "a refusal changes nothing");
            if let (Command::Owner(owner), Some(record)) = (&command, &before)
                && owner.token != record.token
            {
                prop_assert_eq!(&verdict.changes.record, &Change::Keep, "a stale token changes nothing");
            }
            if let (Command::Owner(owner), Ok(Answer::Owner(answer)), Change::Put(_)) =
                (&command, &verdict.answer, &verdict.changes.record)
                && !matches!(owner.act, keyclaim::machine::Act::Renew { .. })
                // At the end of time whatever begins is over at once.
                && world.now_ms < u64::MAX
            {
                let again = decide(world.record.as_ref(), &command, world.facts());
                prop_assert_eq!(again.answer, Ok(Answer::Owner(answer.clone())), "asked again");
                prop_assert_eq!(again.changes, Changes::default(), "asked again nothing is written");
            }
            if let (Change::Put(record), Command::Sweep) = (&verdict.changes.record, &command) {
                prop_assert_eq!(Some(record.token), before.map(|record| record.token));
            }
        }
    }

    /// Store time never goes back, but a machine that trusted it with its life would be brittle.
    #[test]
    fn a_clock_that_jumps_anywhere_never_panics(
        turns in proptest::collection::vec((commands::turn(), any::<u64>()), 1..30),
    ) {
        let mut world = World::new();
        for (turn, now_ms) in turns {
            world.now_ms = now_ms;
            let command = turn.command(&world);
            let verdict = decide(world.record.as_ref(), &command, world.facts());
            world.next += u64::from(verdict.changes.took_token);
            match verdict.changes.record {
                Change::Keep => {}
                Change::Put(record) => world.record = Some(*record),
                Change::Delete => world.record = None,
            }
        }
    }

    #[test]
    fn the_machine_answers_as_the_naive_model_does(
        turns in proptest::collection::vec(commands::turn(), 1..60),
        holds in any::<bool>(),
        refuses in any::<bool>(),
    ) {
        let abandoned = if holds { Abandoned::Hold } else { Abandoned::Rerun };
        let after_window = if refuses { AfterWindow::Refuse } else { AfterWindow::Reuse };
        let mut world = World::new();
        let mut model = Model::new(holds, refuses);
        let mut told = Vec::new();
        for turn in turns {
            world.now_ms += turn.wait_ms % commands::LONGEST_WAIT;
            let turn = Turn { shape: Shape { abandoned, after_window }, owner_here: false, ..turn };
            let command = turn.command(&world);
            let expected = model.ask(&command, world.now_ms, world.next);
            let said = commands::word(&world.ask(&command));
            told.push((world.now_ms, command, said));
            prop_assert_eq!(said, expected, "after {:#?}", told);
        }
    }
}
