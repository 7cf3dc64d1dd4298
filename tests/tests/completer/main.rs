//! The completer, through the public API: what it finishes and how, what it leaves alone, and what bounds it.

#[path = "../faulty/mod.rs"]
mod faulty;
mod kit;
mod passes;
mod pauses;
mod races;
mod threads;
mod tries;
