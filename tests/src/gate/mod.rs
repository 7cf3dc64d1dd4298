//! The processes of the crash gate: a worker that takes orders and is killed, and the providers that it
//! calls.
//!
//! ```text
//!   the test --lines--> gate worker --HTTP--> gate provider (charges)   a ledger file of its own
//!            <--lines--             --HTTP--> gate provider (mails)     a ledger file of its own
//! ```
//!
//! An order has three phases: its row, a charge, a receipt by mail. The test says where a worker stops, kills
//! it there with SIGKILL, starts the next one on the same file, and counts in the ledgers what happened.

mod boundary;
mod client;
mod plant;
mod provider;
mod settings;
mod steps;
mod worker;

pub use boundary::{Boundary, Step};
pub use plant::Plant;
pub use provider::{Manners, Row, rows};
pub use settings::{Doubt, Settings};

/// What a process of the gate ends with when it cannot go on.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Runs the process that these arguments ask for, until its stdin ends.
///
/// # Errors
/// If they ask for none, or what it needs cannot be had.
pub fn main(arguments: &[String]) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match arguments.split_first() {
        Some((role, rest)) if role == "provider" => provider::serve(&runtime, rest),
        Some((role, rest)) if role == "worker" => worker::work(&runtime, Settings::parse(rest)?),
        _ => Err("the first argument is provider or worker".into()),
    }
}

/// Says one line to whoever started this process. A line is one write, so a kill leaves no half of one.
fn say(line: &str) {
    use std::io::Write;
    let mut stdout = std::io::stdout().lock();
    // Nobody listens any more: then stdin has ended too, and with it this process ends.
    drop(stdout.write_all(format!("{line}\n").as_bytes()).and_then(|()| stdout.flush()));
}
