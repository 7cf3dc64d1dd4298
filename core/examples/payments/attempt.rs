//! What the winner of a claim does: charge the card, mail the receipt, then say how the request ended.
//!
//! Both are steps: the intent is on disk before the call and the result after it. So whoever takes over
//! when this process dies goes on where it died, and calls nobody twice.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use keyclaim::http::{Code, Ended, Ending, Unrecorded};
use keyclaim::machine::{Blob, Outcome, StepResult};
use keyclaim::{Call, Claim, EffectError, Effected, Error, ErrorKind};
use serde_json::json;

use crate::ledger::{Fault, Reply};
use crate::patience::{settle, step};
use crate::payment::Payment;
use crate::server::Api;
use crate::wire::{self, Answer};

/// The steps' names. They are on record: a step that is renamed is another step.
const CHARGE: &str = "charge";
const RECEIPT: &str = "receipt";
/// How long after a call's limit the mail service may still take the mail (arbitrary). Ask yours, and
/// when in doubt take longer: a wrong "it was not sent" sends it again.
const MAIL_SETTLE: Duration = Duration::from_secs(1);

/// Where the scene asks an attempt to dawdle; a service has no such thing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Pauses {
    /// After the intent is recorded, before the network is called.
    pub(crate) before_charge: Duration,
    /// After the network answered, before its answer is recorded.
    pub(crate) after_charge: Duration,
    /// After the charge is recorded, before the receipt is begun.
    pub(crate) before_receipt: Duration,
    /// After the receipt was mailed, before that is recorded.
    pub(crate) after_receipt: Duration,
}

/// How a step ended, or why it has no result.
type Told = Result<Effected, EffectError<io::Error>>;

/// Works on a payment and answers its client.
///
/// Whatever happens, the store is told: a claim that is merely dropped keeps its key in flight until
/// the lease is over.
pub(crate) async fn run(api: Arc<Api>, claim: Claim, payment: Payment, pauses: Pauses) -> Response {
    let claim = Arc::new(claim);
    // A task of its own, so that a panic in it ends here and not the claim's story.
    let work = tokio::spawn(work(api.clone(), claim.clone(), payment, pauses));
    match work.await {
        Ok(Ok(answer)) => conclude(&api, &claim, Ended::Status(answer.status.as_u16()), answer).await,
        Ok(Err(error)) => stopped(&api, &claim, error).await,
        // Its message may hold anything, a card too, so it is not repeated here.
        Err(_) => {
            report(&claim, &"the work on it panicked");
            let detail = "Send the request again with the same key; it will not be charged twice.";
            let answer = Answer::problem(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail);
            conclude(&api, &claim, Ended::Panic, answer).await
        }
    }
}

/// The two steps of a payment. What an earlier attempt has done is not done again.
async fn work(
    api: Arc<Api>,
    claim: Arc<Claim>,
    payment: Payment,
    pauses: Pauses,
) -> Result<Answer, EffectError<io::Error>> {
    let network = OnceLock::new();
    let charged = step(&api.store, || charge(&api, &claim, &payment, pauses, &network)).await?;
    let charge = match &charged {
        Effected::Done(charge) => String::from_utf8_lossy(charge),
        Effected::Refused(reason) => return Ok(declined(&String::from_utf8_lossy(reason))),
    };
    dawdle(&api, pauses.before_receipt).await;
    let mailed = step(&api.store, || mail_receipt(&api, &claim, &payment, &charge, pauses)).await?;
    let (Effected::Done(receipt) | Effected::Refused(receipt)) = &mailed;
    let answer = paid(&payment, &charge, &String::from_utf8_lossy(receipt));
    Ok(answer.with("payments-attempt", seen(&claim, network.get())))
}

/// Charges the card. The network collapses calls with one downstream key, so a charge in doubt is
/// called again, and answered with the first charge if there was one.
async fn charge(
    api: &Api,
    claim: &Claim,
    payment: &Payment,
    pauses: Pauses,
    network: &OnceLock<bool>,
) -> Told {
    let (ledger, account, ordered) = (api.ledger.clone(), account_of(claim), payment.clone());
    let call = async |call: Call| {
        dawdle(api, pauses.before_charge).await;
        let reply = elsewhere(move || ledger.charge(&call.downstream_key, &account, &ordered)).await;
        dawdle(api, pauses.after_charge).await;
        Ok(match sent(claim, reply)? {
            Some(Reply::Charged { charge, repeated }) => {
                // Only the first answer counts; a step is not called again after it.
                let _ = network.set(repeated);
                StepResult::Done(Blob::from(charge.into_bytes()))
            }
            Some(Reply::Declined(reason)) => StepResult::Refused(Blob::from(reason.as_bytes())),
            None => StepResult::NotSent,
        })
    };
    claim.effect(CHARGE, api.step_limit).repeat_in_doubt().run_async(call).await
}

