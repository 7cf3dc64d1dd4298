//! Planted bugs for tests: one mistake each that a real store has made. Each must be seen by the harness that is
//! named for it in the tests' list; one that survives is a hole in that harness.
//!
//! They stand in the engine around the machine, and never in the machine: what it decides is left as it is, what
//! goes in and what comes out is not.

use std::borrow::Cow;

use crate::codec::{self, Kind};
use crate::limits::BODY_INLINE_LEN_MAX;
use crate::machine::{Answer, Body, Command, Decision, Record};
use crate::rows::{Table, Write};

/// A mistake that a store may be told to make.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(unreachable_pub, reason = "public with the feature testing")]
#[cfg_attr(not(any(test, feature = "testing")), allow(dead_code, reason = "asked for, and never made"))]
pub enum Plant {
    /// A group is answered before its sync.
    AckBeforeSync,
    /// A commit that failed is answered as if it had not.
    CommitErrorIgnored,
    /// The file is never synced.
    SyncLeftOut,
    /// The store goes on after its file has failed.
    PoisonLeftOut,
    /// What a command writes beside its record is committed behind it.
    WritesBehind,
    /// The last of several commands in a group is answered and not written.
    LastOfGroupLost,
    /// The highest token is not stored, so that it is issued again after an opening.
    TokenNotStored,
    /// Whoever says something about a claim is believed to be its owner.
    StaleOwnerObeyed,
    /// Another request under the same key passes as the first one.
    FingerprintIgnored,
    /// Whoever claims passes as the one who has claimed before.
    NonceIgnored,
    /// That the claim's own writes were applied once is forgotten.
    WroteForgotten,
    /// A record is not entered in the due index.
    DueRowLeftOut,
    /// A large body is not stored.
    BodyRowLeftOut,
    /// An event is not stored.
    EventLeftOut,
    /// The event behind one that was published is not made due.
    NextEventForgotten,
    /// Store time is the wall clock.
    WallClockTrusted,
    /// The checksum of a record is not looked at.
    ChecksumIgnored,
    /// The body of a replay ends where a row does.
    BodyCut,
}

#[cfg(any(test, feature = "testing"))]
impl Plant {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::AckBeforeSync,
        Self::CommitErrorIgnored,
        Self::SyncLeftOut,
        Self::PoisonLeftOut,
        Self::WritesBehind,
        Self::LastOfGroupLost,
        Self::TokenNotStored,
        Self::StaleOwnerObeyed,
        Self::FingerprintIgnored,
        Self::NonceIgnored,
        Self::WroteForgotten,
        Self::DueRowLeftOut,
        Self::BodyRowLeftOut,
        Self::EventLeftOut,
        Self::NextEventForgotten,
        Self::WallClockTrusted,
        Self::ChecksumIgnored,
        Self::BodyCut,
    ];
}

/// Whether a mistake is made, and which. Without the feature `testing` it is nothing, and none is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Planted(#[cfg(any(test, feature = "testing"))] Option<Plant>);

impl Planted {
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn with(plant: Plant) -> Self {
        Self(Some(plant))
    }

    /// Whether this mistake is made: constantly false without the feature `testing`.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn is(self, plant: Plant) -> bool {
        self.0 == Some(plant)
    }

    /// Whether this mistake is made: never.
    #[cfg(not(any(test, feature = "testing")))]
    #[allow(clippy::unused_self, reason = "only tests plant mistakes")]
    pub(super) const fn is(self, _: Plant) -> bool {
        false
    }

    /// The record that the machine is shown.
    pub(super) fn before(self, before: Option<Record>, command: &Command) -> Option<Record> {
        let mut before = before?;
        match command {
            Command::Claim(claim) => {
                if self.is(Plant::FingerprintIgnored) {
                    before.fingerprint = claim.fingerprint.clone();
                }
                if self.is(Plant::NonceIgnored) {
                    before.nonce = before.nonce.map(|_| claim.nonce);
                }
                if self.is(Plant::WroteForgotten) {
                    before.wrote = false;
                }
            }
            Command::Owner(owner) if self.is(Plant::StaleOwnerObeyed) => before.token = owner.token,
            _ => {}
        }
        Some(before)
    }

    /// The transaction that is committed.
    pub(super) fn txn(self, mut txn: redb::WriteTransaction) -> redb::WriteTransaction {
        if self.is(Plant::AckBeforeSync) {
            // Refused to what has savepoints and to several processes; there are none.
            drop(txn.set_durability(redb::Durability::None));
        }
        txn
    }

    /// The stored bytes of a row as they are read.
    pub(super) fn read(self, table: Table, key: &[u8], bytes: Vec<u8>) -> Vec<u8> {
        if !self.is(Plant::ChecksumIgnored) || table != Table::Records {
            return bytes;
        }
        bytes.get(codec::HEADER_LEN..).map(|payload| codec::seal(Kind::Record, key, payload)).unwrap_or(bytes)
    }

    /// The answer that is given.
    pub(super) fn answer(self, answer: &mut Answer) {
        if let Answer::Decision(Decision::Replay(replay)) = answer
            && let Body::Here(bytes) = &mut replay.response.body
            && self.is(Plant::BodyCut)
        {
            bytes.0.truncate(BODY_INLINE_LEN_MAX);
        }
    }

    /// The writes of a plan that are done.
    pub(super) fn writes(self, writes: &[Write]) -> Cow<'_, [Write]> {
        let left_out = |write: &Write| match write {
            Write::Put { table: Table::Bodies, .. } => self.is(Plant::BodyRowLeftOut),
            Write::Put { table: Table::Outbox, due, .. } => self.is(Plant::EventLeftOut) && due.was.is_none(),
            Write::MoveDue { table: Table::Outbox, .. } => self.is(Plant::NextEventForgotten),
            _ => false,
        };
        if !writes.iter().any(left_out) && !self.is(Plant::DueRowLeftOut) {
            return Cow::Borrowed(writes);
        }
        let mut done: Vec<Write> = writes.iter().filter(|write| !left_out(write)).cloned().collect();
        for write in &mut done {
            if let Write::Put { table: Table::Records, due, .. } = write
                && self.is(Plant::DueRowLeftOut)
            {
                due.is = None;
            }
        }
        Cow::Owned(done)
    }

    /// The writes of one command of a group, without those that are lost or committed behind it.
    pub(super) fn of_group(self, writes: &[Write], is_last_of_many: bool) -> Cow<'_, [Write]> {
        if is_last_of_many && self.is(Plant::LastOfGroupLost) {
            return Cow::Borrowed(&[]);
        }
        if self.is(Plant::WritesBehind) {
            return Cow::Owned(writes.iter().filter(|write| !is_beside(write)).cloned().collect());
        }
        Cow::Borrowed(writes)
    }

    /// The writes of a command that are committed behind it.
    pub(super) fn behind(writes: &[Write]) -> Vec<Write> {
        writes.iter().filter(|write| is_beside(write)).cloned().collect()
    }
}

/// Whether it came with the command.
fn is_beside(write: &Write) -> bool {
    let (Write::Put { table, .. } | Write::Delete { table, .. } | Write::MoveDue { table, .. }) = write;
    matches!(table, Table::App | Table::Outbox)
}
