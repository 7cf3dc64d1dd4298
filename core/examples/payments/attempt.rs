//! What the winner of a claim does: charge the card once, then say how the request ended.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use keyclaim::http::{Code, Ended, Ending, Unrecorded};
use keyclaim::machine::{Blob, EffectAnswer, InDoubt, Outcome, StepResult};
use keyclaim::{Claim, Error, ErrorKind};
use serde_json::json;

use crate::ledger::{Fault, Reply};
use crate::patience::settle;
use crate::payment::Payment;
use crate::server::Api;
use crate::wire::{self, Answer};

/// The one step of a payment that has an effect outside the store.
const CHARGE: &str = "charge";

/// Where the scene asks an attempt to dawdle; a service has no such thing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Pauses {
    /// After the intent is recorded, before the network is called.
    pub(crate) before_charge: Duration,
    /// After the network answered, before its answer is recorded.
    pub(crate) after_charge: Duration,
}

/// How the work on a payment ended.
enum Worked {
    /// There is an answer.
    Answered(Answer),
    /// The step was cut off at its limit and is in doubt.
    TimedOut,
    /// The store refused before anything was done outside.
    Refused(Error),
    /// The network answered, and the store did not take it down.
    Unrecorded(Error, Answer),
    /// The claim is held for a person.
    Held,
}

/// Works on a payment and answers its client.
///
/// Whatever happens, the store is told: a claim that is merely dropped keeps its key in flight until
/// the lease is over.
pub(crate) async fn run(api: Arc<Api>, claim: Claim, payment: Payment, pauses: Pauses) -> Response {
    let claim = Arc::new(claim);
    // A task of its own, so that a panic in it ends here and not the claim's story.
    let work = tokio::spawn(work(api.clone(), claim.clone(), payment, pauses));
    match work.await {
        Ok(Worked::Answered(answer)) => {
            conclude(&api, &claim, Ended::Status(answer.status.as_u16()), answer).await
        }
        Ok(Worked::TimedOut) => {
            let detail = "The card network did not answer in time. Send the request again with the same key.";
            let answer = Answer::problem(StatusCode::GATEWAY_TIMEOUT, "charge_timed_out", detail);
            conclude(&api, &claim, Ended::TimeOut, answer).await
        }
        // Its message may hold anything, a card too, so it is not repeated here.
        Err(_) => {
            report(&claim, &"the work on it panicked");
            let detail = "Send the request again with the same key; it will not be charged twice.";
            let answer = Answer::problem(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail);
            conclude(&api, &claim, Ended::Panic, answer).await
        }
        // The store did not take the last command, so there is nobody to tell how it ended. What is
        // recorded so far stays, and once the lease is over a retry goes on from there.
        Ok(Worked::Refused(error)) => {
            report(&claim, &error);
            match error.kind() {
                // Of an owner's command: the handler is not the one that began, and the claim is held.
                ErrorKind::Invalid => wire::send(api.mapping.problem(Code::OutcomeUnknown)),
                _ => wire::send(api.mapping.failure(&error)),
            }
        }
        Ok(Worked::Unrecorded(error, answer)) => unrecorded(&api, &claim, &error, answer),
        Ok(Worked::Held) => wire::send(api.mapping.problem(Code::OutcomeUnknown)),
    }
}

/// Charges the card, unless an earlier attempt of the same payment did.
async fn work(api: Arc<Api>, claim: Arc<Claim>, payment: Payment, pauses: Pauses) -> Worked {
    loop {
        let begun =
            settle(&api.store, || claim.begin_effect_async(CHARGE, api.charge_limit, InDoubt::Repeat)).await;
        let receipt = match begun {
            Ok(EffectAnswer::Run { .. }) => return charge(api, claim, payment, pauses).await,
            Ok(EffectAnswer::Done { result, .. }) => Ok(result),
            Ok(EffectAnswer::Refused { result, .. }) => Err(result),
            // The attempt before this one may still be at it.
            Ok(EffectAnswer::Settling { until_ms }) => {
                tokio::time::sleep(until_ms.since(api.store.now_ms()).to_duration()).await;
                continue;
            }
            // Not while the step is declared safe to repeat; for a network without keys of its own
            // the way would be to look the charge up, and go on with what is found.
            Ok(EffectAnswer::Reconcile { .. }) => match reconcile(&api, &claim).await {
                Ok(()) => continue,
                Err(worked) => return worked,
            },
            Ok(EffectAnswer::Held(_)) => return Worked::Held,
            Err(error) => return Worked::Refused(error),
        };
        return Worked::Answered(match receipt {
            Ok(charge) => paid(&payment, &charge),
            Err(reason) => declined(&reason),
        });
    }
}

