//! The embedded store: everything that touches files and redb.
//!
//! From the bottom: `backend` is what redb reads and writes through, `journal` keeps the writes of an
//! opening back until the file is known to be ours, `file` and `create` open and make stores, `fault`
//! turns redb's errors into ours.
#![allow(dead_code, reason = "the commit engine on top of this layer comes next and uses all of it")]

pub(crate) mod backend;
pub(crate) mod fault;
pub(crate) mod file;

mod clock;
mod create;
mod holder;
mod journal;

#[cfg(any(test, feature = "testing"))]
pub mod inject;

pub use clock::SystemClock;

#[cfg(test)]
mod tests;
