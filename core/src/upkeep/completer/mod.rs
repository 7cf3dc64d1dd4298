//! The completer: finishes abandoned requests without their callers, by handlers for their operations.
//!
//! ```text
//! look at what is abandoned -> take it over by compare-and-set -> handler -> say how the try ended
//! ```
//!
//! It takes over what stored its request ([`ClaimRequest::operation`](crate::ClaimRequest::operation)), has
//! a handler here, and whose lease is over; it loses quietly to whoever is faster. A try that comes to nothing
//! is followed by a pause that is kept with the record; after so many tries the claim is held for a person.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::backoff::Backoff;
use crate::effect::EffectError;
use crate::limits::{
    FINISH_CLOSE_WAIT_MS_DEFAULT, FINISHING_DEFAULT, FINISHING_MAX, OPERATION_LEN_MAX, TRIES_MAX_DEFAULT,
};
use crate::machine::Outcome;
use crate::store::Cancel;
use crate::{Claim, Error, Millis, Result, Store};

mod crew;
mod pass;

pub(crate) use crew::Crew;
pub use pass::{CompleterPass, CompleterReport};
pub(crate) use pass::{feed, log};

/// How abandoned requests are finished: the handlers of the operations, and what bounds them.
///
/// Clones share the handlers. A handler must not own a handle on the store, which would then never close; it is
/// lent one ([`Takeover::store`]).
#[derive(Clone)]
pub struct Completer {
    pub(crate) handlers: HashMap<String, Handler>,
    pub(crate) concurrency: usize,
    pub(crate) tries_max: u32,
    pub(crate) backoff: Backoff,
    pub(crate) close_wait: Duration,
}

/// What finishes one operation.
pub(crate) type Handler = Arc<dyn Fn(&Takeover) -> Result<Ended, Later> + Send + Sync>;

/// An abandoned request that was taken over: everything its caller stored, and the claim to go on with.
///
/// The claim is renewed while the handler runs, like any claim that lives in this process.
#[derive(Debug)]
pub struct Takeover {
    pub(crate) claim: Claim,
    pub(crate) taken: Taken,
    pub(crate) store: Store,
    pub(crate) closing: Cancel,
}

/// What goes with the win of an abandoned claim, read in the transaction that won it.
pub(crate) struct Taken {
    pub(crate) operation: String,
    pub(crate) request: Vec<u8>,
    pub(crate) lease_ms: Option<Millis>,
    pub(crate) tries: u32,
}

/// How a handler says that a try ended, when it is not to be tried again.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Ended {
    /// The request has this outcome: it is recorded, and every later claim is answered with it.
    Complete(Outcome),
    /// Nobody here can know the outcome: the claim is held for a person.
    Hold,
    /// The handler has ended the claim by itself: completed, abandoned, released or held it. If it has
    /// not, the try counts as one that said nothing, and comes to the same as [`Later`].
    Said,
}

/// How a handler says that this try came to nothing: the attempt is abandoned, and the request tried again
/// after the pause, until the tries are used up.
///
/// `?` makes one of an [`EffectError`], with the instant at which its step will have settled, and of an
/// [`Error`] of the store. It carries no text, since what went wrong elsewhere may quote the request.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Later {
    /// No try before this store time can succeed.
    pub(crate) not_before_ms: Millis,
}

impl Completer {
    /// One without handlers: 100 tries, pauses of up to one second at first and ten minutes in the end, four at once.
    pub fn new() -> Self {
        Self {
            handlers: HashMap::new(),
            concurrency: FINISHING_DEFAULT,
            tries_max: TRIES_MAX_DEFAULT,
            backoff: Backoff::default(),
            close_wait: Duration::from_millis(FINISH_CLOSE_WAIT_MS_DEFAULT),
        }
    }

