//! What crosses modules, processes or languages; the tests themselves are in `tests/`.
//!
//! Here is what several of them share: requests to claim with, threads that race, futures that run
//! on one thread, seeded properties, the processes of the crash gate, and the scripts that every
//! language interprets.

#[cfg(feature = "store")]
pub mod bench;
pub mod block;
#[cfg(feature = "store")]
pub mod gate;
#[cfg(feature = "store")]
pub mod kills;
pub mod machine_kit;
#[cfg(feature = "store")]
pub mod peers;
pub mod pool;
#[cfg(feature = "store")]
pub mod proofs;
#[cfg(feature = "store")]
pub mod request;
#[cfg(feature = "store")]
pub mod script;
pub mod seeded;