/// Calls the network within the step's limit, and takes down what it said.
///
/// A process that dies in here leaves a step in doubt. Whoever takes over calls the network again with
/// the same downstream key, and is answered with the first charge if there was one.
async fn charge(api: Arc<Api>, claim: Arc<Claim>, payment: Payment, pauses: Pauses) -> Worked {
    let downstream_key = claim.downstream_key(CHARGE);
    let (ledger, account, ordered) = (api.ledger.clone(), account_of(&claim), payment.clone());
    let call = async {
        tokio::time::sleep(pauses.before_charge).await;
        let reply =
            tokio::task::spawn_blocking(move || ledger.charge(&downstream_key, &account, &ordered)).await;
        tokio::time::sleep(pauses.after_charge).await;
        reply
    };
    let Ok(reply) = tokio::time::timeout(api.charge_limit, call).await else {
        return Worked::TimedOut;
    };
    let (result, answer) = match reply {
        Ok(Ok(Reply::Charged { charge, repeated })) => {
            let receipt = Blob::from(charge.into_bytes());
            let answer = paid(&payment, &receipt).with("payments-attempt", seen(&claim, repeated));
            (StepResult::Done(receipt), answer)
        }
        Ok(Ok(Reply::Declined(reason))) => {
            let reason = Blob::from(reason.as_bytes());
            (StepResult::Refused(reason.clone()), declined(&reason))
        }
        Ok(Err(Fault::NotSent(error))) => {
            report(&claim, &error);
            let detail = "The card network cannot be reached. Send the request again with the same key.";
            let answer = Answer::problem(StatusCode::SERVICE_UNAVAILABLE, "network_unavailable", detail);
            (StepResult::NotSent, answer.with("retry-after", "5"))
        }
        // Nothing is known, so nothing is said about the step: it stays in doubt.
        Ok(Err(Fault::InDoubt(error))) => {
            report(&claim, &error);
            return Worked::Answered(network_failed());
        }
        Err(_) => {
            report(&claim, &"the call to the network panicked");
            return Worked::Answered(network_failed());
        }
    };
    match settle(&api.store, || claim.finish_effect_async(CHARGE, result.clone())).await {
        Ok(()) => Worked::Answered(answer),
        Err(error) => Worked::Unrecorded(error, answer),
    }
}

/// Asks the network what became of a charge in doubt, and takes that down.
async fn reconcile(api: &Api, claim: &Claim) -> Result<(), Worked> {
    let (ledger, downstream_key) = (api.ledger.clone(), claim.downstream_key(CHARGE));
    let found = tokio::task::spawn_blocking(move || ledger.find(&downstream_key)).await;
    let result = match found {
        Ok(Ok(Some(charge))) => StepResult::Done(Blob::from(charge.id.into_bytes())),
        Ok(Ok(None)) => StepResult::NotSent,
        Ok(Err(error)) => {
            report(claim, &error);
            return Err(Worked::Answered(network_failed()));
        }
        Err(_) => {
            report(claim, &"the call to the network panicked");
            return Err(Worked::Answered(network_failed()));
        }
    };
    settle(&api.store, || claim.finish_effect_async(CHARGE, result.clone())).await.map_err(Worked::Refused)
}

/// Tells the store how the request ended, and only then the client.
async fn conclude(api: &Api, claim: &Claim, ended: Ended, answer: Answer) -> Response {
    let store = &api.store;
    let told = match api.endings.ending(ended, None, &api.policy) {
        Ending::Complete(class) => match answer.kept(&api.keep) {
            Ok(response) => {
                let outcome = Outcome { class, response };
                settle(store, || claim.complete_async(&outcome)).await
            }
            Err(error) => Err(error),
        },
        Ending::Release => settle(store, || claim.release_async()).await,
        Ending::Abandon => settle(store, || claim.abandon_async()).await,
        Ending::Hold => settle(store, || claim.hold_async()).await,
    };
    match told {
        Ok(()) => answer.send(&api.mapping.first_answer_lines(&api.policy)),
        Err(error) => unrecorded(api, claim, &error, answer),
    }
}

/// Answers although the store did not take the ending down: with what happened, marked as such, or, if
/// another attempt counts, not with this one's result.
fn unrecorded(api: &Api, claim: &Claim, error: &Error, answer: Answer) -> Response {
    report(claim, error);
    match api.mapping.unrecorded(error) {
        Unrecorded::SendOwn(lines) => answer.send(&lines),
        Unrecorded::SendInstead(instead) => wire::send(instead),
    }
}

/// The answer to a payment that went through: the same for every attempt that finds the same charge.
fn paid(payment: &Payment, receipt: &Blob) -> Answer {
    let charge = String::from_utf8_lossy(&receipt.0);
    let document = json!({
        "status": "paid",
        "charge": charge,
        "amount": payment.amount,
        "currency": payment.currency,
        "reference": payment.reference,
    });
    Answer::json(StatusCode::CREATED, &document).with("location", format!("/v1/charges/{charge}"))
}

fn declined(reason: &Blob) -> Answer {
    let reason = String::from_utf8_lossy(&reason.0);
    let detail = "The card was declined. Use a new key to try another card.";
    Answer::problem(StatusCode::PAYMENT_REQUIRED, &reason, detail)
}

/// A gateway's status: it says that nobody knows, so the attempt is abandoned and nothing is stored.
fn network_failed() -> Answer {
    let detail = "The card network failed. Send the request again with the same key.";
    Answer::problem(StatusCode::BAD_GATEWAY, "network_failed", detail)
}

/// For the scene's eyes: which attempt it was, and whether the network had seen its key before.
fn seen(claim: &Claim, repeated: bool) -> String {
    format!("{}; network={}", claim.attempt(), if repeated { "repeated" } else { "new" })
}

fn account_of(claim: &Claim) -> String {
    String::from_utf8_lossy(claim.id().scope().as_bytes()).into_owned()
}

/// For the person on call. The short hash names the request; keys and bodies are customer data.
fn report(claim: &Claim, error: &dyn std::fmt::Display) {
    eprintln!("payments: request {}: {error}", claim.id().short_hash());
}