    /// Finishes abandoned requests of this operation with this handler. An operation without one is left alone.
    ///
    /// The handler runs the same steps, in the same order, as the code that answers the caller: best is one
    /// function for both. It may be run again after any of its instructions, by a process that died there;
    /// what is a step ([`Claim::effect`]) is not repeated then. A panic counts as a try that came to nothing.
    ///
    /// Errors: `Invalid` for a name that no operation can have, and for one that has a handler already.
    pub fn handler(
        mut self,
        operation: impl Into<String>,
        handler: impl Fn(&Takeover) -> Result<Ended, Later> + Send + Sync + 'static,
    ) -> Result<Self> {
        let operation = operation.into();
        if !(1..=OPERATION_LEN_MAX).contains(&operation.len()) {
            return Err(Error::invalid("the operation's name must have 1 to 255 bytes"));
        }
        if self.handlers.insert(operation, Arc::new(handler)).is_some() {
            return Err(Error::invalid("the operation has two handlers; register one for each name"));
        }
        Ok(self)
    }

    /// Sets how many requests are finished at once, each in a thread (default 4, at most 256).
    pub fn concurrency(mut self, threads: usize) -> Result<Self> {
        if !(1..=FINISHING_MAX).contains(&threads) {
            return Err(Error::invalid("the completer must have between 1 and 256 threads"));
        }
        self.concurrency = threads;
        Ok(self)
    }

    /// Sets after how many tries of the completer a claim is held for a person (default 100).
    ///
    /// Callers' own attempts do not count. A person who lets it go on
    /// ([`Store::resolve_resumable`](crate::Store::resolve_resumable)) gives it as many tries again.
    pub fn tries_max(mut self, tries: u32) -> Result<Self> {
        if tries == 0 {
            return Err(Error::invalid(
                "a completer without tries would hold every claim; allow one or more",
            ));
        }
        self.tries_max = tries;
        Ok(self)
    }

    /// Sets the pause between two tries at one request (default up to a second after the first, up to ten
    /// minutes in the end). It is never shorter than a millisecond.
    ///
    /// It counts from the end of the attempt and is kept with the record: neither a pass nor a restart
    /// shortens it. A caller who asks again meanwhile does not have to wait for it.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets how long closing the store waits for handlers that run (default 20 s).
    ///
    /// Afterwards the store closes under them: what they say then is answered `Closed`, and their requests
    /// are abandoned when their leases end, as if the process had died.
    #[must_use]
    pub fn close_wait(mut self, wait: Duration) -> Self {
        self.close_wait = wait;
        self
    }
}

impl Default for Completer {
    fn default() -> Self {
        Self::new()
    }
}

impl Takeover {
    /// The claim to go on with: its steps, its recovery point, [`Claim::effect`] and all else.
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// The operation's name.
    pub fn operation(&self) -> &str {
        &self.taken.operation
    }

    /// The request, byte for byte as it was stored.
    pub fn request(&self) -> &[u8] {
        &self.taken.request
    }

    /// A handle for this try, as for completing the claim in [`Store::transaction`]. To keep it beyond the
    /// try does not keep the completer at work.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Which try of the completer this is, from 1.
    pub fn tries(&self) -> u32 {
        self.taken.tries
    }

    /// Whether the store is closing: a handler that takes long should set a recovery point and come to an
    /// end with [`Later`].
    pub fn is_closing(&self) -> bool {
        self.closing.is_cancelled()
    }
}

impl Later {
    /// Try again after the pause.
    pub fn new() -> Self {
        Self::default()
    }

    /// Try again after the pause, and not before this store time, at most a week away.
    pub fn not_before(when: Millis) -> Self {
        Self { not_before_ms: when }
    }
}

impl<E> From<EffectError<E>> for Later {
    fn from(error: EffectError<E>) -> Self {
        match error {
            EffectError::Settling { until_ms } => Self::not_before(until_ms),
            // A claim that is held, or another's by now, stays so: the completer's next word finds that out.
            EffectError::InDoubt(_)
            | EffectError::CutOff
            | EffectError::NotSent
            | EffectError::NotReconciled(_)
            | EffectError::Held(_)
            | EffectError::Store(_) => Self::new(),
        }
    }
}

impl From<Error> for Later {
    fn from(_: Error) -> Self {
        Self::new()
    }
}

impl From<Outcome> for Ended {
    fn from(outcome: Outcome) -> Self {
        Self::Complete(outcome)
    }
}

impl fmt::Debug for Completer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completer")
            .field("operations", &self.handlers.len())
            .field("concurrency", &self.concurrency)
            .field("tries_max", &self.tries_max)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The stored request is customer data.
        write!(f, "{} bytes of {}, try {}", self.request.len(), self.operation, self.tries)
    }
}
