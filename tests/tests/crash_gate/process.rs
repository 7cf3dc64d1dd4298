//! A process of the gate: lines go in, lines come out, and it can be killed.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread::{Builder, JoinHandle};

/// Dropped, it is killed.
pub(crate) struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    reader: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts one; each line it says goes to `lines`.
    pub(crate) fn start(role: &str, arguments: &[String], lines: Sender<String>) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_gate"))
            .arg(role)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the gate's program starts");
        let stdout = child.stdout.take().expect("it is piped");
        let read = move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    break;
                }
            }
        };
        let reader = Builder::new().name("gate-lines".into()).spawn(read).expect("a thread");
        Self { stdin: child.stdin.take(), child, reader: Some(reader) }
    }

    /// Says a line to it. Whether it still lives is not known, so nothing is wrong if it does not.
    pub(crate) fn say(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("it is not killed yet");
        drop(stdin.write_all(format!("{line}\n").as_bytes()));
    }

    /// Kills it with SIGKILL. What it had said is read when this returns.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it is our child");
        let status = self.child.wait().expect("it is our child");
        // Had it ended by itself, the gate would have tested nothing.
        assert_eq!(status.signal(), Some(9), "it ended by itself: {status}");
        self.reader.take().map(JoinHandle::join).expect("it is killed once").expect("it reads lines");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
