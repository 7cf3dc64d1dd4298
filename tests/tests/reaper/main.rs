//! The reaper, through the public API: what it removes, what it keeps and reports, and what it costs.

#[path = "../faulty/mod.rs"]
mod faulty;
mod kit;
mod passes;
mod removal;
mod threads;
mod unfinished;
