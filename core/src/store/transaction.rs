//! One transaction over keys and the caller's own tables in redb.
//!
//! The wrapper opens the caller's tables only, and has neither savepoints nor a durability switch: what
//! keyclaim promises of its rows is not the caller's to break. The closure's panic is caught inside and
//! the transaction ended by an explicit abort: one that unwinds through redb leaks pages and turns
//! quick-repair off.

use std::cell::{RefCell, RefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use redb::{
    Key as RedbKey, MultimapTable, MultimapTableDefinition, ReadableMultimapTable, ReadableTable,
    Table as RedbTable, TableDefinition, Value as RedbValue, WriteTransaction,
};

use super::commit::Deciding;
use super::queue::Reply;
use super::request::ClaimRequest;
use super::tables::{self, ReadRows};
use super::{Running, Store};
use crate::claim::Claim;
use crate::machine::{Act, Answer, Decision, Outcome, OwnerAnswer};
use crate::store::shared::Inside;
use crate::{Error, ErrorKind, Result, Version, Writes, Written};

/// The inside of one transaction: the caller's own tables, and the commands that commit with them.
///
/// Nothing in here is decided for good before [`Store::transaction`] has returned `Ok`.
pub struct Transaction<'a> {
    running: &'a Arc<Running>,
    txn: &'a WriteTransaction,
    deciding: RefCell<Deciding>,
}

/// A snapshot of the caller's own tables; see [`Store::view`].
pub struct View<'a> {
    rows: &'a ReadRows,
}

