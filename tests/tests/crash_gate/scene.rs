//! A worker, its two providers, and the client that wants its orders done.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

use keyclaim_tests::gate::{Boundary, Doubt, Manners, Plant, Row, Settings, Step, rows};
use tempfile::TempDir;

use crate::process::Process;
use crate::verdict::{Order, Verdict};

/// How long anything may take before the gate calls it lost (arbitrary; a loaded machine is slow).
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Scene {
    /// How workers are started.
    pub(crate) settings: Settings,
    pub(crate) orders: BTreeMap<String, Order>,
    /// What failed and was tried again: for the eyes of whoever looks into a failure.
    pub(crate) failures: Vec<String>,
    providers: [Provider; 2],
    worker: Option<Process>,
    lines: (Sender<String>, Receiver<String>),
    /// How many calls wait to be booked.
    pub(crate) afloat: usize,
    is_ready: bool,
    acks: usize,
    /// How many orders are in flight, as last said by the worker.
    open: Option<usize>,
    _dir: TempDir,
}

struct Provider {
    process: Process,
    ledger: PathBuf,
}

impl Scene {
    /// Two providers of which nothing is known but that they have these manners, and no worker yet.
    pub(crate) fn new(doubt: Doubt, manners: Manners, seed: u64) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let lines = channel();
        let mut addrs = Vec::new();
        let providers = [(Step::Charge, 0), (Step::Mail, 1)].map(|(step, number)| {
            let ledger = dir.path().join(step.name());
            let mut arguments = vec![ledger.to_string_lossy().into_owned()];
            arguments.extend(manners.arguments(seed ^ number));
            let process = Process::start("provider", &arguments, lines.0.clone());
            let line: String = lines.1.recv_timeout(PATIENCE).expect("the provider listens");
            let addr = line.strip_prefix("listening ").expect("it says where");
            addrs.push(addr.parse::<SocketAddr>().expect("an address"));
            Provider { process, ledger }
        });
        let settings = Settings {
            store: dir.path().join("orders.keyclaim"),
            charges: addrs[0],
            mails: addrs[1],
            doubt,
            lease: Duration::from_millis(300),
            limit: Duration::from_secs(1),
            settle: Duration::from_millis(300),
            patience: Duration::from_secs(1),
            renews: true,
            completes: false,
            plant: None,
        };
        Self {
            settings,
            orders: BTreeMap::new(),
            failures: Vec::new(),
            providers,
            worker: None,
            lines,
            afloat: 0,
            is_ready: false,
            acks: 0,
            open: None,
            _dir: dir,
        }
    }

    /// What the provider of a scenario has to be able to do, and no more.
    pub(crate) fn manners(doubt: Doubt, plant: Option<Plant>) -> Manners {
        let is_trusted = plant.is_none() || plant == Some(Plant::KeyOfAttempt);
        Manners { collapses: doubt == Doubt::Repeat && is_trusted, ..Manners::default() }
    }

    /// Starts a worker. It may take lines before it is ready.
    pub(crate) fn start(&mut self) {
        self.is_ready = false;
        self.worker = Some(Process::start("worker", &self.settings.arguments(), self.lines.0.clone()));
    }

    pub(crate) fn until_ready(&mut self) {
        assert!(self.until(|scene| scene.is_ready), "the worker does not start");
    }

    /// Kills the worker with SIGKILL, and takes in all that it had said.
    pub(crate) fn kill(&mut self) {
        self.worker.take().expect("there is a worker").kill();
        self.take_all();
        for order in self.orders.values_mut() {
            order.out = 0;
            order.is_there = false;
        }
    }

    /// Sends an order, which stops at a boundary if one is given.
    pub(crate) fn send(&mut self, key: &str, stop: Option<Boundary>) {
        let order = self.orders.entry(key.into()).or_default();
        order.out += 1;
        let stop = stop.map_or("-".into(), |stop| stop.to_string());
        self.worker.as_mut().expect("there is a worker").say(&format!("order {key} {stop}"));
    }

    /// Has the providers stop the next calls of these orders at boundaries that are theirs.
    pub(crate) fn halt<'a>(&mut self, orders: impl IntoIterator<Item = (&'a str, Boundary)>) {
        let lines = orders.into_iter().filter_map(|(key, boundary)| match boundary {
            Boundary::Waiting(step) => Some((step, format!("halt {key} unbooked"))),
            Boundary::Booked(step) => Some((step, format!("halt {key} unanswered"))),
            _ => None,
        });
        self.tell(lines.collect());
    }

    /// Has the providers book or refuse what waits, and stop no more calls.
    pub(crate) fn let_go(&mut self) {
        self.tell([Step::Charge, Step::Mail].map(|step| (step, "let-go".into())).into());
        assert!(self.until(|scene| scene.afloat == 0), "a late call does not land");
    }

    fn tell(&mut self, lines: Vec<(Step, String)>) {
        let acks = self.acks + lines.len();
        for (step, line) in lines {
            self.providers[usize::from(step == Step::Mail)].process.say(&line);
        }
        assert!(self.until(|scene| scene.acks >= acks), "a provider does not answer");
    }

    /// Waits until the worker has finished by itself what is in flight; false if it takes too long.
    pub(crate) fn settle_by_itself(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        self.open = None;
        while self.open != Some(0) && Instant::now() < deadline {
            self.worker.as_mut().expect("there is a worker").say("open");
            self.pass(Instant::now() + Duration::from_millis(50));
        }
        self.open == Some(0)
    }

    /// Sends what is not settled, as often as it fails, until all is answered or held; false if it takes
    /// too long.
    pub(crate) fn settle(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while self.orders.values().any(|order| !order.is_settled()) {
            let open: Vec<String> = self.keys(|order| !order.is_settled() && order.out == 0);
            for key in &open {
                self.send(key, None);
            }
            if Instant::now() > deadline || !self.take_one(deadline) {
                return false;
            }
        }
        true
    }

    /// Settles everything; resolves what is held, as a person does who looks into the ledgers; and says
    /// what is to be said then.
    pub(crate) fn finish(&mut self) -> Verdict {
        let mut is_finished = self.settle();
        // Each step of an order can be in doubt once, and once more whenever its call is too slow.
        loop {
            let held = self.keys(|order| order.held.is_some());
            if held.is_empty() || !is_finished {
                break;
            }
            // By then what was sent is booked or never will be.
            sleep(self.settings.settle);
            for key in &held {
                self.resolve(key);
            }
            is_finished &= self.until(|scene| scene.orders.values().all(|order| order.held.is_none()));
            is_finished &= self.settle();
        }
        // Once more: whatever was answered is answered in the same bytes.
        let keys = self.keys(|_| true);
        for key in &keys {
            self.send(key, None);
        }
        is_finished &= self.until(|scene| scene.orders.values().all(|order| order.out == 0));
        let mut verdict = Verdict::of(&self.orders, &self.booked(Step::Charge), &self.booked(Step::Mail));
        if !is_finished {
            verdict.wrong.push(format!("not finished in time; failures: {:?}", self.failures));
        }
        verdict
    }

    fn resolve(&mut self, key: &str) {
        let Some(step) = self.orders.get(key).and_then(|order| order.held) else { return };
        let booked = self.booked(step).into_iter().find(|row| row.reference == key);
        let name = booked.map_or("-".into(), |row| row.name);
        self.worker.as_mut().expect("there is a worker").say(&format!("resolve {key} {name}"));
    }

    /// What the ledger of this step's provider says.
    pub(crate) fn booked(&self, step: Step) -> Vec<Row> {
        let ledger = &self.providers[usize::from(step == Step::Mail)].ledger;
        rows(ledger).expect("the ledger is readable")
    }

    pub(crate) fn keys(&self, wanted: impl Fn(&Order) -> bool) -> Vec<String> {
        self.orders.iter().filter(|(_, order)| wanted(order)).map(|(key, _)| key.clone()).collect()
    }

    /// Takes in what is said until it is so; false if it takes too long.
    pub(crate) fn until(&mut self, is_so: impl Fn(&Self) -> bool) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            if !self.take_one(deadline) {
                return false;
            }
        }
        true
    }

    /// Takes in what is said until this time.
    pub(crate) fn pass(&mut self, until: Instant) {
        while self.take_one(until) {}
    }

    fn take_all(&mut self) {
        while let Ok(line) = self.lines.1.try_recv() {
            self.take(&line);
        }
    }

    fn take_one(&mut self, deadline: Instant) -> bool {
        let rest = deadline.saturating_duration_since(Instant::now());
        let line = self.lines.1.recv_timeout(rest);
        line.map(|line| self.take(&line)).is_ok()
    }

    fn take(&mut self, line: &str) {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["ready"] => self.is_ready = true,
            ["ok"] => self.acks += 1,
            ["open", count] => self.open = Some(count.parse().expect("a number")),
            ["landed", _] => self.afloat -= 1,
            ["waits", key] => {
                self.afloat += 1;
                self.order(key).is_there = true;
            }
            ["halted", key] | ["at", key, _] => self.order(key).is_there = true,
            ["won", key, attempt] => self.order(key).attempt = attempt.parse().expect("a number"),
            ["done", key, attempt, answer] => self.order(key).done(attempt == "0", answer),
            ["held", key, reason, step] => self.order(key).found_held(reason, step),
            ["wrong", key, ..] => self.order(key).wrong.push(line.into()),
            ["resolved", key] => self.order(key).held = None,
            ["failed", key, ..] => {
                let order = self.order(key);
                order.out = order.out.saturating_sub(1);
                self.failures.push(line.into());
            }
            _ => panic!("not a line of the gate: {line}"),
        }
    }

    fn order(&mut self, key: &str) -> &mut Order {
        self.orders.get_mut(key).expect("only what was sent is spoken of")
    }
}
