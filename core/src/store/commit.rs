//! Group commit: many commands, one transaction, one sync, then the answers.
//!
//! ```text
//! take a group -> begin -> now -> decide each, write its rows -> commit, sync -> is it still our file? -> answer
//! ```
//!
//! No timer: the next group forms while the last sync runs.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::elect::{self, Elected, Part, Post};
use super::engine::Open;
use super::finish::taken;
use super::health::poisoned;
use super::meta::{self, MetaTable, Now};
use super::plant::{Plant, Planted};
use super::queue::{Job, Lane, Reply};
use super::shared::Shared;
use super::slot::slot;
use super::tables::{META, WriteRows};
use crate::key::Id;
use crate::machine::{
    self, Act, Answer, Change, Command, Decision, Facts, OwnerAnswer, OwnerCommand, Present, Record, Refusal,
    WonKind,
};
use crate::rows::{self, Write};
use crate::store::fault::{GroupFault, before_commit};
use crate::upkeep::Taken;
use crate::{Error, ErrorKind, Millis, Result, Token, Version, Writes, Written};
use crate::{app, codec};

/// Whoever holds it commits: the writer thread, or a caller that found nobody waiting.
pub(super) struct Writer {
    /// The highest token ever handed out by this process; never goes back, also when a group is given up.
    token_high: Token,
}

/// One command of a group.
struct Ask<'a> {
    id: Vec<u8>,
    command: &'a Command,
}

/// What became of it.
struct Decided {
    answer: Result<Answer>,
    writes: Vec<Write>,
    untold: Option<Command>,
    taken: Option<Taken>,
    took_token: bool,
}

/// A group that is decided and durable, or has failed; nobody has been told yet.
pub(super) struct Served(Vec<(Job, Decided, Vec<u8>)>);

impl Writer {
    pub(super) fn new() -> Self {
        Self { token_high: Token(0) }
    }

    /// Decides and commits a group. Its answers are given by [`Served::answer`], once the writer is
    /// free again: whoever is woken may run anything, even close the store.
    #[must_use = "every caller of the group waits for its answer"]
    pub(super) fn serve(&mut self, shared: &Shared, group: Vec<Job>) -> Served {
        let asks: Vec<_> =
            group.iter().map(|job| Ask { id: job.id.encode(), command: &job.command }).collect();
        let decided = catch_unwind(AssertUnwindSafe(|| {
            let mut decided = self.commit_group(shared, &asks);
            self.renew_late_wins(shared, &asks, &mut decided);
            decided
        }));
        let decided = decided.unwrap_or_else(|_| {
            // Not a command's own panic, those are caught one by one: nobody knows what was written.
            shared.engine.poison("the writer panicked");
            let unknown = || {
                let message = "keyclaim failed inside a commit; reopen the store and ask again";
                Decided::failed(Error::new(ErrorKind::Unknown, message))
            };
            asks.iter().map(|_| unknown()).collect()
        });
        let ids: Vec<_> = asks.into_iter().map(|ask| ask.id).collect();
        Served(
            group.into_iter().zip(decided).zip(ids).map(|((job, decided), id)| (job, decided, id)).collect(),
        )
    }