impl Store {
    /// Runs the closure inside one write transaction: its rows, and the claims, checkpoints and outcomes it says,
    /// commit together, or none of them if it returns an error or panics.
    ///
    /// Keep it short: nothing else commits meanwhile. Inside, say everything by the [`Transaction`]; the store's
    /// and its claims' own commands are `Invalid` there, because they would wait for it.
    ///
    /// *Durability*: on disk when this returns `Ok`. *Errors*: the closure's own, and `Unknown`: whether it
    /// committed is not known, so reopen and run it again, with the same nonce on its claims
    /// ([`ClaimRequest::nonce`]). After any error a claim won in here is void; what it says is `Fenced`.
    ///
    /// ```
    /// # use keyclaim::{Abandoned, ClaimRequest, Error, Id, Key, Options, Scope, Store, transaction_error};
    /// # use keyclaim::{fingerprint::{Request, Scheme}, machine::{Decision, Outcome, Response}};
    /// use keyclaim::store::redb::{ReadableTable, TableDefinition};
    ///
    /// const BALANCES: TableDefinition<&str, u64> = TableDefinition::new("balances");
    ///
    /// # let store = Store::in_memory(Options::new(Abandoned::Rerun))?;
    /// # let id = Id::new(Scope::new(b"acme")?, Key::new(b"k1")?);
    /// # let request = Request { method: b"POST", target: b"/deposits", ..Request::default() };
    /// let request = ClaimRequest::new(id, Scheme::Raw, request);
    /// store.transaction(|t| {
    ///     let Decision::Won(claim) = t.claim(&request)? else { return Ok(()) };
    ///     let mut balances = t.open_table(BALANCES)?;
    ///     let had = balances.get("anna").map_err(transaction_error)?.map_or(0, |row| row.value());
    ///     balances.insert("anna", had + 5).map_err(transaction_error)?;
    ///     t.complete(&claim, &Outcome::success(Response::new(201, "deposited")))
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn transaction<R, E: From<Error>>(
        &self,
        run: impl FnOnce(&Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let shared = &self.running.shared;
        let mut writer = shared.lock_writer()?;
        let _inside = Inside::Transaction.enter(shared);
        let mut ended = None;
        let write = AssertUnwindSafe(|| {
            writer.write_deciding(shared, |txn, deciding| {
                let t = Transaction { running: &self.running, txn, deciding: RefCell::new(deciding) };
                let result = catch_unwind(AssertUnwindSafe(|| run(&t)));
                let deciding = t.deciding.into_inner();
                let is_wanted = matches!(result, Ok(Ok(_)));
                ended = Some(result);
                (is_wanted, deciding)
            })
        });
        let committed = catch_unwind(write).unwrap_or_else(|_| {
            // Not the closure's, that one is caught above: redb panics on some damaged pages.
            shared.engine.poison("a transaction panicked outside of its closure");
            Err(Error::new(
                ErrorKind::Unknown,
                "keyclaim failed inside a commit; reopen the store and ask again",
            ))
        });
        drop(writer);
        let deciding = match committed {
            Ok((deciding, outcome)) => {
                deciding.answer(shared, outcome.as_ref().err());
                outcome
            }
            Err(error) => Err(error),
        };
        match (ended, deciding) {
            (Some(Err(panic)), _) => resume_unwind(panic),
            (Some(Ok(Err(error))), _) => Err(error),
            (_, Err(error)) => Err(error.into()),
            (Some(Ok(Ok(value))), Ok(())) => Ok(value),
            (None, Ok(())) => Err(Error::misdelivered("a transaction").into()),
        }
    }

    /// Shows the closure one snapshot of the caller's own tables. It cannot be carried out of it, since a reader
    /// that is forgotten makes the file grow without end.
    ///
    /// Errors: the closure's own, `Closed`, `Poisoned`, `Corrupt`.
    pub fn view<R, E: From<Error>>(&self, look: impl FnOnce(&View<'_>) -> Result<R, E>) -> Result<R, E> {
        let shared = &self.running.shared;
        let mut ended = None;
        let read = shared.read(|rows| {
            let _inside = Inside::View.enter(shared);
            ended = Some(catch_unwind(AssertUnwindSafe(|| look(&View { rows }))));
            Ok(())
        });
        match (ended, read) {
            (Some(Err(panic)), _) => resume_unwind(panic),
            (Some(Ok(result)), _) => result,
            (None, Err(error)) => Err(error.into()),
            (None, Ok(())) => Err(Error::misdelivered("a view").into()),
        }
    }
}

impl Transaction<'_> {
    /// Opens one of the caller's own tables, or makes it. Close it (drop it) before opening it again.
    ///
    /// Errors: `Invalid` if the name is keyclaim's own, or the table has other types or is open.
    pub fn open_table<'t, K: RedbKey + 'static, V: RedbValue + 'static>(
        &'t self,
        definition: TableDefinition<'_, K, V>,
    ) -> Result<RedbTable<'t, K, V>> {
        tables::check_own(redb::TableHandle::name(&definition))?;
        self.txn.open_table(definition).map_err(transaction_error)
    }

    /// Like [`Transaction::open_table`], for a table with several values to a key.
    pub fn open_multimap_table<'t, K: RedbKey + 'static, V: RedbKey + 'static>(
        &'t self,
        definition: MultimapTableDefinition<'_, K, V>,
    ) -> Result<MultimapTable<'t, K, V>> {
        tables::check_own(redb::MultimapTableHandle::name(&definition))?;
        self.txn.open_multimap_table(definition).map_err(transaction_error)
    }

    /// Like [`Store::claim`], as part of this transaction. A win is one only once it has committed; end it by
    /// [`Transaction::complete`] in here, or go on with the claim behind it.
    pub fn claim(&self, request: &ClaimRequest<'_>) -> Result<Decision<Claim>> {
        super::claims::without_writes(self.claim_with(request, &Writes::new())?)
    }

    /// Like [`Store::claim_with`], as part of this transaction. A conflict leaves the transaction as it is.
    pub fn claim_with(
        &self,
        request: &ClaimRequest<'_>,
        writes: &Writes,
    ) -> Result<Written<Decision<Claim>>> {
        let mut asking = super::claims::Asking::new(self.running, request, writes)?;
        loop {
            let command = asking.named()?;
            let answer = self.decide(request.id(), command);
            if let Some(told) =
                asking.hear(answer.map(|answer| Reply { answer: Ok(answer), untold: None, taken: None }))?
            {
                return Ok(told);
            }
        }
    }

    /// Like [`Claim::checkpoint`], as part of this transaction.
    pub fn checkpoint(&self, claim: &Claim, point: &str, data: &[u8]) -> Result<()> {
        self.checkpoint_with(claim, point, data, Writes::new()).map(drop)
    }

    /// Like [`Claim::checkpoint_with`], as part of this transaction.
    pub fn checkpoint_with(
        &self,
        claim: &Claim,
        point: &str,
        data: &[u8],
        writes: Writes,
    ) -> Result<Written> {
        Ok(self.say(claim, claim.checkpoint_act(point, data, writes))?.map(drop))
    }

    /// Like [`Claim::complete`], as part of this transaction.
    pub fn complete(&self, claim: &Claim, outcome: &Outcome) -> Result<()> {
        self.complete_with(claim, outcome, Writes::new()).map(drop)
    }

    /// Like [`Claim::complete_with`], as part of this transaction.
    pub fn complete_with(&self, claim: &Claim, outcome: &Outcome, writes: Writes) -> Result<Written> {
        Ok(self.say(claim, claim.complete_act(outcome, writes))?.map(drop))
    }

    /// Like [`Store::write`], as part of this transaction. A conflict leaves the transaction as it is.
    pub fn write(&self, writes: &Writes) -> Result<Written<Version>> {
        self.deciding()?.write(self.txn, writes)
    }

    fn say(&self, claim: &Claim, act: Act) -> Result<Written<OwnerAnswer>> {
        if !claim.is_of(self.running) {
            return Err(Error::invalid(
                "the claim is another store's; say it in a transaction of that store",
            ));
        }
        claim.say_by(act, |command| self.decide(claim.id(), command))
    }

    fn decide(&self, id: &crate::Id, command: crate::machine::Command) -> Result<Answer> {
        self.deciding()?.decide(&self.running.shared, self.txn, id, command)
    }

    fn deciding(&self) -> Result<RefMut<'_, Deciding>> {
        self.deciding.try_borrow_mut().map_err(|_| {
            Error::new(ErrorKind::Internal, "a command of a transaction was said inside another one")
        })
    }
}

