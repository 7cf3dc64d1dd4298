//! Whoever lost the answer to a claim asks again; and what is undone when nobody was told.

use keyclaim::machine::{Act, Answer, Command, Decision, InDoubt, OperatorAct, State, WonKind};
use keyclaim::{Abandoned, Millis, Token};
use keyclaim_tests::machine_kit::{
    LEASE, LIMIT, T0, World, begin, bytes, checkpoint, claim_with, hold, policy, some_writes,
};

fn untold(token: Token) -> Command {
    Command::Untold { token, before: None }
}

/// A caller stopped waiting for its claim and asked again with the same nonce. The store, which
/// had seen the first call go away, undid the win after the second call had been told of it, so
/// that the next newcomer won too and two ran. A win that anyone was told of is never undone.
#[test]
fn a_win_told_to_the_second_call_is_not_undone_for_the_first() {
    let mut world = World::new();
    let won = world.win(1);
    let again = world.win(1);
    assert_eq!((again.kind, again.token), (WonKind::Again, won.token));
    assert_eq!(world.ask(&untold(won.token)), Ok(Answer::Nothing));
    assert!(matches!(world.claim(2), Decision::InFlight { .. }));
}

#[test]
fn a_win_without_a_lease_told_again_is_not_undone_either() {
    let mut world = World::new();
    let endless = Command::Claim(claim_with(1, policy(Abandoned::Rerun).no_lease()));
    let token = world.decision(&endless);
    assert!(matches!(token, Decision::Won(_)));
    assert!(matches!(world.claim(1), Decision::Won(_)));
    assert_eq!(world.ask(&untold(Token(1))), Ok(Answer::Nothing));
    assert!(world.record.is_some());
}

#[test]
fn the_first_numbered_command_is_applied_after_a_win_told_again() {
    let mut world = World::new();
    let won = world.win(1);
    world.win(1);
    assert!(world.say(won.token, 1, checkpoint(0)).is_ok());
}

#[test]
fn a_command_numbered_zero_is_never_taken_for_a_repeat() {
    let mut world = World::new();
    let won = world.win(1);
    world.win(1);
    let mut command = keyclaim_tests::machine_kit::say(won.token, 0, checkpoint(0));
    if let Command::Owner(owner) = &mut command {
        owner.digest = [0; 16];
    }
    assert!(matches!(world.ask(&command), Err(keyclaim::machine::Refusal::Invalid(_))));
}

/// An attempt of an operation that must not simply be rerun ended by abandon. Its client repeated
/// the claim with the nonce it still had, was told that it had won, and the effect happened
/// twice. After an abandon the abandoned policy decides, whoever asks.
#[test]
fn the_nonce_and_the_token_of_an_attempt_that_ended_win_nothing() {
    for with_token in [false, true] {
        let mut world = World::new();
        let mut command = claim_with(1, policy(Abandoned::Hold));
        assert!(matches!(world.decision(&Command::Claim(command.clone())), Decision::Won(_)));
        world.say(Token(1), 1, Act::Abandon).expect("the owner may abandon");
        if with_token {
            command = claim_with(2, policy(Abandoned::Hold));
            command.token = Some(Token(1));
        }
        assert!(matches!(world.decision(&Command::Claim(command)), Decision::Held { .. }));
    }
}

/// A takeover committed writes with its claim and nobody was told of it. Going back to the record
/// before it forgot these writes, so that the earlier owner could still release the key although
/// something had been committed. The writes stay on record and the next attempt resumes.
#[test]
fn undoing_a_takeover_never_forgets_its_writes() {
    let mut world = World::new();
    world.win(1);
    world.now_ms += LEASE;
    let before = world.record.clone().map(Box::new);
    let mut command = claim_with(2, policy(Abandoned::Rerun));
    command.writes = some_writes();
    world.decision(&Command::Claim(command));
    assert_eq!(world.ask(&Command::Untold { token: Token(2), before }), Ok(Answer::Undone));
    assert!(world.record.as_ref().is_some_and(|record| record.wrote && record.token == Token(2)));
    assert_eq!(world.win(3).kind, WonKind::Takeover);
}

#[test]
fn a_win_told_again_after_it_was_undone_runs_under_the_abandoned_policy() {
    let mut world = World::new();
    let mut first = claim_with(1, policy(Abandoned::Hold));
    first.writes = some_writes();
    world.decision(&Command::Claim(first.clone()));
    world.ask(&untold(Token(1))).expect("undone");
    assert!(matches!(world.decision(&Command::Claim(first)), Decision::Won(_)));
    let record = world.record.as_ref().expect("in flight");
    assert!(matches!(record.state, State::InFlight { resumable: false, .. }));
}

/// A person resolved a held claim as resumable while the step it was held for could still be
/// running. The next claim won at once. Until the step's limit others are told to wait.
#[test]
fn a_claim_resolved_as_resumable_waits_for_the_limit_of_its_open_step() {
    let mut world = World::new();
    let won = world.win(1);
    world.begin(won.token, 1, begin("pay", InDoubt::Repeat, 0)).expect("runs");
    world.say(won.token, 2, hold()).expect("held");
    world.operate(won.token, OperatorAct::ResolveResumable(None)).expect("resolved");
    world.now_ms = T0 + LIMIT - 1;
    assert_eq!(
        world.claim(2),
        Decision::InFlight { retry_after_ms: Millis(1), lease_until_ms: Some(Millis(T0 + LIMIT)) }
    );
    world.now_ms += 1;
    assert_eq!(world.win(2).kind, WonKind::Takeover);
}

#[test]
fn a_claim_resolved_with_the_result_of_its_step_is_resumed_at_once() {
    let mut world = World::new();
    let won = world.win(1);
    world.begin(won.token, 1, begin("pay", InDoubt::Repeat, 0)).expect("runs");
    world.say(won.token, 2, hold()).expect("held");
    let result = keyclaim::machine::StepResult::Done(bytes("receipt"));
    world.operate(won.token, OperatorAct::ResolveResumable(Some(result))).expect("resolved");
    assert_eq!(world.win(2).steps.len(), 1);
}
