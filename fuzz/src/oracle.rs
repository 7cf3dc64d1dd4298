//! The oracle in Python: one process for as long as we live, a line for a line.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::top;

static RUNNING: Mutex<Option<Oracle>> = Mutex::new(None);

struct Oracle {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _process: Child,
}

/// What the oracle says to this line.
///
/// # Panics
/// If there is no Python, or the oracle fails.
pub(crate) fn ask(line: &Value) -> Value {
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let oracle = running.get_or_insert_with(Oracle::new);
    let mut answer = String::new();
    writeln!(oracle.input, "{line}").expect("the oracle reads; its own message is above");
    oracle.output.read_line(&mut answer).expect("the oracle writes text");
    serde_json::from_str(&answer).expect("the oracle answers each line; its own message is above")
}

impl Oracle {
    fn new() -> Self {
        let mut process = Command::new("python3")
            .args(["-B", "-u"])
            .arg(top().join("fuzz/oracle.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is needed for the fingerprints; install it and have it in the PATH");
        let input = process.stdin.take().expect("it is piped");
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        Self { input, output, _process: process }
    }
}
