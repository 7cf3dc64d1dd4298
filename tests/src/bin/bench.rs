//! Measures a store against the engine under it: see `keyclaim_tests::bench`.

use std::process::ExitCode;

use keyclaim_tests::bench;

fn main() -> ExitCode {
    bench::main(std::env::args().skip(1))
}
