//! keyclaim

// Stricter than the workspace, and not in tests: a panic here loses a claim, and time, randomness and threads are
// arguments everywhere but in the few places that say why (clippy.toml lists what is meant).
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::indexing_slicing, clippy::unwrap_used))]

pub mod codec;
pub mod fingerprint;
pub mod key;
pub mod limits;
pub mod machine;

mod error;
mod policy;
mod token;

pub use error::{Error, ErrorKind, Result};
pub use policy::{Abandoned, AfterFailure, AfterWindow, Millis, Policy};
pub use token::{Generation, Nonce, StoreId, Token};
