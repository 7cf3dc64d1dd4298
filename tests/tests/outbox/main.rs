//! The outbox and its relay, through the public API: order, dead letters, leases, threads, processes.

#[path = "../faulty/mod.rs"]
mod faulty;

mod dead;
mod kit;
mod leases;
mod model;
mod order;
mod processes;
mod relay;
