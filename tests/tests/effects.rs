//! Steps: the intent before the call, the result after it, and never a silent second call.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use keyclaim::clock::ManualClock;
use keyclaim::machine::{Blob, Decision, HoldReason, StepResult};
use keyclaim::store::Standing;
use keyclaim::{Abandoned, Call, Claim, EffectError, Effected, ErrorKind, Options, Policy, Store};
use keyclaim_tests::block::block_on;
use keyclaim_tests::request::{id, request, success, won};

const LEASE: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(30);
const SETTLE: Duration = Duration::from_secs(5);

type Told = Result<Effected, EffectError<&'static str>>;

struct World {
    store: Store,
    clock: ManualClock,
    calls: Cell<u32>,
}

impl World {
    fn new() -> Self {
        let clock = ManualClock::new(1_700_000_000_000);
        let policy = Policy::new(Abandoned::Hold).lease(LEASE).unwrap();
        let options = Options::with_policy(policy).clock(Arc::new(clock.clone())).renew_leases_max(0);
        Self { store: Store::in_memory(options).unwrap(), clock, calls: Cell::new(0) }
    }

    fn claim(&self) -> Claim {
        won(self.store.claim(&request("k")).unwrap())
    }

    /// The process dies: its claim says nothing more, and its lease and limits pass.
    fn crash(&self, claim: Claim) -> Claim {
        drop(claim);
        self.pass(LIMIT + LEASE);
        self.claim()
    }

    fn pass(&self, span: Duration) {
        self.clock.advance(u64::try_from(span.as_millis()).unwrap());
    }

    fn counted(
        &self,
        result: Result<StepResult, &'static str>,
    ) -> impl FnOnce(Call) -> Result<StepResult, &'static str> {
        move |_| {
            self.calls.set(self.calls.get() + 1);
            result
        }
    }

    fn held_for(&self) -> Option<HoldReason> {
        match self.store.inspect(&id("k")).unwrap()?.standing {
            Standing::Held { reason } => Some(reason),
            _ => None,
        }
    }
}

#[allow(clippy::unnecessary_wraps, reason = "it is what a call returns")]
fn done(text: &str) -> Result<StepResult, &'static str> {
    Ok(StepResult::Done(Blob::from(text.as_bytes())))
}

fn is_done(told: Told, text: &str) {
    assert_eq!(told.unwrap(), Effected::Done(text.into()));
}

#[test]
fn a_finished_step_is_answered_from_the_record_and_not_called_again() {
    let world = World::new();
    let claim = world.claim();
    is_done(claim.effect("charge", LIMIT).hold_in_doubt().run(world.counted(done("receipt"))), "receipt");
    let refused = Ok(StepResult::Refused(Blob::from(&b"no such address"[..])));
    let told = claim.effect("mail", LIMIT).hold_in_doubt().run(world.counted(refused)).unwrap();
    assert_eq!(told, Effected::Refused(b"no such address".to_vec()));
    let next = world.crash(claim);
    assert_eq!(next.attempt(), 2);
    is_done(next.effect("charge", LIMIT).hold_in_doubt().run(world.counted(done("another"))), "receipt");
    let told = next.effect("mail", LIMIT).hold_in_doubt().run(world.counted(done("sent"))).unwrap();
    assert_eq!(told, Effected::Refused(b"no such address".to_vec()), "a refusal is final");
    is_done(next.effect("log", LIMIT).hold_in_doubt().run(world.counted(done("new"))), "new");
    next.complete(&success(b"paid")).unwrap();
    assert_eq!(world.calls.get(), 3);
}

#[test]
fn a_call_that_was_not_sent_leaves_no_trace() {
    let world = World::new();
    let claim = world.claim();
    let step = || claim.effect("charge", LIMIT).hold_in_doubt();
    let told = step().run(world.counted(Ok(StepResult::NotSent)));
    assert!(matches!(told, Err(EffectError::NotSent)));
    assert!(world.store.inspect(&id("k")).unwrap().unwrap().steps.is_empty());
    is_done(step().run(world.counted(done("receipt"))), "receipt");
}

#[test]
fn a_call_that_failed_holds_the_claim_at_once_if_nobody_may_repeat_it() {
    let world = World::new();
    let claim = world.claim();
    let told = claim.effect("charge", LIMIT).hold_in_doubt().run(world.counted(Err("reset")));
    assert!(matches!(told, Err(EffectError::InDoubt("reset"))));
    assert_eq!(world.held_for(), Some(HoldReason::StepInDoubt));
    assert!(matches!(world.store.claim(&request("k")).unwrap(), Decision::Held { .. }));
}

