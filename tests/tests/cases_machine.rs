//! Bugs that users of other idempotency layers met, as far as the pure rules are concerned: each
//! with what was done, what was lost, what users saw, and what is right.

use std::time::Duration;

use keyclaim::machine::{
    Act, Answer, BeginEffect, Body, ClaimCommand, Command, Decision, DropReason, EffectAnswer, InDoubt,
    OperatorAct, OutcomeClass, OwnerAnswer, Present, Refusal, State, StepProgress, Swept, WonKind,
};
use keyclaim::{Abandoned, AfterFailure, AfterWindow, Millis, Policy, Token, Writes};
use keyclaim_tests::machine_kit::{
    HORIZON, LEASE, LIMIT, T0, WINDOW, World, ask_back, begin, bytes, checkpoint, claim, claim_with,
    complete, done, hold, outcome, policy, print, renew, say, some_writes, take,
};

const SUCCESS: OutcomeClass = OutcomeClass::Success;
const FAILURE: OutcomeClass = OutcomeClass::Failure(AfterFailure::Replay);
const RETRY: OutcomeClass = OutcomeClass::Failure(AfterFailure::Reattempt);

fn claim_under(world: &mut World, nonce: u8, policy: Policy) -> Decision {
    world.decision(&Command::Claim(claim_with(nonce, policy)))
}

/// KC-001. Two requests with one key raced, and the second met the first one's row. The place of
/// the loser in the protocol was lost: it took the refused insert for an outage. Its user saw a
/// server error. The loser is told what the winner's state is, while it runs and when it is done.
#[test]
fn the_loser_of_a_race_is_answered_by_the_winners_state() {
    let mut world = World::new();
    let won = world.win(1);
    assert!(matches!(world.claim(2), Decision::InFlight { .. }));
    world.say(won.token, 1, complete(SUCCESS, 0)).expect("completed");
    assert!(matches!(world.claim(2), Decision::Replay(_)));
}

/// KC-002. A key that was in flight was started a second time. The first holder's record was
/// replaced without a word. Both callers ran. The second is told that it is in flight and the
/// record stays as it was.
#[test]
fn a_second_claim_leaves_the_record_in_flight_untouched() {
    let mut world = World::new();
    world.win(1);
    let before = world.record.clone();
    assert!(matches!(world.claim(2), Decision::InFlight { .. }));
    assert_eq!(world.record, before);
}

/// KC-003. Many callers started one key before any had finished. Only finished results were
/// remembered, so nothing stopped them. All of them ran. One runs, the others are told it is in
/// flight, and a caller with another request never gets that one's result.
#[test]
fn of_callers_before_the_first_result_one_runs() {
    let mut world = World::new();
    let wins = (1..=64).filter(|nonce| matches!(world.claim(*nonce), Decision::Won(_))).count();
    assert_eq!(wins, 1);
    let mut other = claim_with(65, policy(Abandoned::Rerun));
    other.fingerprint = print(2);
    assert!(matches!(world.decision(&Command::Claim(other)), Decision::Mismatch { .. }));
}

/// KC-005. A worker was killed after its claim, which was kept as long as a record is. The time
/// until the key could be used again was lost, a whole day of it. Users saw a conflict at every
/// retry. Recovery takes one lease, whatever the window and the horizon are.
#[test]
fn recovery_from_a_crash_takes_the_lease_and_not_the_window() {
    let mut world = World::new();
    world.win(1);
    world.now_ms = T0 + LEASE - 1;
    assert!(matches!(world.claim(2), Decision::InFlight { retry_after_ms: Millis(1), .. }));
    world.now_ms = T0 + LEASE;
    let won = world.win(2);
    assert_eq!((won.kind, won.attempt), (WonKind::Takeover, 2));
}

/// A takeover brought the writes of its claim again, as every retry does. The first attempt's had been committed; an
/// order was there twice. What a generation has written it has written; what it has not, the next attempt writes.
#[test]
fn a_takeover_writes_only_what_its_generation_has_not_written() {
    for first_writes in [true, false] {
        let asking = |nonce, brings: bool| {
            let writes = if brings { some_writes() } else { Writes::new() };
            Command::Claim(ClaimCommand { writes, ..claim_with(nonce, policy(Abandoned::Rerun)) })
        };
        let mut world = World::new();
        assert_eq!(world.verdict(&asking(1, first_writes)).changes.with_writes, first_writes);
        world.now_ms = T0 + LEASE;
        let verdict = world.verdict(&asking(2, true));
        assert!(matches!(&verdict.answer, Ok(Answer::Decision(Decision::Won(won))) if won.attempt == 2));
        assert_eq!(verdict.changes.with_writes, !first_writes);
        // One that brings nothing writes nothing, and the next one is told no more.
        world.now_ms = T0 + 3 * LEASE;
        assert!(!world.verdict(&asking(3, false)).changes.with_writes);
    }
}

