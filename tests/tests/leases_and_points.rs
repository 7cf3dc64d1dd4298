//! What the state table's fixtures do not reach: a lease that a step has made longer, and an
//! attempt that enters at a recovery point; and how far the completer's next try can be put off.

use keyclaim::limits::POSTPONE_MS_MAX;
use keyclaim::machine::{
    Act, Answer, BeginEffect, Body, Command, Decision, EffectAnswer, InDoubt, OwnerAnswer, WonKind,
};
use keyclaim::{Abandoned, Millis, Token};
use keyclaim_tests::machine_kit::{
    LEASE, PAUSE, T0, World, begin, bytes, checkpoint, claim_with, done, policy, renew, take,
};

const LONG: u64 = 4 * LEASE;

/// A claim whose step, finished early, has left it a lease of [`LONG`].
fn with_a_long_lease() -> (World, Token) {
    let mut world = World::new();
    let won = world.win(1);
    let pay = BeginEffect { limit_ms: Millis(LONG), ..begin("pay", InDoubt::Hold, 0) };
    world.begin(won.token, 1, pay).expect("runs");
    world.say(won.token, 2, done("pay")).expect("finished");
    (world, won.token)
}

#[test]
fn a_plain_renewal_never_shortens_a_lease() {
    let (mut world, token) = with_a_long_lease();
    let until = Some(Millis(T0 + LONG));
    assert_eq!(world.say(token, 0, renew()), Ok(OwnerAnswer::Renewed { lease_until_ms: until }));
}

#[test]
fn only_a_renewal_that_names_a_length_may_shorten_a_lease() {
    let (mut world, token) = with_a_long_lease();
    let named = Act::Renew { lease_ms: Some(Millis(1)) };
    let until = Some(Millis(T0 + 1));
    assert_eq!(world.say(token, 0, named), Ok(OwnerAnswer::Renewed { lease_until_ms: until }));
}

#[test]
fn a_win_told_again_never_shortens_a_lease() {
    let (mut world, _) = with_a_long_lease();
    assert_eq!(world.win(1).lease_until_ms, Some(Millis(T0 + LONG)));
}

#[test]
fn an_attempt_that_enters_at_the_recovery_point_meets_the_steps_after_it() {
    let mut world = World::new();
    let first = world.win(1);
    world.begin(first.token, 1, begin("pay", InDoubt::Hold, 0)).expect("runs");
    world.say(first.token, 2, done("pay")).expect("finished");
    world.say(first.token, 3, checkpoint(1)).expect("recorded");
    world.now_ms += LEASE;
    let second = world.win(2);
    let mail = begin("mail", InDoubt::Hold, 0);
    assert!(matches!(world.begin(second.token, 1, mail.clone()), Ok(EffectAnswer::Run { place: 1, .. })));
    world.say(second.token, 2, done("mail")).expect("finished");
    world.now_ms += 2 * LEASE;
    let third = world.win(3);
    let answer = world.begin(third.token, 1, mail);
    assert_eq!(answer, Ok(EffectAnswer::Done { place: 1, result: bytes("receipt") }));
}

/// The store renews live claims by itself, and may have a renewal under way when its owner abandons.
#[test]
fn a_renewal_that_comes_after_abandoning_puts_off_nothing() {
    let mut world = World::new();
    let won = world.win(1);
    world.say(won.token, 1, Act::Abandon).expect("abandoned");
    let ended = world.record.clone();
    let renewed = world.say(won.token, 0, renew()).expect("told");
    assert_eq!(renewed, OwnerAnswer::Renewed { lease_until_ms: Some(Millis(T0)) });
    assert_eq!(world.record, ended);
    assert!(matches!(world.claim(2), Decision::Won(won) if won.kind == WonKind::Takeover));
}

/// A world whose only request was abandoned with all that is needed to finish it, and taken over once.
fn tried_once() -> (World, Token) {
    let mut world = World::new();
    let mut claim = claim_with(1, policy(Abandoned::Rerun));
    claim.operation = Some("charge".into());
    claim.request = Some(Body::Here(bytes("request")));
    world.decision(&Command::Claim(claim));
    world.now_ms += LEASE;
    let Decision::Won(won) = world.decision(&take(9)) else { panic!("it was abandoned") };
    (world, won.token)
}

#[test]
fn a_try_is_postponed_by_a_week_at_most() {
    let (mut world, token) = tried_once();
    world.say(token, 1, Act::Postpone { until_ms: Millis(u64::MAX) }).expect("the owner");
    world.now_ms += POSTPONE_MS_MAX - 1;
    assert_eq!(world.ask(&take(9)), Ok(Answer::Nothing));
    world.now_ms += 1;
    assert!(matches!(world.decision(&take(9)), Decision::Won(_)));
}

#[test]
fn a_try_that_is_postponed_comes_no_earlier_than_its_pause() {
    let (mut world, token) = tried_once();
    world.say(token, 1, Act::Postpone { until_ms: Millis(world.now_ms + 1) }).expect("the owner");
    world.now_ms += PAUSE / 2 - 1;
    assert_eq!(world.ask(&take(9)), Ok(Answer::Nothing));
    world.now_ms += 1;
    assert!(matches!(world.decision(&take(9)), Decision::Won(_)));
}

#[test]
fn a_caller_need_not_wait_for_the_pause() {
    let (mut world, token) = tried_once();
    world.say(token, 1, Act::Postpone { until_ms: Millis(u64::MAX) }).expect("the owner");
    assert_eq!(world.win(2).kind, WonKind::Takeover);
}
