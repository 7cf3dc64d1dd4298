//! The fields of one line of a script.

use std::time::Duration;

use keyclaim::fingerprint::{Request, Scheme};
use keyclaim::machine::{Outcome, Response, StepResult};
use keyclaim::store::Which;
use keyclaim::{
    Abandoned, AfterFailure, AfterWindow, ClaimRequest, Id, Key, Nonce, Policy, Result, Scope, Token,
};
use serde_json::{Map, Value};

const POLICY: [&str; 6] =
    ["abandoned", "lease_ms", "window_ms", "horizon_ms", "after_window", "after_failure"];

/// One line.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    pub(super) fn parse(line: &str) -> serde_json::Result<Self> {
        serde_json::from_str(line).map(Self)
    }

    pub(super) fn op(&self) -> &str {
        self.text("op")
    }

    pub(super) fn text(&self, name: &str) -> &str {
        self.any_text(name).unwrap_or_else(|| panic!("the field {name} is missing"))
    }

    pub(super) fn any_text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name)?.as_u64()
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.0.get(name) == Some(&Value::Bool(true))
    }

    /// The bytes of a field: text, or hex under its name with `_hex`, as often as `_repeat` says.
    pub(super) fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let bytes = match (self.any_text(name), self.any_text(&format!("{name}_hex"))) {
            (Some(text), _) => text.as_bytes().to_vec(),
            (None, Some(hex)) => unhex(hex),
            (None, None) => return None,
        };
        Some(match self.number(&format!("{name}_repeat")) {
            Some(times) => bytes.repeat(super::usize(times)),
            None => bytes,
        })
    }

    pub(super) fn scope(&self) -> Result<Scope> {
        Scope::new(self.bytes("scope").unwrap_or_else(|| b"acct_1".to_vec()))
    }

    pub(super) fn id(&self) -> Result<Id> {
        let key = self.bytes("key").expect("this operation needs a key");
        Ok(Id::new(self.scope()?, Key::with_limit(key, 1024)?))
    }

    pub(super) fn key(&self, name: &str) -> Result<Option<Key>> {
        self.bytes(name).map(Key::new).transpose()
    }

    pub(super) fn which(&self) -> Which {
        match self.any_text("which") {
            Some("in_flight") => Which::InFlight,
            Some("held") => Which::Held,
            Some("unfinished") => Which::Unfinished,
            _ => Which::All,
        }
    }

    pub(super) fn policy(&self) -> Result<Policy> {
        let mut policy = Policy::new(match self.text("abandoned") {
            "rerun" => Abandoned::Rerun,
            "hold" => Abandoned::Hold,
            other => panic!("there is no abandoned policy {other}"),
        });
        if let Some(lease) = self.0.get("lease_ms") {
            policy = match lease.as_u64() {
                Some(lease_ms) => policy.lease(Duration::from_millis(lease_ms))?,
                None => policy.no_lease(),
            };
        }
        if let Some(window_ms) = self.number("window_ms") {
            policy = policy.replay_window(Duration::from_millis(window_ms))?;
        }
        if let Some(horizon_ms) = self.number("horizon_ms") {
            policy = policy.reaper_horizon(Duration::from_millis(horizon_ms))?;
        }
        if self.any_text("after_window") == Some("refuse") {
            policy = policy.after_window(AfterWindow::Refuse);
        }
        Ok(policy.after_failure(self.after_failure()))
    }

    /// Words the claim, and asks with it. Settings that the claim leaves out are the store's.
    pub(super) fn with_request<R>(
        &self,
        opened: &Fields,
        token: Option<Token>,
        ask: impl FnOnce(&ClaimRequest<'_>) -> R,
    ) -> Result<R> {
        let part = |name: &str| self.bytes(name);
        let (method, target) = (part("method"), part("target"));
        let (media_type, payload) = (part("media_type"), part("payload").unwrap_or_default());
        let (operation, stored) = (self.any_text("operation"), part("request").unwrap_or_default());
        let scheme =
            if self.any_text("scheme") == Some("json") { Scheme::json([""; 0])? } else { Scheme::Raw };
        let request = Request {
            method: method.as_deref().unwrap_or(b"POST"),
            target: target.as_deref().unwrap_or(b"/"),
            media_type: media_type.as_deref(),
            payload: &payload,
            ..Request::default()
        };
        let mut claim = ClaimRequest::new(self.id()?, scheme, request);
        if POLICY.iter().any(|name| self.0.contains_key(*name)) {
            let mut all = opened.clone();
            all.0.extend(self.0.clone());
            claim = claim.policy(all.policy()?);
        }
        if let Some(operation) = operation {
            claim = claim.operation(operation, &stored);
        }
        if let Some(nonce) = self.bytes("nonce") {
            claim = claim.nonce(Nonce(nonce.try_into().expect("a nonce has 16 bytes")));
        }
        if let Some(token) = token {
            claim = claim.token(token);
        }
        Ok(ask(&claim))
    }

    pub(super) fn outcome(&self) -> Outcome {
        let status = u16::try_from(self.number("status").unwrap_or(200)).expect("a status is a small number");
        let mut response = Response::new(status, self.bytes("body").unwrap_or_default());
        for line in self.0.get("headers").and_then(Value::as_array).into_iter().flatten() {
            let text = |at: usize| line[at].as_str().expect("a header is a name and a value");
            response = response.header(text(0), text(1));
        }
        match self.any_text("class") {
            Some("failure") => Outcome::failure(response, self.after_failure()),
            _ => Outcome::success(response),
        }
    }

    pub(super) fn step_result(&self) -> Option<StepResult> {
        let bytes = || self.bytes("data").unwrap_or_default().into();
        Some(match self.any_text("result")? {
            "done" => StepResult::Done(bytes()),
            "refused" => StepResult::Refused(bytes()),
            "not_sent" => StepResult::NotSent,
            other => panic!("a step does not end as {other}"),
        })
    }

    fn after_failure(&self) -> AfterFailure {
        match self.any_text("after_failure") {
            Some("reattempt") => AfterFailure::Reattempt,
            _ => AfterFailure::Replay,
        }
    }
}

fn unhex(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex digits come in pairs");
    (0..hex.len()).step_by(2).map(digit).collect()
}