/// Numbers begin at 1, also for a win that was told a second time: a command without one could not be told from the
/// next.
#[test]
fn a_command_without_a_number_is_refused() {
    for told_again in [false, true] {
        let mut world = World::new();
        let mut won = world.win(1);
        if told_again {
            won = world.win(1);
            assert_eq!(won.kind, WonKind::Again);
        }
        for act in [checkpoint(0), complete(SUCCESS, 0), Act::Release] {
            let refused = world.say(won.token, 0, act).expect_err("it has no number");
            assert!(
                matches!(refused, Refusal::Invalid(why) if why.contains("upwards from 1")),
                "{refused:?}"
            );
        }
    }
}

/// An owner that met other steps than are recorded was told so, lost the answer and asked again. It is told the same:
/// nothing was completed.
#[test]
fn a_held_completion_asked_again_is_not_completed() {
    for act in [complete(SUCCESS, 0), checkpoint(0)] {
        let mut world = World::new();
        let won = world.win(1);
        world.begin(won.token, 1, begin("charge", ask_back(), 0)).expect("begun");
        world.say(won.token, 2, done("charge")).expect("finished");
        // It took over and came to its end without the step.
        for _ in 0..2 {
            let refused = world.say(won.token, 3, act.clone()).expect_err("a step was not met");
            assert_eq!(refused, Refusal::StepsChanged);
        }
    }
}

/// A step that outlasts the lease had put off its end. Once it was finished a plain renewal brought the end forward,
/// and another attempt took over from an owner that had been promised more. Only an owner that names a length
/// shortens its lease.
#[test]
fn a_plain_renewal_never_shortens_a_lease() {
    let mut world = World::new();
    let won = world.win(1);
    let long = BeginEffect { limit_ms: Millis(4 * LEASE), ..begin("charge", ask_back(), 0) };
    world.begin(won.token, 1, long).expect("begun");
    world.say(won.token, 2, done("charge")).expect("finished");
    let until = |world: &World| match world.record.as_ref().map(|record| &record.state) {
        Some(State::InFlight { lease_until_ms, .. }) => lease_until_ms.expect("it has one"),
        other => panic!("{other:?}"),
    };
    let before = until(&world);
    assert!(before > Millis(world.now_ms + LEASE), "the step put it off");
    world.say(won.token, 0, renew()).expect("renewed");
    assert_eq!(until(&world), before);
    world.say(won.token, 0, Act::Renew { lease_ms: Some(Millis(LEASE)) }).expect("renewed");
    assert_eq!(until(&world), Millis(world.now_ms + LEASE));
}

/// A takeover entered at its recovery point and met none of the steps before it. It was taken for a handler that had
/// changed, and held for a person. It goes on behind the point, with what is recorded there and with new steps; it
/// may not go back to a step that it has met.
#[test]
fn an_attempt_enters_at_its_recovery_point() {
    let mut world = World::new();
    let won = world.win(1);
    for (seq, name) in [(1, "reserve"), (3, "charge")] {
        let met = u32::from(seq > 1);
        world.begin(won.token, seq, begin(name, ask_back(), met)).expect("begun");
        world.say(won.token, seq + 1, done(name)).expect("finished");
    }
    world.say(won.token, 5, checkpoint(2)).expect("recorded");
    world.begin(won.token, 6, begin("mail", ask_back(), 2)).expect("begun");
    world.say(won.token, 7, done("mail")).expect("finished");
    world.now_ms += 100 * LEASE;
    let next = world.win(2);
    let enters = world.clone();
    let step = |world: &mut World, seq, name, met| world.begin(next.token, seq, begin(name, ask_back(), met));
    // Behind the point, and then a new one.
    assert!(matches!(step(&mut world, 1, "mail", 0), Ok(EffectAnswer::Done { place: 2, .. })));
    assert!(matches!(step(&mut world, 2, "tell", 3), Ok(EffectAnswer::Run { place: 3, .. })));
    world.say(next.token, 3, done("tell")).expect("finished");
    world.say(next.token, 4, complete(SUCCESS, 4)).expect("all were met");
    // From the start.
    let mut world = enters.clone();
    for (seq, met, name) in [(1, 0, "reserve"), (2, 1, "charge"), (3, 2, "mail")] {
        assert!(matches!(step(&mut world, seq, name, met), Ok(EffectAnswer::Done { .. })), "{name}");
    }
    // Back behind what was met.
    let mut world = enters;
    assert_eq!(step(&mut world, 1, "mail", 3), Err(Refusal::StepsChanged));
}

