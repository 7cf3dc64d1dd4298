//! What crosses modules, processes or languages; the tests themselves are in `tests/`.
//!
//! Here is what several of them share: requests to claim with, threads that race, futures that run
//! on one thread, seeded properties, the processes of the crash gate, and the scripts that every
//! language interprets.

pub mod bench;
pub mod block;
pub mod gate;
pub mod kills;
pub mod machine_kit;
pub mod peers;
pub mod pool;
pub mod proofs;
pub mod request;
pub mod script;
pub mod seeded;
