//! What to do when the store does not answer: heal it, ask again, and give up in time.
//!
//! | kind | what is done here | then |
//! |---|---|---|
//! | Unknown | reopen, ask the same again (a claim with its nonce) | 503, or the answer marked `unknown` |
//! | Poisoned | reopen with backoff, ask again | the same |
//! | Busy | an owner waits and asks again; a claim does not, its client does | 503 and Retry-After |
//! | Fenced | nothing: another attempt owns the key, this one's result is dropped | 409 |
//! | Invalid | nothing: the call is wrong | 400 |
//! | Closed, Corrupt, Incompatible, Internal | nothing: a person has to look | 503 |
//!
//! In no row does a request run without a claim.

use std::time::Duration;

use keyclaim::machine::Decision;
use keyclaim::{Claim, ClaimRequest, ClaimWait, EffectError, Effected, Error, ErrorKind, Result, Store};

/// How often a command is asked again before its caller is told (arbitrary; some four seconds in all).
const TRIES: u32 = 8;
/// How often a step that was not sent is run, should it not be sent again (arbitrary).
const NOT_SENT_TRIES: u32 = 3;
/// The first pause, doubled each time up to the longest (arbitrary).
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Claims, and asks again while the store is in doubt whether the claim was made.
pub(crate) async fn claim(
    store: &Store,
    mut request: ClaimRequest<'_>,
    wait: &ClaimWait,
) -> Result<Decision<Claim>> {
    let mut pause = PAUSE_FIRST;
    for _ in 1..TRIES {
        let error = match store.claim_wait_async(&request, wait).await {
            Err(error) if is_healed_by_reopening(&error) => error,
            told => return told,
        };
        // The nonce says that it is the same call: if it did win, it is told so.
        if let Some(nonce) = error.nonce() {
            request = request.nonce(nonce);
        }
        heal(store, &error, &mut pause).await;
    }
    store.claim_wait_async(&request, wait).await
}

/// Says an owner's command until its fate is known. Safe to repeat: the store applies it once.
pub(crate) async fn settle<T, F>(store: &Store, mut say: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let mut pause = PAUSE_FIRST;
    for _ in 1..TRIES {
        match say().await {
            Err(error) if error.kind() == ErrorKind::Busy => {
                tokio::time::sleep(error.retry_after().unwrap_or(pause)).await;
            }
            Err(error) if is_healed_by_reopening(&error) => heal(store, &error, &mut pause).await,
            told => return told,
        }
    }
    say().await
}

/// Runs a step until it has a result, or until trying on makes no sense.
///
/// A step may be run again whatever it said: one with a result is answered from the record, and one in
/// doubt does what was chosen for it.
pub(crate) async fn step<E, F>(
    store: &Store,
    mut run: impl FnMut() -> F,
) -> std::result::Result<Effected, EffectError<E>>
where
    F: Future<Output = std::result::Result<Effected, EffectError<E>>>,
{
    let mut pause = PAUSE_FIRST;
    let (mut tries, mut unsent) = (1, 1);
    loop {
        match run().await {
            // The call of an attempt before this one may still be under way. That ends by time.
            Err(EffectError::Settling { until_ms }) => {
                tokio::time::sleep(until_ms.since(store.now_ms()).to_duration()).await;
            }
            // Nothing happened, as this attempt knows or was told by the other side: once more.
            Err(EffectError::NotSent) if unsent < NOT_SENT_TRIES => {
                unsent += 1;
                tokio::time::sleep(pause).await;
            }
            Err(EffectError::Store(error)) if tries < TRIES && error.kind() == ErrorKind::Busy => {
                tries += 1;
                tokio::time::sleep(error.retry_after().unwrap_or(pause)).await;
            }
            Err(EffectError::Store(error)) if tries < TRIES && is_healed_by_reopening(&error) => {
                tries += 1;
                heal(store, &error, &mut pause).await;
            }
            told => return told,
        }
    }
}

fn is_healed_by_reopening(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Poisoned)
}

/// Opens the store's file again, off the runtime's threads. A store that is well is left alone.
async fn heal(store: &Store, error: &Error, pause: &mut Duration) {
    eprintln!("payments: {error}; reopening the store");
    let store = store.clone();
    match tokio::task::spawn_blocking(move || store.reopen()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => eprintln!("payments: reopening failed: {error}"),
        Err(error) => eprintln!("payments: reopening failed: {error}"),
    }
    tokio::time::sleep(*pause).await;
    *pause = (*pause * 2).min(PAUSE_MAX);
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use keyclaim::{Abandoned, Options};

    use super::*;

    type Told = std::result::Result<Effected, EffectError<std::io::Error>>;

    /// How often a step was run that is told these things one after the other, and how it ended.
    async fn run(told: impl IntoIterator<Item = EffectError<std::io::Error>>) -> (u32, Told) {
        let store = Store::in_memory(Options::new(Abandoned::Hold)).expect("a store");
        let (runs, mut told) = (Cell::new(0), told.into_iter());
        let ended = step(&store, || {
            runs.set(runs.get() + 1);
            std::future::ready(told.next().map_or(Ok(Effected::Done(Vec::new())), Err))
        });
        let ended = ended.await;
        (runs.get(), ended)
    }

    #[tokio::test]
    async fn a_step_that_settles_or_was_not_sent_is_run_again() {
        let settling = || EffectError::Settling { until_ms: keyclaim::Millis(0) };
        let (runs, ended) = run([settling(), settling(), EffectError::NotSent, EffectError::NotSent]).await;
        assert_eq!((runs, ended.is_ok()), (5, true));
    }

    #[tokio::test]
    async fn a_step_that_is_never_sent_is_given_up() {
        let (runs, ended) = run(std::iter::repeat_with(|| EffectError::NotSent).take(100)).await;
        assert!(matches!(ended, Err(EffectError::NotSent)));
        assert_eq!(runs, NOT_SENT_TRIES);
    }

    #[tokio::test]
    async fn a_step_in_doubt_is_not_run_again_by_the_attempt_that_began_it() {
        let in_doubt = || EffectError::InDoubt(std::io::ErrorKind::ConnectionReset.into());
        for told in [in_doubt(), EffectError::CutOff] {
            let (runs, ended) = run([told]).await;
            assert_eq!((runs, ended.is_ok()), (1, false));
        }
    }
}