/// Nobody had begun a step but its recovery point covered all: it had nothing to meet, and may end.
#[test]
fn what_a_recovery_point_covers_need_not_be_met() {
    let mut world = World::new();
    let won = world.win(1);
    world.begin(won.token, 1, begin("charge", ask_back(), 0)).expect("begun");
    world.say(won.token, 2, done("charge")).expect("finished");
    world.say(won.token, 3, checkpoint(1)).expect("recorded");
    world.now_ms += 100 * LEASE;
    let next = world.win(2);
    world.say(next.token, 1, complete(SUCCESS, 0)).expect("it is covered");
}

/// A step was repeated although the deploy that began it had not called that safe; and one that both called safe was
/// held for a person. Both must say so.
#[test]
fn a_step_is_repeated_if_both_attempts_call_it_safe() {
    for (first, second, runs) in [
        (InDoubt::Repeat, InDoubt::Repeat, true),
        (ask_back(), InDoubt::Repeat, false),
        (InDoubt::Hold, InDoubt::Repeat, false),
        (InDoubt::Repeat, InDoubt::Hold, false),
    ] {
        let mut world = World::new();
        let won = world.win(1);
        world.begin(won.token, 1, begin("charge", first, 0)).expect("begun");
        world.now_ms += 100 * LEASE;
        let next = world.win(2);
        let answer = world.begin(next.token, 1, begin("charge", second, 0)).expect("told");
        assert_eq!(matches!(answer, EffectAnswer::Run { .. }), runs, "{first:?}, {second:?}: {answer:?}");
    }
}

/// KC-005, KC-022. An attempt died after its recovery point. The point was lost and all was done
/// again. A customer was charged twice. The next attempt is told that it took over, and gets the
/// point and the steps.
#[test]
fn a_takeover_gets_the_recovery_point_and_the_steps() {
    let mut world = World::new();
    let won = world.win(1);
    world.begin(won.token, 1, begin("pay", InDoubt::Hold, 0)).expect("runs");
    world.say(won.token, 2, done("pay")).expect("finished");
    world.say(won.token, 3, checkpoint(1)).expect("recorded");
    world.now_ms += LEASE;
    let next = world.win(2);
    assert_eq!((next.kind, next.generation), (WonKind::Takeover, won.generation));
    assert_eq!(next.point.as_ref().map(|point| (point.name.as_str(), point.covers)), Some(("half", 1)));
    let answer = world.begin(next.token, 1, begin("pay", InDoubt::Hold, 0));
    assert_eq!(answer, Ok(EffectAnswer::Done { place: 0, result: bytes("receipt") }));
}

/// KC-007 (a). One duration was both the lock and the record's life. After a crash the key was
/// lost for that long. Users could neither retry nor see a result. Lease and window are two
/// settings: changing one moves the other's deadline by nothing.
#[test]
fn lease_and_window_are_separate_settings() {
    let day = Duration::from_hours(24);
    let long = policy(Abandoned::Rerun).replay_window(day).expect("in range");
    let mut world = World::new();
    claim_under(&mut world, 1, long);
    world.now_ms += LEASE;
    assert!(matches!(claim_under(&mut world, 2, long), Decision::Won(won) if won.kind == WonKind::Takeover));
}

/// KC-007 (b). A handler raised after its effect and the layer deleted the claim. That the effect
/// had happened was lost. The retry did it again. An attempt that ends without an outcome keeps what it
/// recorded, and one that recorded nothing is held if its policy says so.
#[test]
fn an_attempt_that_raised_is_not_taken_for_one_that_did_nothing() {
    let mut world = World::new();
    claim_under(&mut world, 1, policy(Abandoned::Hold));
    world.say(Token(1), 1, Act::Abandon).expect("abandoned");
    assert!(matches!(claim_under(&mut world, 2, policy(Abandoned::Rerun)), Decision::Held { .. }));
}

/// KC-007 (c). Every status was stored alike. What the handler meant by it was lost. Users were
/// told a passing failure for a day. The owner says which class an outcome has, and only a failure
/// declared so is attempted again.
#[test]
fn the_owner_says_whether_a_failure_is_final() {
    for (class, is_final) in [(SUCCESS, true), (FAILURE, true), (RETRY, false)] {
        let mut world = World::new();
        let won = world.win(1);
        world.say(won.token, 1, complete(class, 0)).expect("completed");
        assert_eq!(matches!(world.claim(2), Decision::Replay(_)), is_final);
    }
}

