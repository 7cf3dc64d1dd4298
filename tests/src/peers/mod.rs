//! Another process that has the same store open, and does what it is told: one line of words in, one line out.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use keyclaim::machine::Decision;
use keyclaim::{Abandoned, Claim, ClaimWait, Completer, Error, Options, Policy, Reap, Sharing, Store};
use rustix::time::{ClockId, clock_gettime};

use crate::request::{request, success};

/// How the peers and their tests open a store: short leases, and nobody renews.
///
/// # Panics
/// Never: the lengths are in bounds.
pub fn options() -> Options {
    let policy = Policy::new(Abandoned::Rerun).lease(Duration::from_millis(LEASE_MS)).expect("in bounds");
    Options::with_policy(policy)
        .renew_leases_max(0)
        .sharing(Sharing::Processes)
        .write_wait(Duration::from_millis(WRITE_WAIT_MS))
}

/// How long a lease of [`options`] is, in milliseconds.
pub const LEASE_MS: u64 = 1_500;
/// What the peers that complete can finish.
pub const OPERATION: &str = "create_order";
/// How long a write of another process is waited for.
pub const WRITE_WAIT_MS: u64 = 700;

/// A process that is told what to do. Dropped, it is killed.
pub struct Peer {
    child: Child,
    words: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts one that opens the store at this path; `how` is `shared` or `alone`, and what it does by itself.
    ///
    /// # Panics
    /// If the program does not start.
    pub fn start(program: &Path, store: &Path, how: &[&str]) -> Self {
        let mut child = Command::new(program)
            .arg("peer")
            .arg(store)
            .args(how)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let (words, lines) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Self { child, words, lines: BufReader::new(lines) }
    }

