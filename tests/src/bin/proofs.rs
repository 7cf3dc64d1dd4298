//! Runs the harnesses that prove the promises, and keeps the ledger of their runs: see
//! `keyclaim_tests::proofs` and `core/docs/proofs.md`.

use std::process::ExitCode;

use keyclaim_tests::proofs;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    proofs::main(&arguments)
}
