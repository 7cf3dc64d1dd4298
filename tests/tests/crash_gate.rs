//! The crash gate: a worker is killed with SIGKILL anywhere, and nothing is charged or mailed twice.
//!
//! A worker takes orders, each with a row, a charge and a receipt by mail. Charges and mails are booked by
//! providers that are processes of their own; what counts is what their ledgers say. An order ends with one
//! charge and one mail, or held where it must be, and once a person has resolved it, with one of each too.
//! Plants show that the gate sees what it is there for.

#[path = "crash_gate/boundaries.rs"]
mod boundaries;
#[path = "crash_gate/late.rs"]
mod late;
#[path = "crash_gate/process.rs"]
mod process;
#[path = "crash_gate/random.rs"]
mod random;
#[path = "crash_gate/scene.rs"]
mod scene;
#[path = "crash_gate/verdict.rs"]
mod verdict;
