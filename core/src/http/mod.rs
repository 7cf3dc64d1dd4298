//! The HTTP border, for every framework and language: plain functions from decisions, errors and
//! endings to statuses, headers and problem documents, and back from answers to what is stored.
//!
//! ```text
//!   claim ---> Decision ---> Mapping::answer ---> Run, or Send a replay or a problem
//!         \--> Error ------> Mapping::failure --> Send a problem: fail closed
//!   handler ends ----------> Endings::ending ---> complete | release | abandon | hold
//!   its answer ------------> capture -----------> the Response that is stored
//!   complete fails --------> Mapping::unrecorded -> its own answer, marked, or a problem instead
//! ```
//!
//! Nothing here reads a clock, a socket or a store. What is answered before the claim (rate limits,
//! authentication, validation in front) never comes here and is never stored. The tables with their
//! sources and reasons are in `docs/http.md`.

mod capture;
mod code;
mod endings;
mod headers;
mod mapping;
mod problem;
mod wire;

#[cfg(test)]
mod tests;

pub use capture::{BodySink, Keep, capture};
pub use code::{Code, Preset};
pub use endings::{Ended, Ending, Endings, Row, Rule, When, outcome};
pub use headers::{NEVER_STORED, STORED};
pub use mapping::Mapping;
pub use wire::{HeaderLine, HttpAnswer, HttpResponse, Unrecorded};

/// `true` on every replay, whatever its value; the name is the one Stripe documents.
pub const REPLAYED: &str = "Idempotent-Replayed";
/// `false` or `unknown` on an answer that will not or may not be given again.
pub const STORED_MARK: &str = "Idempotent-Stored";
/// For how many whole seconds from its completion a request is answered again.
pub const REPLAY_WINDOW: &str = "Idempotency-Replay-Window";
/// The first 8 hex digits of the store's id.
pub const STORE: &str = "Keyclaim-Store";
