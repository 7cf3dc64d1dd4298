//! Scripts of operations on one store, and the log that every language must write for them.
//!
//! `tests/vectors/scripts/README.md` is the format; this is its interpreter in Rust.

mod log;
mod read;

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keyclaim::clock::ManualClock;
use keyclaim::machine::{Decision, InDoubt};
use keyclaim::store::inject::{Fault, Faults, Op};
use keyclaim::{Claim, Millis, Options, Result, Store, Token};
use log::{Log, Times};
use read::Fields;

/// Runs a script and returns its log: one line for each of the script's lines.
///
/// # Panics
/// If the script itself is wrong: an unknown operation, a claim nobody won, a missing field.
pub fn run(script: &str) -> String {
    let mut world = World::new();
    let mut log = String::new();
    for (at, line) in script.lines().enumerate() {
        let fields = Fields::parse(line).unwrap_or_else(|error| panic!("line {}: {error}", at + 1));
        let result = match world.step(&fields) {
            Ok(result) => result,
            Err(error) => format!("error {}", error.kind()),
        };
        writeln!(log, "{} {} {result}", at + 1, fields.op()).expect("a string takes all");
    }
    log
}

/// One script's store, clock and claims.
struct World {
    dir: tempfile::TempDir,
    clock: ManualClock,
    store: Option<Store>,
    /// What the script opened its store with, for the claims that set some of it anew.
    opened: Fields,
    times: Times,
    claims: HashMap<String, Claim>,
    tokens: HashMap<String, Token>,
    faults: Faults,
    panics: Arc<AtomicU64>,
}