/// Mails the receipt. The mail service would send it twice, but can be asked: so a mail in doubt is
/// looked up, and sent only if it was not.
async fn mail_receipt(api: &Api, claim: &Claim, payment: &Payment, charge: &str, pauses: Pauses) -> Told {
    let (mailer, reference, charge) = (api.mailer.clone(), payment.reference.clone(), charge.to_owned());
    let call = async |call: Call| {
        let reply = elsewhere(move || mailer.send(&call.downstream_key, &reference, &charge)).await;
        dawdle(api, pauses.after_receipt).await;
        Ok(match sent(claim, reply)? {
            Some(mail) => StepResult::Done(Blob::from(mail.into_bytes())),
            None => StepResult::NotSent,
        })
    };
    let mailer = api.mailer.clone();
    let ask = async |call: Call| {
        Ok(match elsewhere(move || mailer.find(&call.downstream_key)).await?? {
            Some(mail) => StepResult::Done(Blob::from(mail.id.into_bytes())),
            None => StepResult::NotSent,
        })
    };
    claim.effect(RECEIPT, api.step_limit).reconcile_in_doubt(MAIL_SETTLE, ask).run_or_ask_async(call).await
}

/// Makes a blocking call where it blocks nobody. A panic in it means that nobody knows what it did.
async fn elsewhere<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(call).await.map_err(io::Error::other)
}

/// The reply; none if the call was never sent. An error is a call of which nobody knows.
fn sent<T>(claim: &Claim, reply: io::Result<Result<T, Fault>>) -> io::Result<Option<T>> {
    match reply? {
        Ok(reply) => Ok(Some(reply)),
        Err(Fault::NotSent(error)) => {
            report(claim, &error);
            Ok(None)
        }
        Err(Fault::InDoubt(error)) => Err(error),
    }
}

/// Answers although a step has no result. What is recorded so far stays, and the next attempt goes on
/// from there; none of these answers is stored.
async fn stopped(api: &Api, claim: &Claim, error: EffectError<io::Error>) -> Response {
    report(claim, &error);
    match error {
        EffectError::CutOff => {
            let detail = "A provider did not answer in time. Send the request again with the same key.";
            let answer = Answer::problem(StatusCode::GATEWAY_TIMEOUT, "provider_timed_out", detail);
            conclude(api, claim, Ended::TimeOut, answer).await
        }
        EffectError::NotSent => {
            let detail = "A provider cannot be reached. Send the request again with the same key.";
            let answer = Answer::problem(StatusCode::SERVICE_UNAVAILABLE, "provider_unavailable", detail);
            conclude(api, claim, Ended::Status(503), answer.with("retry-after", "5")).await
        }
        // A person has to find out; the claim is held already.
        EffectError::Held(_) => wire::send(api.mapping.problem(Code::OutcomeUnknown)),
        // Said of steps that are not those on record: the handler was changed, and the claim is held.
        EffectError::Store(error) if error.kind() == ErrorKind::Invalid => {
            wire::send(api.mapping.problem(Code::OutcomeUnknown))
        }
        // The store did not take the last command, so there is nobody to tell how it ended. Once the
        // lease is over a retry goes on from what is recorded.
        EffectError::Store(error) => wire::send(api.mapping.failure(&error)),
        // A gateway's status: it says that nobody knows, so the attempt is abandoned.
        _ => {
            let detail = "A provider failed. Send the request again with the same key.";
            let answer = Answer::problem(StatusCode::BAD_GATEWAY, "provider_failed", detail);
            conclude(api, claim, Ended::Status(502), answer).await
        }
    }
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
fn paid(payment: &Payment, charge: &str, receipt: &str) -> Answer {
    let document = json!({
        "status": "paid",
        "charge": charge,
        "receipt": receipt,
        "amount": payment.amount,
        "currency": payment.currency,
        "reference": payment.reference,
    });
    Answer::json(StatusCode::CREATED, &document).with("location", format!("/v1/charges/{charge}"))
}

fn declined(reason: &str) -> Answer {
    let detail = "The card was declined. Use a new key to try another card.";
    Answer::problem(StatusCode::PAYMENT_REQUIRED, reason, detail)
}

/// For the scene's eyes: which attempt it was, and whether the network had seen its key before.
fn seen(claim: &Claim, repeated: Option<&bool>) -> String {
    let network = match repeated {
        None => "not asked",
        Some(false) => "new",
        Some(true) => "repeated",
    };
    format!("{}; network={network}", claim.attempt())
}

/// Waits for as long as the scene wishes, and lets it see that.
async fn dawdle(api: &Api, span: Duration) {
    if !span.is_zero() {
        api.dawdling.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(span).await;
        api.dawdling.fetch_sub(1, Ordering::Relaxed);
    }
}

fn account_of(claim: &Claim) -> String {
    String::from_utf8_lossy(claim.id().scope().as_bytes()).into_owned()
}

/// For the person on call. The short hash names the request; keys and bodies are customer data.
fn report(claim: &Claim, error: &dyn std::fmt::Display) {
    eprintln!("payments: request {}: {error}", claim.id().short_hash());
}
