//! A child that claims until it is killed.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::thread;

use super::load::{self, Keys};

/// The argument that makes this program the child.
pub(super) const CHILD: &str = "claim-until-killed";

const THREADS: usize = 4;

/// Lets a child claim fresh keys from this number on, kills it with SIGKILL after so many answers,
/// and returns how many it told of.
pub(super) fn kill_while_claiming(path: &Path, from: u64, acks: usize) -> u64 {
    let program = env::current_exe().expect("the bench knows its own file");
    let mut child = Command::new(program)
        .arg(CHILD)
        .arg(path)
        .arg(from.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the child starts");
    let told = child.stdout.take().expect("its output is a pipe");
    let heard = BufReader::new(told).lines().map_while(Result::ok).take(acks).count();
    child.kill().expect("the child can be killed");
    child.wait().expect("the child is gone");
    assert_eq!(heard, acks, "the child ended before it was killed");
    heard as u64
}

/// The child: claims on several threads, a line for every answer, until it is killed.
pub(super) fn claim_until_killed(mut args: impl Iterator<Item = String>) -> ExitCode {
    let (Some(path), Some(Ok(from))) = (args.next(), args.next().map(|from| from.parse())) else {
        return ExitCode::FAILURE;
    };
    let store = load::open(Path::new(&path));
    let keys = Keys::from(from);
    let (sender, answers) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let (sender, store, keys) = (sender.clone(), &store, &keys);
            scope.spawn(move || {
                // Ends when the parent is gone and nobody reads what is told.
                while sender.send(load::win(store, &load::request(keys.next())).token()).is_ok() {}
            });
        }
        let mut out = std::io::stdout();
        for token in answers {
            if writeln!(out, "{token}").is_err() {
                break;
            }
        }
    });
    ExitCode::SUCCESS
}