impl World {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().expect("the system has room for a temporary folder"),
            clock: ManualClock::new(1_700_000_000_000),
            store: None,
            opened: Fields::default(),
            times: Times(Millis(0)),
            claims: HashMap::new(),
            tokens: HashMap::new(),
            faults: Faults::default(),
            panics: Arc::default(),
        }
    }

    fn step(&mut self, fields: &Fields) -> Result<String> {
        match fields.op() {
            "about" => Ok("ok".into()),
            "open" => self.open(fields),
            "advance" | "fault" | "clear_faults" | "panic" | "overwrite" | "damage" => {
                Ok(self.outside(fields))
            }
            "claim" => self.claim(fields),
            "close" | "reopen" | "inspect" | "list" => self.look(fields),
            "renew" | "checkpoint" | "begin_effect" | "finish_effect" | "complete" | "release"
            | "abandon" | "hold" | "drop" => self.own(fields),
            "resolve_complete" | "resolve_absent" | "resolve_resumable" | "forget" | "extend_window" => {
                self.operate(fields)
            }
            other => panic!("there is no operation {other}"),
        }
    }

    fn open(&mut self, fields: &Fields) -> Result<String> {
        let mut options =
            Options::with_policy(fields.policy()?).clock(Arc::new(self.clock.clone())).renew_leases_max(0);
        if let Some(claims) = fields.number("queue_len_max") {
            options = options.queue_len_max(usize(claims))?;
        }
        if let Some(bytes) = fields.number("key_len_max") {
            options = options.key_len_max(usize(bytes))?;
        }
        if let Some(bytes) = fields.number("body_len_max") {
            options = options.body_len_max(usize(bytes))?;
        }
        let (faults, panics) = (options.faults(), options.panics());
        let store = if fields.flag("in_memory") {
            Store::in_memory(options)?
        } else {
            Store::open(self.dir.path().join("store"), options)?
        };
        if fields.flag("second") {
            return Ok("ok".into());
        }
        if self.times.0 == Millis(0) {
            self.times = Times(store.now_ms());
        }
        (self.faults, self.panics, self.opened) = (faults, panics, fields.clone());
        self.store = Some(store);
        Ok("ok".into())
    }

    /// What happens around the store, not in it.
    fn outside(&mut self, fields: &Fields) -> String {
        match fields.op() {
            "advance" => {
                self.clock.advance(fields.number("ms").expect("advance needs ms"));
                let now_ms = self.store().now_ms();
                return Log::new("ok").time("now", Some(now_ms), self.times).end();
            }
            "clear_faults" => self.faults.clear(),
            "panic" => self.panics.store(fields.number("next").unwrap_or(1), Ordering::SeqCst),
            "overwrite" | "damage" => self.damage(fields),
            _ => self.faults.add(Fault {
                op: match fields.text("on") {
                    "read" => Op::Read,
                    "write" => Op::Write,
                    "sync" => Op::Sync,
                    other => panic!("there is no fault on {other}"),
                },
                nth: fields.number("nth").unwrap_or(1),
                from_then_on: fields.flag("from_then_on"),
                done: fields.flag("done"),
                errno: 5,
            }),
        }
        "ok".into()
    }

    /// Changes bytes of the closed store's file: at a place, or wherever they are found.
    fn damage(&self, fields: &Fields) {
        let path = self.dir.path().join("store");
        let mut file = std::fs::read(&path).expect("the store has a file to damage");
        let bytes = fields.bytes("bytes").expect("this operation needs bytes");
        let with = fields.bytes("with").unwrap_or_else(|| bytes.clone());
        let places: Vec<usize> = match fields.number("at") {
            Some(at) => vec![usize(at)],
            None => (0..file.len()).filter(|at| file[*at..].starts_with(&bytes)).collect(),
        };
        assert!(!places.is_empty(), "the bytes to damage are not in the file");
        for at in places {
            file.iter_mut().skip(at).zip(&with).for_each(|(old, new)| *old = *new);
        }
        std::fs::write(&path, file).expect("the store's file can be written");
    }

    fn claim(&mut self, fields: &Fields) -> Result<String> {
        let token = fields.any_text("token").map(|name| self.tokens[name]);
        let (store, times) = (self.store(), self.times);
        let decision = fields.with_request(&self.opened, token, |request| store.claim(request))??;
        let log = log::decision(&decision, times);
        if let Decision::Won(claim) = decision {
            let name = fields.any_text("as").unwrap_or("").to_owned();
            self.tokens.insert(name.clone(), claim.token());
            self.claims.insert(name, claim);
        }
        Ok(log)
    }

    fn look(&mut self, fields: &Fields) -> Result<String> {
        match fields.op() {
            // The handle stays: whoever uses it from now on is told that it is closed.
            "close" => self.store().clone().close().map(|()| "ok".into()),
            "reopen" => self.store().reopen().map(|()| "ok".into()),
            "inspect" => Ok(log::inspection(self.store().inspect(&fields.id()?)?.as_ref(), self.times)),
            _ => {
                let after = fields.key("after")?;
                let rows_max = usize(fields.number("rows_max").unwrap_or(1_000));
                let page = self.store().list(&fields.scope()?, fields.which(), after.as_ref(), rows_max)?;
                Ok(log::page(&page))
            }
        }
    }

    fn own(&mut self, fields: &Fields) -> Result<String> {
        let name = fields.any_text("claim").unwrap_or("");
        if fields.op() == "drop" {
            self.claims.remove(name).expect("a script drops claims that it won");
            return Ok("ok".into());
        }
        let claim = self.claims.get(name).unwrap_or_else(|| panic!("no claim was won as {name}: {fields:?}"));
        let span = |name: &str| fields.number(name).map(Duration::from_millis);
        let step = || fields.any_text("step").unwrap_or("");
        let ok = match fields.op() {
            "renew" => {
                let until_ms = claim.renew(span("lease_ms"))?;
                return Ok(Log::new("ok").time("lease_until", until_ms, self.times).end());
            }
            "checkpoint" => {
                let point = fields.any_text("point").unwrap_or("");
                claim.checkpoint(point, &fields.bytes("data").unwrap_or_default())
            }
            "begin_effect" => {
                let in_doubt = match (fields.any_text("in_doubt"), fields.number("settle_ms")) {
                    (_, Some(settle_ms)) => InDoubt::Reconcile { settle_ms: Millis(settle_ms) },
                    (Some("repeat"), None) => InDoubt::Repeat,
                    _ => InDoubt::Hold,
                };
                let answer = claim.begin_effect(step(), span("limit_ms").unwrap_or_default(), in_doubt)?;
                return Ok(log::effect(&answer, self.times));
            }
            "finish_effect" => {
                claim.finish_effect(step(), fields.step_result().expect("finish_effect needs a result"))
            }
            "complete" => claim.complete(&fields.outcome()),
            "release" => claim.release(),
            "abandon" => claim.abandon(),
            _ => claim.hold(),
        };
        ok.map(|()| "ok".into())
    }

    fn operate(&mut self, fields: &Fields) -> Result<String> {
        let seen = match fields.any_text("seen") {
            Some(name) => self.tokens[name],
            None => Token(fields.number("seen").expect("an operator names the token it saw")),
        };
        let (store, id) = (self.store(), fields.id()?);
        let token = match fields.op() {
            "resolve_complete" => store.resolve_complete(&id, seen, fields.outcome()),
            "resolve_absent" => store.resolve_absent(&id, seen),
            "resolve_resumable" => store.resolve_resumable(&id, seen, fields.step_result()),
            "forget" => store.forget(&id, seen),
            _ => {
                let window_ms = fields.number("window_ms").expect("extend_window needs window_ms");
                store.extend_window(&id, seen, Duration::from_millis(window_ms))
            }
        }?;
        if let Some(name) = fields.any_text("as") {
            self.tokens.insert(name.to_owned(), token);
        }
        Ok(Log::new("ok").put("token", token).end())
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("a script opens its store first")
    }
}

fn usize(number: u64) -> usize {
    usize::try_from(number).expect("scripts use small numbers")
}