/// KC-008. A callee was killed and its caller's retries met a conflict each time. When the conflict
/// would end was lost. The caller gave up, or hammered the server until expiry. Each conflict says when
/// to ask again, no later than the lease ends, and then the key is taken over.
#[test]
fn a_caller_that_waits_as_told_takes_over_when_the_lease_ends() {
    let mut world = World::new();
    world.win(1);
    for _ in 0..=LEASE / 1_000 {
        match world.claim(2) {
            Decision::InFlight { retry_after_ms, .. } => {
                assert!(retry_after_ms.0 > 0 && retry_after_ms.0 <= LEASE);
                world.now_ms += retry_after_ms.0;
            }
            decision => {
                assert!(matches!(decision, Decision::Won(_)) && world.now_ms == T0 + LEASE);
                return;
            }
        }
    }
    panic!("the key was not taken over within its lease");
}

/// KC-009. A process died between its business commit and the stored answer. That work may have
/// been done was lost. The retry did it again. A begun step is on record before it runs, and the
/// next attempt learns that its outcome is not known: it may not run it blindly.
#[test]
fn work_of_unknown_outcome_is_on_record_and_not_repeated() {
    let mut world = World::new();
    let won = world.win(1);
    world.begin(won.token, 1, begin("pay", InDoubt::Hold, 0)).expect("runs");
    world.now_ms += LEASE;
    let next = world.win(2);
    assert!(matches!(next.steps[0].progress, StepProgress::Begun { .. }));
    let answer = world.begin(next.token, 1, begin("pay", InDoubt::Hold, 0));
    assert!(matches!(answer, Ok(EffectAnswer::Held(_))));
    assert!(matches!(world.claim(3), Decision::Held { .. }));
}

/// KC-009. A retry met a step in doubt and the layer had no way to ask what had happened. The
/// truth on the other side was lost. Operators guessed. The handler is asked to reconcile after
/// the limit and the settling time, and its finding is recorded as the result.
#[test]
fn a_step_in_doubt_is_reconciled_after_it_has_settled() {
    let mut world = World::new();
    let won = world.win(1);
    world.begin(won.token, 1, begin("pay", ask_back(), 0)).expect("runs");
    world.now_ms += LEASE;
    let next = world.win(2);
    assert_eq!(
        world.begin(next.token, 1, begin("pay", ask_back(), 0)),
        Ok(EffectAnswer::Reconcile { place: 0 })
    );
    world.say(next.token, 1, done("pay")).expect("reconciled");
    assert!(matches!(world.begin(next.token, 2, begin("pay", ask_back(), 0)), Ok(EffectAnswer::Done { .. })));
}

/// KC-010, KC-011. Two identical requests came in the same instant, from a double click or from
/// siblings in one process. The order between them was lost, for no result was there yet. Both
/// ran. At one instant, too, one wins and each other is told that it is in flight.
#[test]
fn at_one_instant_one_wins() {
    for now_ms in [0, T0, u64::MAX - LEASE] {
        let mut world = World { now_ms, ..World::new() };
        world.win(1);
        assert!(matches!(world.claim(2), Decision::InFlight { .. }));
    }
}

/// KC-013. A restarting instance cleared every claim older than its launch. A lease that another
/// instance still held was lost with them. Two instances ran. No command of upkeep ends a live
/// lease, however old the claim is.
#[test]
fn upkeep_never_clears_a_live_lease() {
    let mut world = World::new();
    let won = world.win(1);
    for _ in 0..10 {
        world.now_ms += LEASE - 1;
        world.say(won.token, 0, renew()).expect("renewed");
        world.ask(&Command::Sweep).expect("swept");
        let take_over = take(9);
        assert_eq!(world.ask(&take_over), Ok(Answer::Nothing));
        assert!(matches!(world.claim(2), Decision::InFlight { .. }));
    }
    assert!(world.say(won.token, 1, complete(SUCCESS, 0)).is_ok());
}

/// KC-015. One state, waiting to be retried, was left out of the uniqueness rule. The rule was lost
/// for keys in that state: a second record got in. The first could never move on. Whatever is there
/// and not absent keeps a claim from beginning a second generation.
#[test]
fn no_state_that_is_there_lets_a_second_generation_in() {
    let ends: [&[Act]; 5] =
        [&[], &[checkpoint(0)], &[Act::Abandon], &[hold()], &[checkpoint(0), complete(RETRY, 0)]];
    for acts in ends {
        let mut world = World::new();
        let won = world.win(1);
        for (seq, act) in (1..).zip(acts) {
            world.say(won.token, seq, act.clone()).expect("applied");
        }
        for nonce in 2..6 {
            if let Decision::Won(next) = world.claim(nonce) {
                assert_eq!(next.generation, won.generation, "{acts:?}");
            }
        }
    }
}

