//! An embedded store of idempotency keys: of all requests with one key, one wins the claim.
//!
//! Within one *scope* and its *replay window*, of all requests that carry the same *key*, one wins the
//! *claim*; every other one is told, by its own write transaction and not by an earlier look, that it
//! lost and why. A winner that was overtaken can change nothing. A finished request is answered again
//! byte for byte. A crashed one is resumed at its last *recovery point*, and a step whose outcome
//! nobody knows is never repeated silently.
//!
//! It is an embedded store that decides who may run a keyed operation. It is not a lock server, not a
//! queue, not a promise about effects outside the store: those need a key of their own downstream. It
//! holds for one store file; two hosts with a store each are two winners. Not for network file systems.
//!
//! ```
//! use keyclaim::fingerprint::{Request, Scheme};
//! use keyclaim::machine::{Decision, Outcome, Response};
//! use keyclaim::{Abandoned, ClaimRequest, Id, Key, Options, Scope, Store};
//!
//! # fn main() -> keyclaim::Result<()> {
//! let store = Store::in_memory(Options::new(Abandoned::Rerun))?;
//! let id = Id::new(Scope::new("acct_7")?, Key::new("4f1c")?);
//! let request = Request { method: b"POST", target: b"/v1/payments", payload: b"{}", ..Request::default() };
//! let request = ClaimRequest::new(id, Scheme::Raw, request);
//!
//! let Decision::Won(claim) = store.claim(&request)? else { panic!("the key is new") };
//! assert!(matches!(store.claim(&request)?, Decision::InFlight { .. }));
//! claim.complete(&Outcome::success(Response::new(201, "paid")))?;
//! let Decision::Replay(replay) = store.claim(&request)? else { panic!("it is complete") };
//! assert_eq!(replay.response.body.bytes(), Some(&b"paid"[..]));
//! # Ok(())
//! # }
//! ```
//!
//! # Five nouns
//!
//! - A [`key`](key::Key), in its [`scope`](key::Scope): what a client named its intent.
//! - A [`Claim`]: the right to run it, with a lease that the store renews.
//! - A [`Token`]: proves which attempt owns the key, and fences off the others.
//! - A [`record`](machine::Record): what is stored behind a key.
//! - A [`decision`](machine::Decision): what a claim is answered.
//!
//! # What is promised
//!
//! | | promise |
//! |---|---|
//! | P1 | One owner: per key and generation at most one live token; a stale one gets `Fenced` and changes nothing |
//! | P2 | What was answered survives a kill, a crash of the system and a power cut |
//! | P3 | Everything a command changes, changes together |
//! | P4 | Damaged bytes are `Corrupt`, never a new key and never a made-up replay |
//! | P5 | A commit whose fate is not known is `Unknown`, and asking again resolves it |
//! | P6 | Store time never jumps, goes back or stands still; lease and replay window are two clocks |
//! | P7 | Replays are the same bytes until the window ends; another fingerprint is a `Mismatch` |
//! | P8 | The [`outbox`] delivers at least once, in order per ordering key; never before the commit |
//! | P9 | Queue, groups, memory and time to open are bounded: see [`limits`] |
//! | P10 | From the first release on, each one opens every older format and refuses a newer one |
//!
//! # Where to go on
//!
//! [`machine`] has the rules as plain functions, [`store`] the engine around them, [`http`] the wire
//! mapping, [`fingerprint`] and [`key`] the identity of requests. The pages of `core/docs` follow one
//! claim from end to end, and give the format on disk, the faults and the reasons.

// Stricter than the workspace, and not in tests: a panic here loses a claim, and time, randomness and threads are
// arguments everywhere but in the few places that say why (clippy.toml lists what is meant).
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::indexing_slicing, clippy::unwrap_used))]

pub mod app;
pub mod clock;
pub mod codec;
pub mod fingerprint;
pub mod http;
pub mod key;
pub mod limits;
pub mod machine;
pub mod outbox;
pub mod rows;
#[cfg(feature = "store")]
pub mod store;
#[cfg(feature = "store")]
pub mod upkeep;

mod backoff;
#[cfg(feature = "store")]
mod claim;
#[cfg(feature = "store")]
mod effect;
mod error;
mod hash;
mod policy;
#[cfg(feature = "store")]
mod stats;
mod token;
mod writes;

#[cfg(feature = "store")]
pub use claim::Claim;
#[cfg(feature = "store")]
pub use effect::{Call, Effect, EffectError, Effected, NoAsk, ReadyEffect};
pub use error::{Error, ErrorKind, Result};
pub use key::{Id, Key, Scope};
pub use outbox::{Event, EventId};
pub use policy::{Abandoned, AfterFailure, AfterWindow, Millis, Policy};
#[cfg(feature = "store")]
pub use stats::Stats;
#[cfg(feature = "store")]
pub use store::{ClaimRequest, ClaimWait, Options, Sharing, Store, Transaction, View, transaction_error};
pub use token::{Generation, Nonce, StoreId, Token, downstream_key, downstream_key_of_id};
#[cfg(feature = "store")]
pub use upkeep::{Completer, CompleterPass, CompleterReport, Ended, Later, Reap, Reaped, Takeover};
pub use writes::{Conflict, Version, Writes, Written};

/// The pages outside the sources, so that their examples are run and their Rust is true.
#[cfg(all(doctest, feature = "store"))]
mod pages {
    #[doc = include_str!("../../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/outbox.md")]
    struct OutboxPage;
    #[doc = include_str!("../docs/stats.md")]
    struct StatsPage;

    #[doc = include_str!("../docs/upkeep.md")]
    struct Upkeep;
}