#[test]
fn a_process_that_died_in_a_call_leaves_it_held_for_the_next_attempt() {
    let world = World::new();
    let claim = world.claim();
    let step = claim.effect("charge", LIMIT).hold_in_doubt();
    let panicked =
        catch_unwind(AssertUnwindSafe(|| step.run(|_| -> Result<StepResult, &str> { panic!("died") })));
    assert!(panicked.is_err());
    let next = world.crash(claim);
    let told = next.effect("charge", LIMIT).hold_in_doubt().run(world.counted(done("twice")));
    assert!(matches!(told, Err(EffectError::Held(HoldReason::StepInDoubt))));
    assert_eq!((world.calls.get(), world.held_for()), (0, Some(HoldReason::StepInDoubt)));
}

#[test]
fn a_repeatable_call_is_repeated_with_the_same_downstream_key() {
    let world = World::new();
    let claim = world.claim();
    let keys = Cell::new(Vec::new());
    let note = |call: Call, result| {
        let mut seen = keys.take();
        seen.push(call.downstream_key);
        keys.set(seen);
        result
    };
    let told: Told = claim.effect("charge", LIMIT).repeat_in_doubt().run(|call| note(call, Err("reset")));
    assert!(matches!(told, Err(EffectError::InDoubt(_))));
    let next = world.crash(claim);
    is_done(
        next.effect("charge", LIMIT).repeat_in_doubt().run(|call| note(call, done("receipt"))),
        "receipt",
    );
    next.complete(&success(b"paid")).unwrap();
    let seen = keys.take();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0], seen[1]);
    // Another intent with the key is another call.
    let token = world.store.inspect(&id("k")).unwrap().unwrap().token;
    world.store.forget(&id("k"), token).unwrap();
    assert_ne!(world.claim().downstream_key("charge"), seen[0]);
}

#[test]
fn a_step_that_one_deploy_does_not_call_safe_is_not_repeated_by_the_other() {
    for first_is_safe in [true, false] {
        let world = World::new();
        let claim = world.claim();
        let run = |claim: &Claim, is_safe, call: Result<StepResult, &'static str>| {
            let effect = claim.effect("charge", LIMIT);
            let ready = if is_safe { effect.repeat_in_doubt() } else { effect.hold_in_doubt() };
            ready.run(world.counted(call))
        };
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let effect = claim.effect("charge", LIMIT);
            let ready = if first_is_safe { effect.repeat_in_doubt() } else { effect.hold_in_doubt() };
            ready.run(|_| -> Result<StepResult, &str> { panic!("died") })
        }));
        assert!(panicked.is_err());
        let next = world.crash(claim);
        assert!(matches!(run(&next, !first_is_safe, done("twice")), Err(EffectError::Held(_))));
        assert_eq!(world.calls.get(), 0);
    }
}

#[test]
fn a_call_in_doubt_is_asked_about_once_it_has_settled() {
    let world = World::new();
    let claim = world.claim();
    let asked = Cell::new(0);
    let run = |claim: &Claim, answer: Result<StepResult, &'static str>| {
        let ask = |_: Call| {
            asked.set(asked.get() + 1);
            answer
        };
        claim.effect("charge", LIMIT).reconcile_in_doubt(SETTLE, ask).run_or_ask(world.counted(Err("reset")))
    };
    assert!(matches!(run(&claim, done("?")), Err(EffectError::InDoubt("reset"))));
    claim.abandon().unwrap();
    // The call may still be under way: nobody takes over before its limit.
    assert!(matches!(world.store.claim(&request("k")).unwrap(), Decision::InFlight { .. }));
    world.pass(LIMIT);
    let next = world.claim();
    let Err(EffectError::Settling { until_ms }) = run(&next, done("?")) else { panic!("it has not settled") };
    assert_eq!(until_ms, keyclaim::Millis(world.store.now_ms().0 + 5_000));
    world.pass(SETTLE);
    assert!(matches!(run(&next, Err("unreachable")), Err(EffectError::NotReconciled("unreachable"))));
    is_done(run(&next, done("it was charged")), "it was charged");
    // A name is used once in an attempt; the next one is told what is on record.
    is_done(run(&world.crash(next), done("?")), "it was charged");
    assert_eq!((world.calls.get(), asked.get()), (1, 2));
}

#[test]
fn an_async_call_is_cut_off_at_its_limit_and_stays_in_doubt() {
    let world = World::new();
    let claim = world.claim();
    let effect = claim.effect("charge", Duration::from_millis(20)).hold_in_doubt();
    let told: Told = block_on(effect.run_async(|_| std::future::pending()));
    assert!(matches!(told, Err(EffectError::CutOff)));
    assert_eq!(world.held_for(), Some(HoldReason::StepInDoubt));
}