/// KC-017. A sweep picked up whatever was not complete, also what was still being handled. The
/// owner's right was lost to it. Handlers ran twice. Taking over needs the lease to be over, and an owner
/// that renews first keeps its claim.
#[test]
fn whoever_takes_over_loses_quietly_to_a_renewing_owner() {
    let mut world = World::new();
    let mut first = claim_with(1, policy(Abandoned::Rerun));
    first.operation = Some("charge".into());
    first.request = Some(Body::Here(bytes("request")));
    world.decision(&Command::Claim(first));
    let take_over = take(9);
    world.now_ms += LEASE;
    world.say(Token(1), 0, renew()).expect("renewed at the last moment");
    assert_eq!(world.ask(&take_over), Ok(Answer::Nothing));
    world.now_ms += LEASE;
    assert!(matches!(world.decision(&take_over), Decision::Won(won) if won.token == Token(2)));
}

/// KC-018. A claim without a lease was taken for an orphan. The live holder's record was
/// lost. Two ran. Without a lease nobody ever takes over, however late.
#[test]
fn without_a_lease_nobody_takes_over() {
    let mut world = World::new();
    let endless = policy(Abandoned::Rerun).no_lease();
    claim_under(&mut world, 1, endless);
    for later in [0, LEASE, HORIZON, u64::MAX / 2] {
        world.now_ms = T0 + later;
        world.ask(&Command::Sweep).expect("swept");
        assert!(matches!(world.claim(2), Decision::InFlight { lease_until_ms: None, .. }));
    }
    world.operate(Token(1), OperatorAct::Forget).expect("a person ends it");
    assert_eq!(world.win(3).kind, WonKind::Fresh);
}

/// KC-019. A holder stalled past its lease, was overtaken, and then wrote its result. The new
/// holder's result was lost. Users saw the older one. Everything that the overtaken one says is
/// fenced and changes nothing, before and after the new one completes, and it is told what is there.
#[test]
fn an_overtaken_owner_changes_nothing_and_is_told_what_is_there() {
    let mut world = World::new();
    let old = world.win(1);
    world.now_ms += LEASE;
    let new = world.win(2);
    let acts =
        || [renew(), checkpoint(0), complete(FAILURE, 0), Act::Release, Act::Abandon, hold(), done("pay")];
    let fenced = |world: &mut World, present: Present| {
        let before = world.record.clone();
        for act in acts() {
            assert_eq!(world.say(old.token, 1, act), Err(Refusal::Fenced(present)));
        }
        assert_eq!(world.record, before);
    };
    fenced(&mut world, Present::InFlight(new.token));
    world.say(new.token, 1, complete(SUCCESS, 0)).expect("completed");
    fenced(&mut world, Present::Complete(new.token));
    assert!(matches!(world.claim(3), Decision::Replay(replay) if replay.class == SUCCESS));
}

/// KC-020. A heartbeat was delayed in a queue until after a takeover. Guarded only by "is running"
/// it took the lease back. The new holder was told that it had lost. A renewal counts only with the current
/// token.
#[test]
fn a_delayed_renewal_does_not_steal_the_lease_back() {
    let mut world = World::new();
    let old = world.win(1);
    let delayed = say(old.token, 0, renew());
    world.now_ms += LEASE;
    let new = world.win(2);
    assert_eq!(world.ask(&delayed), Err(Refusal::Fenced(Present::InFlight(new.token))));
    assert!(world.say(new.token, 1, checkpoint(0)).is_ok());
}

/// KC-022. The lease was the platform's time limit. The choice was lost to whoever knew how long
/// the payment takes. The call was sent again at the limit. A lease is set per claim, and one step can
/// extend it by its own limit.
#[test]
fn the_lease_is_set_per_claim_and_covers_a_steps_limit() {
    let mut world = World::new();
    let hour = policy(Abandoned::Rerun).lease(Duration::from_hours(1)).expect("in range");
    claim_under(&mut world, 1, hour);
    world.now_ms += 3_600_000 - 1;
    assert!(matches!(world.claim(2), Decision::InFlight { .. }));
    world.begin(Token(1), 1, begin("pay", InDoubt::Hold, 0)).expect("runs");
    world.now_ms += LIMIT - 1;
    assert!(matches!(world.claim(2), Decision::InFlight { retry_after_ms: Millis(1), .. }));
    world.now_ms += 1;
    assert_eq!(world.win(2).kind, WonKind::Takeover);
}