    /// Decides and commits, dropping from the group whatever cannot be written.
    fn commit_group(&mut self, shared: &Shared, asks: &[Ask<'_>]) -> Vec<Decided> {
        let mut refused: Vec<Option<Error>> = asks.iter().map(|_| None).collect();
        // Ends: every round but the last refuses one more command of the group.
        loop {
            match self.try_group(shared, asks, &refused) {
                Ok(decided) => return decided,
                Err(GroupFault::Put { at, error }) if error.kind() != ErrorKind::Poisoned => {
                    if let Some(slot) = refused.get_mut(at) {
                        *slot = Some(error);
                    }
                }
                Err(GroupFault::Put { error, .. } | GroupFault::All(error)) => {
                    shared.engine.poison_if_failed(&error);
                    return asks.iter().map(|_| Decided::failed(error.share())).collect();
                }
            }
        }
    }

    /// Saves store time although no command asks for a commit: a store that was idle for long, and whose
    /// machine is then rebooted, must not fall behind the time it has told (P6).
    pub(super) fn save_time(&mut self, shared: &Shared) -> Result<()> {
        self.write_alone(shared, |_| Ok(true))
    }

    /// Whether this process does this part of the upkeep from now on, for a while (see [`elect`](super::elect)).
    pub(super) fn elect(&mut self, shared: &Shared, part: Part, lease_ms: Millis) -> Result<bool> {
        let mut is_mine = false;
        self.with_meta(shared, |meta| {
            let elected =
                elect::decide(meta::read_upkeep(meta, part)?, shared.process, shared.now_ms(), lease_ms);
            is_mine = !matches!(elected, Elected::Other);
            match elected {
                Elected::Take(post) => meta::write_upkeep(meta, part, post).map(|()| true),
                Elected::Other | Elected::Mine => Ok(false),
            }
        })?;
        Ok(is_mine)
    }

    /// Saves store time, and lets another process do the upkeep that this one did.
    pub(super) fn resign(&mut self, shared: &Shared) -> Result<()> {
        self.with_meta(shared, |meta| {
            for part in Part::ALL {
                if meta::read_upkeep(meta, part)?.is_some_and(|post| post.holder == shared.process) {
                    let until_ms = shared.now_ms();
                    meta::write_upkeep(meta, part, Post { holder: shared.process, until_ms })?;
                }
            }
            Ok(true)
        })
    }

    fn with_meta(
        &mut self,
        shared: &Shared,
        change: impl FnOnce(&mut MetaTable<'_>) -> Result<bool>,
    ) -> Result<()> {
        self.write_contained(shared, |_, meta, _| Ok((change(meta)?, false)))
    }

    /// One transaction that is no group of commands. Committed if `write` says that it is to be, and ended
    /// without a trace if not or if it fails.
    pub(super) fn write_alone(
        &mut self,
        shared: &Shared,
        write: impl FnOnce(&mut WriteRows<'_>) -> Result<bool>,
    ) -> Result<()> {
        self.write_with_token(shared, |rows, _| Ok((write(rows)?, false)))
    }

    /// Like [`Writer::write_alone`], with the token that is next; `write` says whether to commit, and whether
    /// it took the token.
    pub(super) fn write_with_token(
        &mut self,
        shared: &Shared,
        write: impl FnOnce(&mut WriteRows<'_>, Token) -> Result<(bool, bool)>,
    ) -> Result<()> {
        self.write_contained(shared, |rows, _, token| write(rows, token))
    }

    fn write_contained(
        &mut self,
        shared: &Shared,
        write: impl FnOnce(&mut WriteRows<'_>, &mut MetaTable<'_>, Token) -> Result<(bool, bool)>,
    ) -> Result<()> {
        catch_unwind(AssertUnwindSafe(|| self.try_write(shared, write))).unwrap_or_else(|_| {
            // Not one row's own panic, those are caught: redb panics on some damaged pages, and nobody knows what
            // was written.
            shared.engine.poison("a transaction of the store's own panicked");
            Err(Error::new(ErrorKind::Unknown, "keyclaim failed inside a commit; reopen the store"))
        })
    }

    fn try_write(
        &mut self,
        shared: &Shared,
        write: impl FnOnce(&mut WriteRows<'_>, &mut MetaTable<'_>, Token) -> Result<(bool, bool)>,
    ) -> Result<()> {
        let guard = shared.engine.open()?;
        let open = guard.as_ref().ok_or_else(poisoned)?;
        let txn = begin(shared, open)?;
        shared.now_ms();
        let written = (|| {
            let mut meta = txn.open_table(META).map_err(before_commit)?;
            let stored = meta::read(&meta)?;
            shared.catch_up(stored.time);
            let mut token = stored.token.max(self.token_high);
            let (is_wanted, took_token) =
                write(&mut WriteRows::open(&txn, shared.planted())?, &mut meta, token.next())?;
            if took_token {
                token = token.next();
                self.token_high = token;
            }
            if is_wanted {
                meta::write(&mut meta, Now { token, time: shared.saved_time() })?;
            }
            Ok(is_wanted)
        })();
        let ended = match written {
            Ok(true) => commit(open, txn),
            Ok(false) => open.durable.abort(txn),
            Err(error) => open.durable.abort(txn).and(Err(error)),
        };
        ended.inspect_err(|error| shared.engine.poison_if_failed(error))
    }

    /// One transaction that the caller fills: what it decides goes through [`Deciding`]. Committed if the caller
    /// wants it, ended without a trace otherwise. The outer error means that it never began.
    pub(super) fn write_deciding(
        &mut self,
        shared: &Shared,
        fill: impl FnOnce(&redb::WriteTransaction, Deciding) -> (bool, Deciding),
    ) -> Result<(Deciding, Result<()>)> {
        let (mut deciding, ended) = {
            let guard = shared.engine.open()?;
            let open = guard.as_ref().ok_or_else(poisoned)?;
            let txn = begin(shared, open)?;
            let stored = txn.open_table(META).map_err(before_commit).and_then(|meta| meta::read(&meta));
            let token = match stored {
                Ok(stored) => {
                    shared.catch_up(stored.time);
                    stored.token.max(self.token_high)
                }
                Err(error) => {
                    let ended = open.durable.abort(txn).and(Err(error));
                    return ended.inspect_err(|error| shared.engine.poison_if_failed(error));
                }
            };
            let now_ms = shared.now_ms();
            let (is_wanted, mut deciding) = fill(&txn, Deciding::new(now_ms, token));
            // Never back, also when it is given up: a token must not be issued twice.
            self.token_high = self.token_high.max(deciding.token);
            let saved = match deciding.failed.take() {
                Some(error) => Err(error),
                None if is_wanted => txn.open_table(META).map_err(before_commit).and_then(|mut meta| {
                    meta::write(&mut meta, Now { token: self.token_high, time: shared.saved_time() })
                }),
                None => Ok(()),
            };
            if saved.is_err() || !is_wanted {
                // While nobody else can write: once this is given up, another process may be given its tokens.
                deciding.void(shared);
            }
            let ended = match saved {
                Ok(()) if is_wanted => commit(open, txn),
                Ok(()) => open.durable.abort(txn),
                Err(error) => open.durable.abort(txn).and(Err(error)),
            };
            if ended.is_ok() && is_wanted {
                shared.stats.group(deciding.decided.len().max(1));
            }
            deciding.is_committed = ended.is_ok() && is_wanted;
            shared.engine.poison_if_file_failed(&open.file);
            (deciding, ended)
        };
        if let Err(error) = &ended {
            shared.engine.poison_if_failed(error);
        }
        if deciding.is_committed {
            self.renew_late(shared, &mut deciding);
        }
        Ok((deciding, ended))
    }

    /// As [`Writer::renew_late_wins`], for a transaction: the claims are with the caller already, so what counts
    /// is the lease on disk.
    fn renew_late(&mut self, shared: &Shared, deciding: &mut Deciding) {
        let asks: Vec<_> =
            deciding.decided.iter().map(|(id, command, _)| Ask { id: id.encode(), command }).collect();
        let mut decided: Vec<_> = deciding
            .decided
            .iter()
            .map(|(_, _, answer)| Decided {
                answer: Ok(answer.clone()),
                writes: Vec::new(),
                untold: None,
                taken: None,
                took_token: false,
            })
            .collect();
        self.renew_late_wins(shared, &asks, &mut decided);
    }

    fn try_group(
        &mut self,
        shared: &Shared,
        asks: &[Ask<'_>],
        refused: &[Option<Error>],
    ) -> std::result::Result<Vec<Decided>, GroupFault> {
        let guard = shared.engine.open()?;
        let open = guard.as_ref().ok_or_else(poisoned)?;
        let txn = begin(shared, open)?;
        let planted = shared.planted();
        let decided: std::result::Result<_, GroupFault> = (|| {
            let mut meta = txn.open_table(META).map_err(before_commit)?;
            let Now { token: stored, time } = meta::read(&meta)?;
            shared.catch_up(time);
            // Read after the transaction began, and once: all of a group happens at one instant (P6).
            let now_ms = shared.now_ms();
            let mut token = stored.max(self.token_high);
            let mut rows = WriteRows::open(&txn, planted)?;
            let mut all = Vec::with_capacity(asks.len());
            for (at, (ask, refused)) in asks.iter().zip(refused).enumerate() {
                let decided = match refused {
                    Some(error) => Decided::failed(error.share()),
                    None => decide(shared, &rows, ask, now_ms, token.next()),
                };
                let is_last_of_many = at > 0 && at + 1 == asks.len();
                put(&mut rows, &planted.of_group(&decided.writes, is_last_of_many))
                    .map_err(|error| GroupFault::Put { at, error })?;
                if decided.took_token {
                    token = token.next();
                    self.token_high = token;
                }
                all.push(decided);
            }
            if all.iter().any(|decided| !decided.writes.is_empty()) {
                let token = if planted.is(Plant::TokenNotStored) { stored } else { token };
                meta::write(&mut meta, Now { token, time: shared.saved_time() })?;
            }
            Ok(all)
        })();
        match decided {
            Ok(mut decided) if decided.iter().any(|decided| !decided.writes.is_empty()) => {
                // P2: nothing below is answered before this has returned.
                match commit(open, planted.txn(txn)).and_then(|()| commit_behind(open, planted, &decided)) {
                    Ok(()) => shared.stats.group(asks.len()),
                    Err(_) if planted.is(Plant::CommitErrorIgnored) => {}
                    Err(error) => {
                        shared.engine.poison_if_failed(&error);
                        for decided in &mut decided {
                            *decided = Decided::failed(error.share());
                        }
                    }
                }
                Ok(decided)
            }
            Ok(decided) => {
                open.durable.abort(txn)?;
                Ok(decided)
            }
            Err(fault) => {
                // Ended by an explicit abort: a transaction merely dropped turns quick-repair off. After
                // an I/O error that fails too, and the error that came first says what to do.
                match open.durable.abort(txn) {
                    Err(error) if !fault.is_of_the_medium() => Err(GroupFault::All(error)),
                    _ => Err(fault),
                }
            }
        }
    }

    /// A commit that took long has eaten into the leases it granted: those are renewed before they
    /// are handed out.
    fn renew_late_wins(&mut self, shared: &Shared, asks: &[Ask<'_>], decided: &mut [Decided]) {
        let now_ms = shared.now_ms();
        let late: Vec<(usize, Command)> = decided
            .iter()
            .enumerate()
            .filter_map(|(at, decided)| {
                let Ok(Answer::Decision(Decision::Won(won))) = &decided.answer else { return None };
                let lease_ms = match &decided.taken {
                    Some(taken) => taken.lease_ms?,
                    None => lease_ms(asks.get(at)?.command)?,
                };
                let until_ms = won.lease_until_ms?;
                (until_ms.since(now_ms).0 < lease_ms.0 / 2).then(|| (at, renewal(won.token)))
            })
            .collect();
        if late.is_empty() {
            return;
        }
        let ids = late.iter().filter_map(|(at, _)| asks.get(*at)).map(|ask| ask.id.clone());
        let renewals: Vec<_> = late.iter().zip(ids).map(|((_, command), id)| Ask { id, command }).collect();
        let renewed = self.commit_group(shared, &renewals);
        for ((at, _), renewed) in late.iter().zip(renewed) {
            let Some(decided) = decided.get_mut(*at) else { continue };
            match (renewed.answer, &mut decided.answer) {
                (
                    Ok(Answer::Owner(OwnerAnswer::Renewed { lease_until_ms })),
                    Ok(Answer::Decision(Decision::Won(won))),
                ) => {
                    won.lease_until_ms = lease_until_ms;
                }
                // The win is durable whatever became of its renewal: only asking again tells.
                (Err(error), answer) => *answer = Err(in_doubt(error)),
                (Ok(_), _) => {}
            }
        }
    }
}

/// The commands of one transaction that its caller fills, decided one by one.
pub(super) struct Deciding {
    now_ms: Millis,
    token: Token,
    decided: Vec<(Id, Command, Answer)>,
    /// Why the transaction cannot be committed any more.
    failed: Option<Error>,
    is_committed: bool,
}

impl Deciding {
    fn new(now_ms: Millis, token: Token) -> Self {
        Self { now_ms, token, decided: Vec::new(), failed: None, is_committed: false }
    }

    /// Decides one command and writes its rows, behind those before it.
    pub(super) fn decide(
        &mut self,
        shared: &Shared,
        txn: &redb::WriteTransaction,
        id: &Id,
        command: Command,
    ) -> Result<Answer> {
        if let Some(error) = &self.failed {
            return Err(error.share());
        }
        let mut rows = WriteRows::open(txn, shared.planted())?;
        let ask = Ask { id: id.encode(), command: &command };
        let decided = decide(shared, &rows, &ask, self.now_ms, self.token.next());
        if let Err(error) = put(&mut rows, &decided.writes) {
            // Some of its rows may be written: from here on there is only an abort.
            self.failed = Some(error.share());
            return Err(error);
        }
        if decided.took_token {
            self.token = self.token.next();
        }
        let answer = decided.answer?;
        self.decided.push((id.clone(), command, answer.clone()));
        Ok(answer)
    }

    /// Writes rows of the application behind what was written before.
    pub(super) fn write(
        &mut self,
        txn: &redb::WriteTransaction,
        writes: &Writes,
    ) -> Result<Written<Version>> {
        if let Some(error) = &self.failed {
            return Err(error.share());
        }
        writes.check().map_err(Error::invalid)?;
        if !writes.events.is_empty() {
            return Err(Error::invalid(
                "an event is named by its claim; emit it with one of the claim's commands",
            ));
        }
        let version = Version(self.token.next().0);
        let mut rows = WriteRows::open(txn, Planted::default())?;
        // redb panics on some damaged pages; that is no panic of the caller's.
        let planned = catch_unwind(AssertUnwindSafe(|| app::plan(&rows, &writes.rows, version)))
            .unwrap_or_else(|_| Err(codec::corrupt("its page")))?;
        let planned = match planned {
            Ok(planned) => planned,
            Err(conflict) => return Ok(Written::Conflict(conflict)),
        };
        put(&mut rows, &planned).inspect_err(|error| self.failed = Some(error.share()))?;
        self.token = self.token.next();
        Ok(Written::Done(version))
    }

    /// What was won in here was not.
    fn void(&self, shared: &Shared) {
        for (id, _, answer) in &self.decided {
            if let Answer::Decision(Decision::Won(won)) = answer {
                shared.live.void(&(id.encode(), won.token));
            }
        }
    }

    /// Once the writer is free again: counts what happened, and wakes who waits for it. What was won in a
    /// transaction that did not commit is lost, unless its fate is not known.
    pub(super) fn answer(self, shared: &Shared, error: Option<&Error>) {
        for (id, command, answer) in self.decided {
            let encoded = id.encode();
            let won = match &answer {
                Answer::Decision(Decision::Won(won)) => Some((encoded.clone(), won.token)),
                _ => None,
            };
            let answer = Ok(answer);
            if self.is_committed {
                shared.stats.committed(&command, &answer);
                super::log::answer(&id, &command, &answer);
                if let (Command::Owner(command), Ok(Answer::Owner(OwnerAnswer::Completed))) =
                    (&command, &answer)
                {
                    shared.live.end(&(encoded.clone(), command.token));
                }
                shared.waiters.ring(&encoded);
                if command.writes().is_some_and(|writes| !writes.events.is_empty()) {
                    shared.relays.ring();
                }
            } else if let Some(place) = won
                && error.is_none_or(|error| error.kind() != ErrorKind::Unknown)
            {
                shared.live.lose(&place);
            }
        }
        if shared.engine.is_poisoned() {
            shared.waiters.ring_all();
        }
    }
}

impl Served {
    /// Gives every answer, then wakes who waits for what was written: they ask anew, and find what
    /// was just made durable.
    pub(super) fn answer(self, shared: &Shared) {
        let mut written = Vec::new();
        for (job, decided, id) in self.0 {
            let has_written = !decided.writes.is_empty();
            shared.relays.ring_for(&decided.writes);
            answer(shared, job, decided, &id);
            if has_written {
                written.push(id);
            }
        }
        for id in written {
            shared.waiters.ring(&id);
        }
        if shared.engine.is_poisoned() {
            shared.waiters.ring_all();
        }
    }
}

/// A plain renewal, as the store sends it for a live claim.
pub(super) fn renewal(token: Token) -> Command {
    Command::Owner(OwnerCommand { token, seq: 0, digest: [0; 16], act: Act::Renew { lease_ms: None } })
}

impl Decided {
    fn failed(error: Error) -> Self {
        Self { answer: Err(error), writes: Vec::new(), untold: None, taken: None, took_token: false }
    }
}

/// Decides one command against the open transaction; writes nothing. An error or panic in here
/// fails this command only.
fn decide(
    shared: &Shared,
    rows: &WriteRows<'_>,
    ask: &Ask<'_>,
    now_ms: Millis,
    next_token: Token,
) -> Decided {
    let decided = catch_unwind(AssertUnwindSafe(|| {
        shared.options.maybe_panic();
        let before = rows.planted().before(rows::load(rows, &ask.id)?, ask.command);
        if let Command::Owner(owner) = ask.command
            && shared.live.is_void(&(ask.id.clone(), owner.token))
        {
            let present = before.as_ref().map_or(Present::Absent, Record::present);
            return Ok(Decided::failed(Refusal::Fenced(present).into()));
        }
        let owner_lives_here =
            before.as_ref().is_some_and(|record| shared.live.lives(&(ask.id.clone(), record.token)));
        let facts = Facts { now_ms, next_token, owner_lives_here };
        let verdict = machine::decide(before.as_ref(), ask.command, facts);
        let taken = match (ask.command, &verdict.answer, &verdict.changes.record) {
            (Command::TakeAbandoned { .. }, Ok(Answer::Decision(Decision::Won(_))), Change::Put(record)) => {
                Some(taken(rows, &ask.id, record)?)
            }
            _ => None,
        };
        let rows::Enacted { answer, writes, took_token } =
            rows::enact(rows, &ask.id, before.as_ref(), ask.command, verdict, facts)?;
        let mut answer = answer.map_err(Error::from);
        if let Ok(answer) = &mut answer {
            rows::fill(rows, &ask.id, answer)?;
            rows.planted().answer(answer);
        }
        let untold = match &answer {
            Ok(Answer::Decision(Decision::Won(won))) if won.kind != WonKind::Again => Some(Command::Untold {
                token: won.token,
                before: before.clone().filter(|_| won.kind == WonKind::Takeover).map(Box::new),
            }),
            _ => None,
        };
        Ok(Decided { answer, writes, untold, taken, took_token })
    }));
    match decided {
        Ok(Ok(decided)) => decided,
        Ok(Err(error)) => {
            shared.engine.poison_if_failed(&error);
            Decided::failed(error)
        }
        Err(_) => Decided::failed(Error::new(
            ErrorKind::Internal,
            "a bug in keyclaim stopped this command before it changed anything; report it",
        )),
    }
}

/// Writes the rows of one command. From its first row on, a panic leaves nobody knowing what was
/// written, so it is the store's failure and not the command's.
pub(super) fn put(rows: &mut WriteRows<'_>, writes: &[Write]) -> Result<()> {
    let writes = rows.planted().writes(writes);
    catch_unwind(AssertUnwindSafe(|| rows::apply(rows, &writes)))
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::Poisoned, "writing a row failed; reopen the store")))
}

/// Begins a transaction. To catch up with other processes the file is read first, and that can fail.
fn begin(shared: &Shared, open: &Open) -> Result<redb::WriteTransaction> {
    open.durable.begin(&open.db).inspect_err(|error| shared.engine.poison_if_failed(error))
}

/// What a planted mistake has kept back.
fn commit_behind(open: &Open, planted: Planted, decided: &[Decided]) -> Result<()> {
    if !planted.is(Plant::WritesBehind) {
        return Ok(());
    }
    let behind: Vec<Write> = decided.iter().flat_map(|decided| Planted::behind(&decided.writes)).collect();
    if behind.is_empty() {
        return Ok(());
    }
    let txn = open.durable.begin(&open.db)?;
    put(&mut WriteRows::open(&txn, planted)?, &behind)?;
    commit(open, txn)
}

fn commit(open: &Open, txn: redb::WriteTransaction) -> Result<()> {
    open.durable.commit(txn)?;
    // A file that was unlinked or replaced takes commits as before, and nobody will ever find them.
    open.file.check_identity().map_err(|error| {
        Error::new(
            ErrorKind::Unknown,
            "the store's file is no longer at its path; find out who replaced it, then reopen the store",
        )
        .caused_by(error)
    })
}

/// Gives the answer. If nobody is left to be told of a win, it is let go of by a command of its own.
fn answer(shared: &Shared, job: Job, decided: Decided, id: &[u8]) {
    shared.stats.served(&job.command, &decided.answer, !decided.writes.is_empty());
    super::log::answer(&job.id, &job.command, &decided.answer);
    if let (Command::Owner(command), Err(error)) = (&job.command, &decided.answer)
        && error.kind() == ErrorKind::Fenced
    {
        let place = (id.to_vec(), command.token);
        match error.present() {
            // Its own outcome or hold refuses it: it is over, and nobody else's.
            Some(Present::Complete(token) | Present::Held(token)) if token == command.token => {
                shared.live.end(&place);
            }
            _ => shared.stats.overtaken(shared.live.lose(&place)),
        }
    }
    let reply = Reply { answer: decided.answer, untold: decided.untold, taken: decided.taken };
    if let Some(Reply { untold: Some(untold), .. }) = job.giver.give(reply) {
        shared.let_go(job.id, untold);
    }
}

fn in_doubt(error: Error) -> Error {
    if error.kind() == ErrorKind::Unknown {
        return error;
    }
    Error::new(
        ErrorKind::Unknown,
        "the claim was won, but could not be renewed in time; ask again with its nonce",
    )
    .caused_by(error)
}

fn lease_ms(command: &Command) -> Option<Millis> {
    match command {
        Command::Claim(claim) => claim.policy.lease_ms,
        _ => None,
    }
}

impl Shared {
    /// Sends the command that undoes a win nobody was told of. It needs no answer.
    pub(super) fn let_go(&self, id: crate::key::Id, untold: Command) {
        let (giver, taker) = slot();
        drop(taker);
        // Refused only if the store is closing; the lease then ends the claim.
        drop(self.queue.push(Lane::Store, Job::new(id, untold, giver)));
    }
}
