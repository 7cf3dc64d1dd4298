//! Several commands in one commit.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use keyclaim::machine::Decision;
use keyclaim::{Claim, Error, Store, Writes, Written};

use super::action::Action;
use super::drive::{Did, Driver, Owner};
use super::look::name;
use super::perform::broken;
use super::values::{outcome, writes};
use crate::block::join_all;
use crate::request::request;

impl Driver {
    /// Queues the commands while a transaction holds the writer, so that one commit decides them all.
    pub(super) fn group_of(&mut self, actions: &[Action]) -> Did {
        let (store, owners) = (self.store(), &self.owners);
        let (queued, all_queued) = mpsc::channel();
        let (may_start, start) = mpsc::channel();
        let answers = thread::scope(|scope| {
            let asking = scope.spawn(move || {
                if start.recv().is_err() {
                    return Vec::new();
                }
                let mut all: Vec<Asked<'_>> =
                    actions.iter().map(|action| ask(store, owners, action)).collect();
                // Polled behind the others: by now they are queued.
                all.push(Box::pin(async move {
                    let _ = queued.send(());
                    Ok(Answer::Nothing)
                }));
                join_all(all)
            });
            let held = store.transaction::<(), Stop>(|_| {
                let _ = may_start.send(());
                let _ = all_queued.recv_timeout(Duration::from_secs(10));
                Err(Stop(None))
            });
            drop(may_start);
            let answers = asking.join().unwrap_or_default();
            match held {
                Err(Stop(Some(error))) => Err(error),
                _ => Ok(answers),
            }
        })?;
        let mut deltas = Vec::new();
        for (action, answer) in actions.iter().zip(answers) {
            deltas.extend(match (action, answer?) {
                (Action::Claim { key, nonce, writes }, Answer::Claimed(told)) => {
                    self.claimed(*key, *nonce, *writes, *told)?
                }
                (Action::Complete { key, .. }, Answer::Said(Written::Done(()))) => {
                    self.said(action, *key, self.now_ms(), None)?
                }
                (action, _) => return broken(format!("{action:?} conflicts")),
            });
        }
        Ok(deltas)
    }
}

enum Answer {
    Claimed(Box<Written<Decision<Claim>>>),
    Said(Written),
    Nothing,
}

type Asked<'a> = std::pin::Pin<Box<dyn Future<Output = Result<Answer, Error>> + 'a>>;

/// Ends a transaction without a trace.
struct Stop(Option<Error>);

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self(Some(error))
    }
}

fn ask<'a>(store: &'a Store, owners: &'a BTreeMap<u64, Owner>, action: &'a Action) -> Asked<'a> {
    match action {
        Action::Claim { key, nonce, writes: wanted } => Box::pin(async move {
            let request = request(&name(*key)).nonce(*nonce);
            let wanted = wanted.map_or_else(Writes::new, |number| writes(*key, number));
            store.claim_with_async(&request, &wanted).await.map(Box::new).map(Answer::Claimed)
        }),
        Action::Complete { key, number, .. } => Box::pin(async move {
            match owners.get(key) {
                Some(owner) => owner
                    .claim
                    .complete_with_async(&outcome(*number), writes(*key, *number))
                    .await
                    .map(Answer::Said),
                None => Ok(Answer::Nothing),
            }
        }),
        _ => Box::pin(async { Ok(Answer::Nothing) }),
    }
}