    /// What it says next.
    ///
    /// # Panics
    /// If it has ended.
    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        let len = self.lines.read_line(&mut line).expect("a line");
        assert!(len > 0, "the other process has ended");
        line.trim_end().to_owned()
    }

    /// Tells it to do something, without waiting for it.
    ///
    /// # Panics
    /// If it has ended.
    pub fn tell(&mut self, words: &str) {
        self.words.write_all(format!("{words}\n").as_bytes()).expect("it listens");
    }

    /// Tells it to do something, and hears what came of it.
    pub fn ask(&mut self, words: &str) -> String {
        self.tell(words);
        self.hear()
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it with SIGKILL.
    ///
    /// # Panics
    /// If it is not there.
    pub fn kill(&mut self) {
        self.child.kill().expect("ours");
        self.child.wait().expect("ours");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The peer's side. The arguments are the store's path and how it is opened.
///
/// # Panics
/// If they are not.
pub fn main(arguments: &[String]) {
    let (path, how) = arguments.split_first().expect("the path of the store");
    let mut options = if how.iter().any(|word| word == "alone") {
        options().sharing(Sharing::OneProcess)
    } else {
        options()
    };
    if how.iter().any(|word| word == "reaps") {
        options = options.reap_every(Duration::from_millis(20)).expect("in bounds");
    }
    if how.iter().any(|word| word == "completes") {
        // The answer tells who has finished it.
        let me = std::process::id().to_string();
        let completer = Completer::new().handler(OPERATION, move |_| Ok(success(me.as_bytes()).into()));
        options = options
            .complete_every(Duration::from_millis(20), completer.expect("a short name"))
            .expect("in bounds");
    }
    let store = match Store::open(path, options) {
        Ok(store) => store,
        Err(error) => return say(&told_error(&error)),
    };
    say("ready");
    let mut claims: Vec<(String, Claim)> = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line.expect("the test's words");
        let words: Vec<&str> = line.split(' ').collect();
        say(&obey(&store, &mut claims, &words));
    }
}

fn obey(store: &Store, claims: &mut Vec<(String, Claim)>, words: &[&str]) -> String {
    let own = |key: &str, act: &dyn Fn(&Claim) -> keyclaim::Result<()>| match claims
        .iter()
        .rev()
        .find(|(its, _)| its == key)
    {
        Some((_, claim)) => act(claim).map_or_else(|error| told_error(&error), |()| "done".to_owned()),
        None => "no claim".to_owned(),
    };
    match words {
        ["claim", key] => told(store.claim(&request(key)), key, claims),
        ["wait", key, ms] => {
            let wait = ClaimWait::at_most(Duration::from_millis(ms.parse().expect("a number")));
            told(store.claim_wait(&request(key), &wait), key, claims)
        }
        ["complete", key, body] => own(key, &|claim| claim.complete(&success(body.as_bytes()))),
        ["renew", key] => own(key, &|claim| claim.renew(None).map(drop)),
        ["release", key] => own(key, &|claim| claim.release()),
        ["reap"] => store
            .reap(&Reap::new())
            .map_or_else(|error| told_error(&error), |reaped| format!("{}", reaped.removed)),
        // How much it has removed by itself.
        ["removed"] => {
            store.stats().map_or_else(|error| told_error(&error), |stats| stats.reaped.to_string())
        }
        // Until it is killed it holds what a write holds.
        ["sit"] => {
            let told = store.transaction::<(), Error>(|t| {
                drop(t.claim(&request("never"))?);
                say("sits");
                loop {
                    std::thread::park();
                }
            });
            format!("{told:?}")
        }
        ["close"] => store.clone().close().map_or_else(|error| told_error(&error), |()| "closed".to_owned()),
        _ => "what?".to_owned(),
    }
}

fn told(told: keyclaim::Result<Decision<Claim>>, key: &str, claims: &mut Vec<(String, Claim)>) -> String {
    match told {
        Ok(Decision::Won(claim)) => {
            let line = format!("won {} {:?}", claim.token(), claim.kind());
            claims.push((key.to_owned(), claim));
            line
        }
        Ok(Decision::Replay(replay)) => {
            let body = replay.response.body.bytes().unwrap_or_default();
            format!("replay {}", String::from_utf8_lossy(body))
        }
        Ok(other) => other.name().to_owned(),
        Err(error) => told_error(&error),
    }
}

fn told_error(error: &Error) -> String {
    format!("{:?}: {}", error.kind(), error.message())
}

fn say(line: &str) {
    println!("{line}");
}

/// Threads that all claim the same key, round after round, from an instant that all processes know. The arguments
/// are the store's path, the instant (monotonic, in nanoseconds), rounds and threads. Says `won ROUND TOKEN`.
///
/// # Panics
/// If the arguments are not these, or a claim is not answered.
pub fn race(arguments: &[String]) {
    let [path, start, rounds, threads] = arguments else { panic!("four arguments are wanted") };
    let number = |text: &String| text.parse::<u64>().expect("a number");
    let (start, rounds, threads) = (number(start), number(rounds), number(threads));
    // Longer than all rounds, so that whoever is last to claim meets the first one's claim.
    let policy = Policy::new(Abandoned::Rerun).lease(Duration::from_mins(10)).expect("in bounds");
    let options = Options::with_policy(policy).sharing(Sharing::Processes).write_wait(Duration::from_mins(1));
    let store = Store::open(path, options).unwrap_or_else(|error| panic!("opening: {error:?}"));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for round in 0..rounds {
                    // All begin a round at once; whoever is late goes on at once.
                    let begins = start + round * ROUND_NS;
                    std::thread::sleep(Duration::from_nanos(begins.saturating_sub(monotonic_ns())));
                    match store.claim(&request(&format!("round-{round}"))).expect("a claim is answered") {
                        Decision::Won(claim) => say(&format!("won {round} {}", claim.token())),
                        Decision::InFlight { .. } => {}
                        other => panic!("{}", other.name()),
                    }
                }
            });
        }
    });
    say("over");
}

/// Between the beginnings of two rounds (arbitrary).
const ROUND_NS: u64 = 10_000_000;

/// Nanoseconds of the clock that all processes of a machine have in common.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, rest) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.unwrap_or_default() * 1_000_000_000 + rest.unwrap_or_default()
}