/// KC-025. Two expiries in different units were compared with one clock. The lapse of the shorter
/// was lost in the units. A dead claim never looked dead. There is one unit, and at each deadline
/// the instants before, at and after it answer as the half-open interval says.
#[test]
fn every_deadline_is_half_open_in_one_unit() {
    for (deadline, completes) in [(LEASE, false), (WINDOW, true)] {
        for (at, is_over) in [(deadline - 1, false), (deadline, true), (deadline + 1, true)] {
            let mut world = World::new();
            let won = world.win(1);
            if completes {
                world.say(won.token, 1, complete(SUCCESS, 0)).expect("completed");
            }
            world.now_ms = T0 + at;
            assert_eq!(matches!(world.claim(2), Decision::Won(_)), is_over, "{deadline} at {at}");
        }
    }
    assert_eq!(Millis::from_duration(Duration::from_micros(1)), Millis(1));
}

/// KC-026. Whether a stale claim could be taken depended on the newcomer's own timeout. The
/// holder's lease was lost to whoever asked for a shorter one. Two ran. Only the stored lease decides.
#[test]
fn the_newcomers_lease_does_not_end_the_holders() {
    for newcomers_ms in [1, LEASE / 2, LEASE, LEASE * 2] {
        let mut world = World::new();
        world.win(1);
        let newcomers =
            policy(Abandoned::Rerun).lease(Duration::from_millis(newcomers_ms)).expect("in range");
        world.now_ms = T0 + LEASE - 1;
        assert!(matches!(claim_under(&mut world, 2, newcomers), Decision::InFlight { .. }));
        world.now_ms = T0 + LEASE;
        assert!(matches!(claim_under(&mut world, 2, newcomers), Decision::Won(_)));
    }
}

/// KC-040, KC-043. A faster path returned the old record without comparing what was asked for. The
/// second, different request was lost: it was never run. Its user saw another request's success.
/// In every state the request is compared, also when the nonce is the owner's own.
#[test]
fn another_request_with_the_key_is_a_mismatch_on_every_path() {
    let endings: [Option<Act>; 4] =
        [None, Some(hold()), Some(complete(SUCCESS, 0)), Some(complete(RETRY, 0))];
    for ending in endings {
        for nonce in [1, 2] {
            let mut world = World::new();
            let won = world.win(1);
            if let Some(act) = ending.clone() {
                world.say(won.token, 1, act).expect("applied");
            }
            let before = world.record.clone();
            let mut other = claim_with(nonce, policy(Abandoned::Rerun));
            other.fingerprint = print(2);
            other.token = Some(won.token);
            assert!(matches!(world.decision(&Command::Claim(other)), Decision::Mismatch { .. }));
            assert_eq!(world.record, before);
        }
    }
}

/// KC-033, KC-039. A deploy changed how requests are hashed. The old records' meaning was
/// lost. Every true retry was refused as another request. The record names its scheme, and the
/// caller is asked for the fingerprint under that one.
#[test]
fn a_retry_under_another_scheme_is_asked_for_the_records_scheme() {
    let mut world = World::new();
    world.win(1);
    let mut other = claim_with(2, policy(Abandoned::Rerun));
    other.fingerprint.scheme = keyclaim::fingerprint::Scheme::Json { without: vec![] };
    let stored = world.record.clone().expect("in flight").fingerprint;
    assert_eq!(world.ask(&Command::Claim(other)), Ok(Answer::OtherScheme(stored)));
}

/// KC-046. One store was shared by two routes and kept the first one's settings. The second one's
/// were lost. Its records lived too short. Settings come with each claim and stay with its record.
#[test]
fn each_claim_brings_its_own_settings_and_the_record_keeps_them() {
    let mut world = World::new();
    claim_under(&mut world, 1, policy(Abandoned::Hold));
    world.now_ms += LEASE;
    assert!(matches!(claim_under(&mut world, 2, policy(Abandoned::Rerun)), Decision::Held { .. }));
}