#[test]
fn an_async_step_runs_is_stored_and_can_be_asked_about() {
    let world = World::new();
    let claim = world.claim();
    let effect = claim.effect("charge", LIMIT).repeat_in_doubt();
    is_done(block_on(effect.run_async(|_| async { done("receipt") })), "receipt");
    let ask = |_: Call| async { done("it was mailed") };
    let mail = |claim: &Claim| {
        let effect = claim.effect("mail", LIMIT).reconcile_in_doubt(SETTLE, ask);
        block_on(effect.run_or_ask_async(|_| async { Err("reset") }))
    };
    assert!(matches!(mail(&claim), Err(EffectError::InDoubt("reset"))));
    world.pass(LIMIT + SETTLE);
    let next = world.claim();
    let effect = next.effect("charge", LIMIT).repeat_in_doubt();
    is_done(block_on(effect.run_async(|_| async { done("twice") })), "receipt");
    is_done(mail(&next), "it was mailed");
}

#[test]
fn a_future_dropped_in_its_call_leaves_the_step_in_doubt() {
    let world = World::new();
    let claim = world.claim();
    {
        let effect = claim.effect("charge", LIMIT).hold_in_doubt();
        let mut running =
            std::pin::pin!(effect.run_async(|_| std::future::pending::<Result<StepResult, &str>>()));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        // Polled until its intent is on record and the call is under way.
        while world.store.inspect(&id("k")).unwrap().unwrap().steps.is_empty() {
            assert!(running.as_mut().poll(&mut context).is_pending());
        }
        assert!(running.as_mut().poll(&mut context).is_pending());
    }
    let next = world.crash(claim);
    let told = next.effect("charge", LIMIT).hold_in_doubt().run(world.counted(done("twice")));
    assert!(matches!(told, Err(EffectError::Held(_))));
}

/// The steps that an attempt recorded, then those of the next deploy: renamed, reordered, removed, one
/// added in front. A step added behind is no change of what was recorded.
#[test]
fn a_handler_whose_steps_changed_is_stopped_and_held() {
    let run = |claim: &Claim, names: &[&str]| -> Result<(), EffectError<&'static str>> {
        for name in names {
            claim.effect(name, LIMIT).repeat_in_doubt().run(|_| done("ok"))?;
        }
        claim.complete(&success(b"paid")).map_err(EffectError::Store)
    };
    let deploys: [(&[&str], bool); 6] = [
        (&["charge", "mail"], true),
        (&["charge", "mail", "log"], true),
        (&["pay", "mail"], false),
        (&["mail", "charge"], false),
        (&["charge"], false),
        (&["check", "charge", "mail"], false),
    ];
    for (names, is_same) in deploys {
        let world = World::new();
        let claim = world.claim();
        for name in ["charge", "mail"] {
            is_done(claim.effect(name, LIMIT).repeat_in_doubt().run(|_| done("ok")), "ok");
        }
        let next = world.crash(claim);
        let told = run(&next, names);
        if is_same {
            told.unwrap();
            assert_eq!(world.held_for(), None);
            continue;
        }
        let Err(EffectError::Store(error)) = told else { panic!("{names:?} went through") };
        assert_eq!(error.kind(), ErrorKind::Invalid, "{names:?}");
        assert_eq!(world.held_for(), Some(HoldReason::StepsChanged), "{names:?}");
    }
}

#[test]
fn a_call_that_outlasts_its_takeover_is_fenced_and_its_result_dropped() {
    let world = World::new();
    let claim = world.claim();
    let told: Told = claim.effect("charge", LIMIT).repeat_in_doubt().run(|_| {
        world.pass(LIMIT);
        let next = world.claim();
        is_done(
            next.effect("charge", LIMIT).repeat_in_doubt().run(|_| done("the second call")),
            "the second call",
        );
        next.complete(&success(b"paid")).unwrap();
        done("the first call")
    });
    let Err(EffectError::Store(error)) = told else { panic!("it was overtaken") };
    assert_eq!(error.kind(), ErrorKind::Fenced);
    assert!(claim.is_lost());
}

#[test]
fn an_owner_is_told_that_it_was_overtaken() {
    let world = World::new();
    let claim = world.claim();
    assert!(!claim.wait_lost(Duration::from_millis(1)));
    std::thread::scope(|scope| {
        let blocking = scope.spawn(|| claim.wait_lost(Duration::from_mins(1)));
        let on_a_task = scope.spawn(|| block_on(claim.lost()));
        claim.checkpoint("half", b"").unwrap();
        world.pass(LEASE);
        let _next = world.claim();
        assert_eq!(claim.renew(None).unwrap_err().kind(), ErrorKind::Fenced);
        assert!(blocking.join().unwrap());
        on_a_task.join().unwrap();
    });
    block_on(claim.lost());
}