impl View<'_> {
    /// One of the caller's own tables; none if it was never made.
    ///
    /// Errors: `Invalid` if the name is keyclaim's own, or the table has other types.
    pub fn open_table<K: RedbKey + 'static, V: RedbValue + 'static>(
        &self,
        definition: TableDefinition<'_, K, V>,
    ) -> Result<Option<impl ReadableTable<K, V> + use<'_, K, V>>> {
        tables::check_own(redb::TableHandle::name(&definition))?;
        there(self.rows.txn().open_table(definition))
    }

    /// Like [`View::open_table`], for a table with several values to a key.
    pub fn open_multimap_table<K: RedbKey + 'static, V: RedbKey + 'static>(
        &self,
        definition: MultimapTableDefinition<'_, K, V>,
    ) -> Result<Option<impl ReadableMultimapTable<K, V> + use<'_, K, V>>> {
        tables::check_own(redb::MultimapTableHandle::name(&definition))?;
        there(self.rows.txn().open_multimap_table(definition))
    }
}

fn there<T>(opened: std::result::Result<T, redb::TableError>) -> Result<Option<T>> {
    match opened {
        Ok(table) => Ok(Some(table)),
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(transaction_error(error)),
    }
}

/// redb's error on a table of the caller's own, as keyclaim's: what the table's use did wrong is `Invalid`.
pub fn transaction_error(error: impl Into<redb::Error>) -> Error {
    use redb::Error as E;
    match error.into() {
        error @ (E::TableTypeMismatch { .. }
        | E::TableIsMultimap(_)
        | E::TableIsNotMultimap(_)
        | E::TypeDefinitionChanged { .. }
        | E::TableAlreadyOpen(..)) => Error::invalid(
            "the table has other types, or is open already; open it once, with the types it was made with",
        )
        .caused_by(error),
        error @ (E::ValueTooLarge(_) | E::TableDoesNotExist(_) | E::TableExists(_)) => {
            Error::invalid("redb refused the call on the caller's own table; see the cause").caused_by(error)
        }
        error => super::fault::before_commit(error),
    }
}
