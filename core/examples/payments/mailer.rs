//! The mail service, as a file: outside the store, and without keys of its own.
//!
//! It sends whatever it is asked to send, twice if it is asked twice. But it notes the reference that a
//! mail came with, and can be asked for it: so a mail in doubt is looked up, and never sent on suspicion.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::journal::Journal;
use crate::ledger::Fault;

/// Where mails are sent from.
#[derive(Clone, Debug)]
pub(crate) struct Mailer {
    journal: Journal<Mail>,
}

/// One mail that was sent.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Mail {
    /// The service's name of it.
    pub(crate) id: String,
    /// What it can be asked for by.
    pub(crate) lookup: String,
    /// The payment it is about.
    pub(crate) reference: String,
    /// The charge it is the receipt of.
    pub(crate) charge: String,
}

impl Mailer {
    /// The mailer that keeps its journal in this folder.
    pub(crate) fn new(dir: &Path) -> Self {
        Self { journal: Journal::new(dir.join("mails.jsonl")) }
    }

    /// Sends a receipt. *Durability*: it is noted on disk when this returns. Blocks.
    pub(crate) fn send(&self, lookup: &str, reference: &str, charge: &str) -> Result<String, Fault> {
        let mut journal = self.journal.open().map_err(Fault::NotSent)?;
        let mail = Mail {
            id: format!("em_{:06}", journal.entries.len() + 1),
            lookup: lookup.into(),
            reference: reference.into(),
            charge: charge.into(),
        };
        journal.append(&mail).map_err(Fault::InDoubt)?;
        Ok(mail.id)
    }

    /// The mail that was sent with this, if there is one. Blocks.
    pub(crate) fn find(&self, lookup: &str) -> io::Result<Option<Mail>> {
        Ok(self.mails()?.into_iter().find(|mail| mail.lookup == lookup))
    }

    /// All mails so far. Blocks.
    pub(crate) fn mails(&self) -> io::Result<Vec<Mail>> {
        self.journal.open().map(|journal| journal.entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mail_is_sent_as_often_as_asked_and_found_by_what_it_came_with() {
        let dir = tempfile::tempdir().expect("a folder");
        let mailer = Mailer::new(dir.path());
        assert_eq!(mailer.find("k").expect("readable"), None);
        for _ in 0..2 {
            mailer.send("k", "order", "ch_1").expect("sent");
        }
        assert_eq!(mailer.mails().expect("readable").len(), 2);
        assert_eq!(mailer.find("k").expect("readable").map(|mail| mail.id), Some("em_000001".into()));
    }
}
