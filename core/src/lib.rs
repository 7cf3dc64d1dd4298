//! keyclaim

// Stricter than the workspace, and not in tests: a panic here loses a claim, and time, randomness and threads are
// arguments everywhere but in the few places that say why (clippy.toml lists what is meant).
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::indexing_slicing, clippy::unwrap_used))]

pub mod clock;
pub mod codec;
pub mod fingerprint;
pub mod http;
pub mod key;
pub mod limits;
pub mod machine;
pub mod rows;
#[cfg(feature = "store")]
pub mod store;

#[cfg(feature = "store")]
mod claim;
mod error;
mod policy;
#[cfg(feature = "store")]
mod stats;
mod token;

#[cfg(feature = "store")]
pub use claim::Claim;
pub use error::{Error, ErrorKind, Result};
pub use key::{Id, Key, Scope};
pub use policy::{Abandoned, AfterFailure, AfterWindow, Millis, Policy};
#[cfg(feature = "store")]
pub use stats::Stats;
#[cfg(feature = "store")]
pub use store::{ClaimRequest, ClaimWait, Options, Store};
pub use token::{Generation, Nonce, StoreId, Token, downstream_key, downstream_key_of_id};
