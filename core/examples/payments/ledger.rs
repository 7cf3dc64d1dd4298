//! The card network, as a file: outside the store, with its own durability and its own keys.
//!
//! Each charge is one line, synced before it is acknowledged, so that anyone can count them. Like a
//! real network it takes a downstream key with each charge and answers a repeated one with the first
//! charge. That, and nothing in this API, is what makes it safe to ask again when nobody knows whether
//! a charge went through.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::journal::Journal;
use crate::payment::Payment;

/// What the network has charged.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    journal: Journal<Charge>,
}

/// One charge that happened.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Charge {
    /// The network's name of it.
    pub(crate) id: String,
    /// The key it was asked for with.
    pub(crate) downstream_key: String,
    /// Who is paid.
    pub(crate) account: String,
    /// What is paid for.
    pub(crate) reference: String,
    /// How much, in the smallest unit.
    pub(crate) amount: u64,
    /// Of what.
    pub(crate) currency: String,
}

/// What the network says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Reply {
    /// The money moved, now or when the same key was used before.
    Charged {
        /// The network's name of the charge.
        charge: String,
        /// Whether it is the charge of an earlier call.
        repeated: bool,
    },
    /// It did not and will not, for this reason.
    Declined(&'static str),
}

/// Why a provider did not reply. The difference decides what may be said to the store.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The call was never sent.
    NotSent(io::Error),
    /// It was sent, and nobody knows what became of it.
    InDoubt(io::Error),
}

impl Ledger {
    /// The ledger in this folder. It is made with the first charge.
    pub(crate) fn new(dir: &Path) -> Self {
        Self { journal: Journal::new(dir.join("ledger.jsonl")) }
    }

    /// Charges a card. *Durability*: a new charge is on disk when this returns. Blocks.
    pub(crate) fn charge(
        &self,
        downstream_key: &str,
        account: &str,
        payment: &Payment,
    ) -> Result<Reply, Fault> {
        let mut journal = self.journal.open().map_err(Fault::NotSent)?;
        let earlier = journal.entries.iter().find(|charge| charge.downstream_key == downstream_key);
        if let Some(earlier) = earlier {
            return Ok(Reply::Charged { charge: earlier.id.clone(), repeated: true });
        }
        if payment.card == "tok_declined" {
            return Ok(Reply::Declined("card_declined"));
        }
        let charge = Charge {
            id: format!("ch_{:06}", journal.entries.len() + 1),
            downstream_key: downstream_key.into(),
            account: account.into(),
            reference: payment.reference.clone(),
            amount: payment.amount,
            currency: payment.currency.clone(),
        };
        journal.append(&charge).map_err(Fault::InDoubt)?;
        Ok(Reply::Charged { charge: charge.id, repeated: false })
    }

    /// All charges so far. Blocks.
    pub(crate) fn charges(&self) -> io::Result<Vec<Charge>> {
        self.journal.open().map(|journal| journal.entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payment(card: &str) -> Payment {
        Payment { amount: 5, currency: "EUR".into(), card: card.into(), reference: "r".into() }
    }

    fn charged(charge: &str, repeated: bool) -> Reply {
        Reply::Charged { charge: charge.into(), repeated }
    }

    #[test]
    fn one_downstream_key_is_charged_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let ledger = Ledger::new(dir.path());
        let charge = |key| ledger.charge(key, "a", &payment("tok_visa")).expect("a reply");
        assert_eq!(charge("k1"), charged("ch_000001", false));
        assert_eq!(charge("k1"), charged("ch_000001", true));
        assert_eq!(charge("k2"), charged("ch_000002", false));
        assert_eq!(ledger.charges().expect("readable").len(), 2);
    }

    #[test]
    fn a_declined_card_is_not_charged() {
        let dir = tempfile::tempdir().expect("a folder");
        let ledger = Ledger::new(dir.path());
        let reply = ledger.charge("k", "a", &payment("tok_declined")).expect("a reply");
        assert_eq!(reply, Reply::Declined("card_declined"));
        assert_eq!(ledger.charges().expect("readable"), []);
    }
}
