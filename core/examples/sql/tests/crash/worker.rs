//! The process that is killed: it answers requests with the example's handler, and says where it is.

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use keyclaim::{Abandoned, EffectError, Options, Policy, Store};
use keyclaim_example_sql::order::{InDoubt, NoAnswer, Steps, answer};

use crate::watched::{Plant, Watched};
use crate::world::{Db, Kind, World, order};

/// Arbitrary: a try takes a limit or so.
const TRIES_MAX: u32 = 100;

/// What a worker is to do.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// None: each second request repeats, the others ask.
    pub(crate) in_doubt: Option<InDoubt>,
    pub(crate) plant: Plant,
    pub(crate) limit: Duration,
    /// The numbers of the requests.
    pub(crate) requests: Range<u32>,
    /// Where it stops, and waits to be killed.
    pub(crate) stop_at: &'static str,
}

impl Job {
    pub(crate) fn new(in_doubt: InDoubt) -> Self {
        Self { in_doubt: Some(in_doubt), ..Self::default() }
    }

    pub(crate) fn stop_at(self, stop_at: &'static str) -> Self {
        Self { stop_at, ..self }
    }
}

impl Default for Job {
    /// Answers request 0 and ends.
    fn default() -> Self {
        // Arbitrary, and short: nobody takes over before an attempt's limit.
        let limit = Duration::from_millis(100);
        Self { in_doubt: None, plant: Plant::Sound, limit, requests: 0..1, stop_at: "" }
    }
}

pub(crate) struct Worker {
    child: Child,
    out: BufReader<ChildStdout>,
    /// Held open: a worker that has stopped reads from it for ever.
    _input: ChildStdin,
}

impl Worker {
    pub(crate) fn start(world: &World, job: &Job) -> Self {
        let mut child = Command::new(env::current_exe().expect("this test"))
            .args(["worker::helper", "--exact", "--nocapture", "--test-threads=1"])
            .env("SQL_KIND", if world.kind == Kind::Postgres { "postgres" } else { "sqlite" })
            .env("SQL_PLACE", &world.place)
            .env("SQL_STORE", world.store())
            .env("SQL_IN_DOUBT", format!("{:?}", job.in_doubt))
            .env("SQL_PLANT", format!("{:?}", job.plant))
            .env("SQL_LIMIT_MS", job.limit.as_millis().to_string())
            .env("SQL_REQUESTS", format!("{} {}", job.requests.start, job.requests.end))
            .env("SQL_STOP_AT", job.stop_at)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this test can be started");
        let (out, input) = (child.stdout.take().expect("piped"), child.stdin.take().expect("piped"));
        Self { child, out: BufReader::new(out), _input: input }
    }

    /// The next thing that it says, none at its end.
    pub(crate) fn said(&mut self) -> Option<(u32, String)> {
        loop {
            let mut line = String::new();
            if self.out.read_line(&mut line).expect("text") == 0 {
                return None;
            }
            // The test harness prints the test's name in front of the first line, without an end.
            if let Some((_, said)) = line.trim_end().rsplit_once('@')
                && let Some((request, what)) = said.split_once(' ')
            {
                return Some((request.parse().expect("a number"), what.to_owned()));
            }
        }
    }

    pub(crate) fn wait_for(&mut self, moment: &str) {
        while let Some((_, what)) = self.said() {
            if what == moment {
                return;
            }
        }
        panic!("the worker ended and never was {moment}: {:?}", self.child.wait());
    }

    /// SIGKILL; then what it had said and nobody had heard.
    pub(crate) fn kill(mut self) -> Vec<(u32, String)> {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a child can be waited for");
        std::iter::from_fn(|| self.said()).collect()
    }

    /// All that it says until it ends by itself, and well.
    pub(crate) fn end(mut self) -> Vec<(u32, String)> {
        let said = std::iter::from_fn(|| self.said()).collect();
        let status = self.child.wait().expect("a child can be waited for");
        assert!(status.success(), "{status}: {said:?}");
        said
    }
}

/// What [`Worker::start`] starts; nothing otherwise.
#[test]
fn helper() {
    let Some(store) = env::var_os("SQL_STORE") else { return };
    let text = |name: &str| env::var(name).expect("started by a test");
    let limit = Duration::from_millis(text("SQL_LIMIT_MS").parse().expect("a number"));
    let fixed = [InDoubt::Repeat, InDoubt::Ask]
        .into_iter()
        .find(|choice| format!("{:?}", Some(choice)) == text("SQL_IN_DOUBT"));
    let kind = if text("SQL_KIND") == "postgres" { Kind::Postgres } else { Kind::Sqlite };
    let plant = [Plant::Sound, Plant::NoKey, Plant::NoToken]
        .into_iter()
        .find(|plant| format!("{plant:?}") == text("SQL_PLANT"))
        .expect("a plant");
    let requests = text("SQL_REQUESTS");
    let (first, end) = requests.split_once(' ').expect("a range");
    let requests: Range<u32> = first.parse().expect("a number")..end.parse().expect("a number");

    let policy = Policy::new(Abandoned::Rerun).lease(limit).expect("valid");
    let store = Store::open(store, Options::with_policy(policy)).expect("its last user is dead");
    let place = text("SQL_PLACE");
    let db = Db::connect(kind, &place);
    let stop_at = text("SQL_STOP_AT");
    let request = std::cell::Cell::new(0);
    let reached = |moment: &str| {
        say(request.get(), moment);
        if moment == stop_at {
            std::io::stdin().read_to_end(&mut Vec::new()).expect("a pipe");
        }
    };
    let mut orders = Watched { db, plant, reached };
    for number in requests {
        request.set(number);
        say(number, "started");
        let order = order(&name(number));
        let in_turn = if number % 2 == 0 { InDoubt::Ask } else { InDoubt::Repeat };
        let steps = Steps { limit, in_doubt: fixed.unwrap_or(in_turn) };
        let mut tries = 0;
        let told = loop {
            tries += 1;
            assert!(tries < TRIES_MAX, "request {number} is never answered");
            match answer(&store, &mut orders, &order, steps) {
                Err(NoAnswer::Decision("in_flight")) => {}
                // A busy machine can take longer than the limit; a client asks again, as one that was told to.
                Err(NoAnswer::Step(EffectError::InDoubt(_) | EffectError::NotReconciled(_))) => {
                    orders.db = Db::connect(kind, &place);
                }
                told => break told,
            }
        };
        let number_of_order = told.expect("it can be answered");
        say(number, &format!("answer {}", String::from_utf8(number_of_order).expect("digits")));
    }
    store.close().expect("healthy");
}

pub(crate) fn name(request: u32) -> String {
    format!("request-{request}")
}

/// One write, so that a killed process has said a line or has not.
fn say(request: u32, what: &str) {
    std::io::stdout().lock().write_all(format!("@{request} {what}\n").as_bytes()).expect("a pipe");
}
