//! A child process whose lines are read as they come, and which is killed.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::line::READY;

/// SIGKILL.
const KILL: i32 = 9;

/// Dropped, it is killed.
pub(crate) struct Process {
    child: Child,
    ready: Receiver<()>,
    reader: Option<JoinHandle<Vec<String>>>,
}

impl Process {
    pub(crate) fn start(program: &Path, arguments: &[String]) -> Self {
        let mut child = Command::new(program)
            .args(arguments)
            // Ends with this process, at the latest: then nobody reads what the child says.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the child's program starts");
        let stdout = child.stdout.take().expect("it is piped");
        let (sender, ready) = channel();
        let read = move || {
            let mut lines = Vec::new();
            let mut output = BufReader::new(stdout);
            let mut line = String::new();
            // A line is one write, so only a whole one ever comes; half of one would be nobody's answer.
            while output.read_line(&mut line).is_ok_and(|len| len > 0) && line.ends_with('\n') {
                line.pop();
                if line == READY {
                    let _ = sender.send(());
                }
                lines.push(std::mem::take(&mut line));
            }
            lines
        };
        let reader = Builder::new().name("kills-lines".into()).spawn(read).expect("a thread");
        Self { child, ready, reader: Some(reader) }
    }

    /// Whether the child has said that it works.
    pub(crate) fn wait_for_ready(&self, within: Duration) -> bool {
        !matches!(
            self.ready.recv_timeout(within),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected)
        )
    }

    /// How it ended, if it did so by itself.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it is our child")
    }

    /// Kills it with SIGKILL and returns all that it had said. If it had ended before, with its last words.
    pub(crate) fn kill(&mut self) -> Vec<String> {
        self.child.kill().expect("it is our child");
        let status = self.child.wait().expect("it is our child");
        let mut lines =
            self.reader.take().map(JoinHandle::join).expect("it is killed once").expect("it only reads");
        if status.signal() != Some(KILL) {
            let mut words = String::new();
            if let Some(stderr) = &mut self.child.stderr {
                drop(stderr.read_to_string(&mut words));
            }
            lines = lines.split_off(lines.len().saturating_sub(3));
            lines.push(words);
        }
        lines
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
