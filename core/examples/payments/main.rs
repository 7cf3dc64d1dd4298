//! An example payments API over HTTP: take it as a starting point for your own.
//!
//! ```text
//!   payments [run] [--check]          a scene: a server of its own, 64 clients, lost answers, kill -9
//!   payments serve --addr A --dir D   the API alone
//! ```
//!
//! Read it in this order: `handler` (what comes before and after a claim), `attempt` (what its winner
//! does: a charge, then a receipt), `patience` (what to do when the store fails), `ledger` and `mailer`
//! (the card network and the mail service, which are outside). The modules below `scene` are only the script that shows what the API promises.

mod accounts;
mod attempt;
mod handler;
mod journal;
mod ledger;
mod mailer;
mod patience;
mod payment;
mod server;
mod wire;

mod client;
mod process;
mod report;
mod scene;

use std::process::ExitCode;

/// What `main` and the server end with: the text is for the person who started them.
type Failure = Box<dyn std::error::Error + Send + Sync>;

const USAGE: &str = "usage: payments [run] [--check]
       payments serve --addr HOST:PORT --dir DIR [--lease-ms N] [--step-limit-ms N]
                      [--demo] [--until-stdin-ends]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match start(&arguments) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("payments: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn start(arguments: &[String]) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) if !command.starts_with("--") => (command.as_str(), rest),
        _ => ("run", arguments),
    };
    match command {
        "run" => {
            let is_check = match rest {
                [] => false,
                [flag] if flag == "--check" => true,
                _ => return Err(USAGE.into()),
            };
            runtime.block_on(scene::run(is_check))
        }
        "serve" => {
            let settings = server::Settings::parse(rest).ok_or(USAGE)?;
            runtime.block_on(server::serve(&settings)).map(|()| ExitCode::SUCCESS)
        }
        _ => Err(USAGE.into()),
    }
}

/// Returns when this process is asked to end: Ctrl-C, or the signal a service manager sends.
async fn asked_to_end() -> std::io::Result<()> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted,
        _ = terminate.recv() => Ok(()),
    }
}
