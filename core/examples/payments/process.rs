//! The scene's server: this program again, as a process that can be killed.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::Failure;

/// How long a server may take to listen or to end (arbitrary; a loaded machine is slow).
const PATIENCE: Duration = Duration::from_secs(30);
/// The scene's lease, and the limit of its steps: short, so that a takeover need not be waited for long.
const LEASE_MS: &str = "2000";
const STEP_LIMIT_MS: &str = "3000";

/// A server on a free port. It ends when its stdin does, so it cannot outlive this process.
pub(crate) struct ServerProcess {
    child: Child,
    pub(crate) addr: SocketAddr,
}

impl ServerProcess {
    /// Starts one on the files in this folder, and waits until it listens.
    pub(crate) async fn start(dir: &Path) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", "--addr", "127.0.0.1:0", "--lease-ms", LEASE_MS])
            .args(["--step-limit-ms", STEP_LIMIT_MS, "--demo", "--until-stdin-ends", "--dir"])
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            // A Ctrl-C is for the scene, which then ends its server in order.
            .process_group(0)
            .spawn()?;
        let stdout = child.stdout.take().ok_or("the server has no stdout")?;
        let mut line = String::new();
        tokio::time::timeout(PATIENCE, BufReader::new(stdout).read_line(&mut line)).await??;
        let addr = line.trim().strip_prefix("listening on ").ok_or("the server did not start; see above")?;
        Ok(Self { addr: addr.parse()?, child })
    }

    /// The number of the process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    /// Kills it as `kill -9` does, and waits until it is gone.
    pub(crate) async fn kill(&mut self) -> Result<ExitStatus, Failure> {
        self.child.start_kill()?;
        Ok(tokio::time::timeout(PATIENCE, self.child.wait()).await??)
    }

    /// Asks it to end and waits until it has.
    pub(crate) async fn end(mut self) -> Result<ExitStatus, Failure> {
        drop(self.child.stdin.take());
        Ok(tokio::time::timeout(PATIENCE, self.child.wait()).await??)
    }

    /// Returns when it ended by itself.
    pub(crate) async fn ended(&mut self) -> Result<ExitStatus, Failure> {
        // Without its stdin at hand, which `wait` would close, and with it end the server.
        let stdin = self.child.stdin.take();
        let status = self.child.wait().await;
        self.child.stdin = stdin;
        Ok(status?)
    }
}