/// KC-053. A used-once mark was kept for the token's life without the clock skew that was
/// allowed. The mark was lost before the last moment of use. The token was used twice. A window
/// reaches from the completion, not from the claim, and can be extended before it ends.
#[test]
fn a_window_counts_from_the_completion_and_can_be_extended() {
    let mut world = World::new();
    let won = world.win(1);
    world.now_ms += LEASE - 1;
    world.say(won.token, 1, complete(SUCCESS, 0)).expect("completed");
    let until_ms = world.now_ms + WINDOW;
    world.now_ms = until_ms - 1;
    assert!(matches!(world.claim(2), Decision::Replay(replay) if replay.window_until_ms == Millis(until_ms)));
    world.operate(won.token, OperatorAct::ExtendWindow(Millis(HORIZON * 2))).expect("extended");
    world.now_ms = until_ms - 2 + HORIZON * 2;
    assert!(matches!(world.claim(2), Decision::Replay(_)), "the horizon moved with the window");
    world.now_ms += 1;
    assert!(matches!(world.claim(2), Decision::Won(_)));
}

/// KC-054. Leases followed the wall clock, and somebody set it. Who held what was lost with it.
/// Two held one lease. The machine is told the time and looks at no clock: the same time gives the
/// same answer, and one that stands still ends nothing.
#[test]
fn a_clock_that_stands_still_ends_nothing() {
    let mut world = World::new();
    let won = world.win(1);
    let first = world.claim(2);
    for _ in 0..1_000 {
        world.ask(&Command::Sweep).expect("swept");
        assert_eq!(world.claim(2), first);
    }
    assert!(world.say(won.token, 1, complete(SUCCESS, 0)).is_ok());
}

/// KC-055. Duplicates were refused only as long as the finished record was kept, and nobody could
/// free a key early. When a key becomes new was lost in the manual. Users ran things again by
/// chance. The window comes with every replay, reuse is told to the winner, and a person can forget a key.
#[test]
fn reuse_after_the_window_is_told_and_a_person_can_forget_a_key() {
    let mut world = World::new();
    let won = world.win(1);
    world.say(won.token, 1, complete(SUCCESS, 0)).expect("completed");
    let mut forgotten = world.clone();
    world.now_ms += WINDOW;
    let again = world.win(2);
    assert_eq!((again.kind, again.attempt), (WonKind::ReusedAfterWindow, 1));
    assert!(again.generation > won.generation);
    assert!(forgotten.operate(Token(9), OperatorAct::Forget).is_err(), "it must name the token it saw");
    forgotten.operate(won.token, OperatorAct::Forget).expect("forgotten");
    assert_eq!(forgotten.win(2).kind, WonKind::Fresh);
}

/// KC-056. A key used long ago was run again after it had expired. That it had been used was
/// lost. A payment was made twice. Where the owner asks for it, a tombstone without the body
/// answers that the key has expired until the horizon, and only then is the key new.
#[test]
fn a_tombstone_answers_expired_until_the_horizon() {
    let mut world = World::new();
    let refusing = policy(Abandoned::Rerun).after_window(AfterWindow::Refuse);
    claim_under(&mut world, 1, refusing);
    world.say(Token(1), 1, complete(SUCCESS, 0)).expect("completed");
    world.now_ms = T0 + WINDOW;
    assert_eq!(world.claim(2), Decision::Expired, "before the sweep");
    assert_eq!(world.ask(&Command::Sweep), Ok(Answer::Swept(Swept::Tombstone)));
    let State::Complete { outcome, .. } = &world.record.as_ref().expect("kept").state else { panic!("kept") };
    assert!(matches!(outcome.response.body, Body::Dropped { len: 4, why: DropReason::WindowOver, .. }));
    world.now_ms = T0 + HORIZON - 1;
    assert_eq!(world.claim(2), Decision::Expired, "after the sweep");
    world.now_ms = T0 + HORIZON;
    assert_eq!(world.win(2).kind, WonKind::Fresh);
}

/// KC-057. How long an answer is kept was not published. A job that retries for three days could
/// not know whether its last retry was safe. It ran twice. Every replay says until when it holds, and that is
/// true to the millisecond.
#[test]
fn every_replay_says_until_when_it_holds() {
    let mut world = World::new();
    let won = world.win(1);
    world.say(won.token, 1, complete(SUCCESS, 0)).expect("completed");
    let Decision::Replay(replay) = world.claim(2) else { panic!("expected a replay") };
    world.now_ms = replay.window_until_ms.0 - 1;
    assert_eq!(world.claim(2), Decision::Replay(replay.clone()));
    world.now_ms += 1;
    assert!(!matches!(world.claim(2), Decision::Replay(_)));
}

