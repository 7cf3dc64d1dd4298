//! A process of the crash gate: see `keyclaim_tests::gate`.

use std::process::ExitCode;

use keyclaim_tests::gate;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match gate::main(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("gate: {failure}");
            ExitCode::FAILURE
        }
    }
}
