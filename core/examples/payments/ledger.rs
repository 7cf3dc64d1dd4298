//! The card network, as a file: outside the store, with its own durability and its own keys.
//!
//! Each charge is one line, synced before it is acknowledged, so that anyone can count them. Like a
//! real network it takes a downstream key with each charge and answers a repeated one with the first
//! charge. That, and nothing in this API, is what makes it safe to ask again when nobody knows whether
//! a charge went through.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::payment::Payment;

/// The ledger at a path; each call opens it, as each call to a network is its own.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    path: PathBuf,
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

/// Why there is no reply. The difference decides what may be said to the store.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The charge was never sent.
    NotSent(io::Error),
    /// It was sent, and nobody knows what became of it.
    InDoubt(io::Error),
}

impl Ledger {
    /// The ledger in this folder. It is made with the first charge.
    pub(crate) fn new(dir: &Path) -> Self {
        Self { path: dir.join("ledger.jsonl") }
    }

    /// Charges a card. *Durability*: a new charge is on disk when this returns. Blocks.
    pub(crate) fn charge(
        &self,
        downstream_key: &str,
        account: &str,
        payment: &Payment,
    ) -> Result<Reply, Fault> {
        let (mut file, charges) = self.open().map_err(Fault::NotSent)?;
        if let Some(earlier) = charges.iter().find(|charge| charge.downstream_key == downstream_key) {
            return Ok(Reply::Charged { charge: earlier.id.clone(), repeated: true });
        }
        if payment.card == "tok_declined" {
            return Ok(Reply::Declined("card_declined"));
        }
        let charge = Charge {
            id: format!("ch_{:06}", charges.len() + 1),
            downstream_key: downstream_key.into(),
            account: account.into(),
            reference: payment.reference.clone(),
            amount: payment.amount,
            currency: payment.currency.clone(),
        };
        let mut line = serde_json::to_vec(&charge).map_err(|error| Fault::NotSent(error.into()))?;
        line.push(b'\n');
        file.write_all(&line).and_then(|()| file.sync_all()).map_err(Fault::InDoubt)?;
        Ok(Reply::Charged { charge: charge.id, repeated: false })
    }

    /// The charge that was made under this key, if there is one. Blocks.
    pub(crate) fn find(&self, downstream_key: &str) -> io::Result<Option<Charge>> {
        Ok(self.charges()?.into_iter().find(|charge| charge.downstream_key == downstream_key))
    }

    /// All charges so far. Blocks.
    pub(crate) fn charges(&self) -> io::Result<Vec<Charge>> {
        self.open().map(|(_, charges)| charges)
    }

    /// The file, locked until it is dropped, at its end; and what it holds.
    fn open(&self) -> io::Result<(File, Vec<Charge>)> {
        let is_new = !self.path.try_exists()?;
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(&self.path)?;
        file.lock()?;
        if is_new && let Some(dir) = self.path.parent() {
            File::open(dir)?.sync_all()?;
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        // What was cut off by a crash was never acknowledged to anyone.
        let whole_len = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if whole_len < bytes.len() {
            file.set_len(whole_len as u64)?;
            bytes.truncate(whole_len);
        }
        file.seek(SeekFrom::End(0))?;
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let charges = lines.map(serde_json::from_slice).collect::<Result<_, _>>()?;
        Ok((file, charges))
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
        assert!(
            ledger.find("k2").expect("readable").is_some() && ledger.find("k3").expect("readable").is_none()
        );
    }

    #[test]
    fn a_declined_card_is_not_charged() {
        let dir = tempfile::tempdir().expect("a folder");
        let ledger = Ledger::new(dir.path());
        let reply = ledger.charge("k", "a", &payment("tok_declined")).expect("a reply");
        assert_eq!(reply, Reply::Declined("card_declined"));
        assert_eq!(ledger.charges().expect("readable"), []);
    }

    #[test]
    fn a_line_cut_off_by_a_crash_is_no_charge() {
        let dir = tempfile::tempdir().expect("a folder");
        let ledger = Ledger::new(dir.path());
        ledger.charge("k1", "a", &payment("tok_visa")).expect("a reply");
        let mut file = OpenOptions::new().append(true).open(&ledger.path).expect("there");
        file.write_all(b"{\"id\":\"ch_0").expect("written");
        let reply = ledger.charge("k2", "a", &payment("tok_visa")).expect("a reply");
        assert_eq!(reply, charged("ch_000002", false));
        assert_eq!(ledger.charges().expect("readable").len(), 2);
    }
}