/// KC-058, KC-060. A replay had another status than the first answer, or lacked its headers. What
/// had been answered was lost. Clients took a success for a failure. Status, headers in order with
/// repeats, and bytes that are no text come back as they were.
#[test]
fn a_replay_is_the_first_answer_byte_for_byte() {
    for status in [200, 201, 204, 304, 406, 599] {
        let mut world = World::new();
        let won = world.win(1);
        let mut first = outcome(SUCCESS);
        first.response.status = status;
        let act = Act::Complete { outcome: first.clone(), met: 0, writes: keyclaim::Writes::new() };
        world.say(won.token, 1, act).expect("completed");
        let Decision::Replay(replay) = world.claim(2) else { panic!("expected a replay") };
        assert_eq!(replay.response, first.response);
    }
}

/// KC-062. A response over the size limit was not stored, after the handler had run. That it had
/// run was lost with it. The retry ran it again. It completes without its body, and the replay says
/// why and how large it was.
#[test]
fn a_response_too_large_to_store_still_protects() {
    let mut world = World::new();
    let won = world.win(1);
    let mut large = outcome(SUCCESS);
    large.response.body = large.response.body.dropped(DropReason::TooLarge);
    world
        .say(won.token, 1, Act::Complete { outcome: large, met: 0, writes: keyclaim::Writes::new() })
        .expect("completed");
    let Decision::Replay(replay) = world.claim(2) else { panic!("expected a replay") };
    assert!(matches!(replay.response.body, Body::Dropped { len: 4, why: DropReason::TooLarge, .. }));
}

/// KC-067. With a cache in front, finished keys were told as in progress, and forgotten ones as
/// finished. The order of the states was lost. Clients waited for ever. The answer follows from the
/// record and the time alone: a swept record and one not yet swept answer alike.
#[test]
fn the_answer_never_depends_on_whether_a_sweep_ran() {
    for class in [SUCCESS, FAILURE, RETRY] {
        for after in [AfterWindow::Reuse, AfterWindow::Refuse] {
            for at in [0, WINDOW - 1, WINDOW, HORIZON - 1, HORIZON, HORIZON + 1] {
                let mut world = World::new();
                claim_under(&mut world, 1, policy(Abandoned::Hold).after_window(after));
                world.say(Token(1), 1, complete(class, 0)).expect("completed");
                world.now_ms = T0 + at;
                let mut swept = world.clone();
                swept.ask(&Command::Sweep).expect("swept");
                assert_eq!(swept.claim(2), world.claim(2), "{class:?} {after:?} {at}");
            }
        }
    }
}

/// KC-072. A run that had failed for good kept answering for its key. The way to try again was
/// lost. Users had to make a new key and lost the link to the first. Where the failure says so, the
/// next claim attempts again under the same generation, with a count and the steps already done.
#[test]
fn a_failure_declared_so_is_attempted_again_with_its_steps() {
    let mut world = World::new();
    let won = world.win(1);
    world.begin(won.token, 1, begin("pay", InDoubt::Hold, 0)).expect("runs");
    world.say(won.token, 2, done("pay")).expect("finished");
    world.say(won.token, 3, complete(RETRY, 1)).expect("completed");
    let next = world.win(2);
    assert_eq!((next.kind, next.attempt, next.generation), (WonKind::Reattempt, 2, won.generation));
    assert_eq!(next.steps.len(), 1);
    assert!(next.token > won.token);
}

/// KC-097. A claim's write timed out although it had been committed. Whether it was won was lost.
/// The key ran several times, or never. The same nonce asked again is told of the same win, and a
/// completion asked again is answered and writes nothing.
#[test]
fn a_lost_answer_is_asked_for_again() {
    let mut world = World::new();
    let won = world.win(1);
    assert_eq!(world.win(1).token, won.token);
    let completion = say(won.token, 1, complete(SUCCESS, 0));
    world.ask(&completion).expect("completed");
    let before = world.record.clone();
    assert_eq!(world.ask(&completion), Ok(Answer::Owner(OwnerAnswer::Completed)));
    assert_eq!(world.record, before);
    assert!(matches!(world.ask(&claim(1)), Ok(Answer::Decision(Decision::Replay(_)))));
}

/// KC-099. The completion failed after the effect and the error was swallowed. That the outcome is
/// not known was lost. Retries met a conflict for a day. The owner holds the claim, everyone is
/// told so, and a late completion still counts.
#[test]
fn a_held_claim_can_still_be_completed_by_its_owner() {
    let mut world = World::new();
    let won = world.win(1);
    world.say(won.token, 1, hold()).expect("held");
    world.now_ms += LEASE;
    assert!(matches!(world.claim(2), Decision::Held { .. }));
    world.say(won.token, 2, complete(SUCCESS, 0)).expect("completed late");
    assert!(matches!(world.claim(2), Decision::Replay(_)));
}
