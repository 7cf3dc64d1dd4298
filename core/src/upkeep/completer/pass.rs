//! One pass of the completer: by hand, or in the store's own thread.

use std::fmt;
use std::sync::Arc;

use super::Completer;
use super::crew::{Crew, End, Tried};
use crate::key::Id;
use crate::limits::FINISH_PAGE_LEN_MAX;
use crate::machine::HoldReason;
use crate::store::{Cancel, Found, Shared};
use crate::upkeep::Hook;
use crate::{Error, ErrorKind, Millis, Result, Store};

/// One pass of the completer: by default over all that is abandoned now.
#[derive(Clone)]
pub struct CompleterPass {
    completer: Arc<Completer>,
    at_ms: Option<Millis>,
    tries_max: Option<u64>,
    cancel: Option<Cancel>,
    on_progress: Option<Hook<CompleterReport>>,
}

/// What a pass did.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct CompleterReport {
    /// Due rows that were read, those left alone included.
    pub rows_read: u64,
    /// Tries that were begun: requests taken over and given to their handlers.
    pub tried: u64,
    /// Tries whose outcome is on record.
    pub completed: u64,
    /// Tries that ended the claim by themselves: the handler, or a step of it that is not to be repeated.
    pub ended_by_handler: u64,
    /// Tries that came to nothing, by the handler's own word, and are followed by a pause.
    pub postponed: u64,
    /// Tries whose handler said that it had ended the claim, and had not; followed by a pause.
    pub unsaid: u64,
    /// Tries whose handler panicked; followed by a pause.
    pub panicked: u64,
    /// Tries whose outcome was refused as invalid, such as one with an open step; followed by a pause.
    pub refused: u64,
    /// Tries whose end could not be recorded, or may not have been: their lease ends them.
    pub unheard: u64,
    /// Tries that were overtaken: their outcome was dropped.
    pub lost: u64,
    /// Claims held for a person by the handler, a step in doubt, steps that changed, or the abandoned policy.
    pub held: u64,
    /// Claims held for a person because their tries are used up.
    pub given_up: u64,
    /// Abandoned requests whose operation has no handler here. They stay as they are.
    pub without_handler: u64,
    /// Requests that were renewed, taken over or ended by somebody else between the look and the takeover.
    pub passed: u64,
    /// Due rows that cannot be read: damaged, or written by a newer keyclaim. They stay.
    pub damaged: u64,
    /// Due rows that could not be taken for another reason, such as a full queue. They stay for the next pass.
    pub failed: u64,
    /// Whether all that was abandoned had its turn; not if the pass was bounded, cancelled or overtaken by
    /// the closing of the store.
    pub is_whole: bool,
}

impl CompleterPass {
    /// A pass over all that is abandoned now.
    pub fn new(completer: &Completer) -> Self {
        let completer = Arc::new(completer.clone());
        Self { completer, at_ms: None, tries_max: None, cancel: None, on_progress: None }
    }

    /// Takes what was abandoned at this instant of store time, which must not be later than now.
    #[must_use]
    pub fn at(mut self, when: Millis) -> Self {
        self.at_ms = Some(when);
        self
    }

    /// Ends the pass once it has begun this many tries.
    #[must_use]
    pub fn tries_max(mut self, tries: u64) -> Self {
        self.tries_max = Some(tries);
        self
    }

    /// Begins no further try when cancelled; what runs is waited for.
    #[must_use]
    pub fn or_until(mut self, cancel: &Cancel) -> Self {
        self.cancel = Some(cancel.clone());
        self
    }

    /// Is told what the pass has done so far, after each look at up to 256 rows and after the end of each try.
    #[must_use]
    pub fn on_progress(mut self, progress: impl Fn(&CompleterReport) + Send + Sync + 'static) -> Self {
        self.on_progress = Some(Arc::new(progress));
        self
    }

    fn is_over(&self, shared: &Shared, done: &CompleterReport) -> bool {
        shared.takes_no_more()
            || self.cancel.as_ref().is_some_and(Cancel::is_cancelled)
            || self.tries_max.is_some_and(|max| done.tried >= max)
    }

    /// Whether one more may be handed out, should all those that are under way be tried.
    fn has_room(&self, crew: &Crew, done: &CompleterReport) -> bool {
        let under_way = crew.busy() as u64;
        crew.busy() < self.completer.concurrency
            && self.tries_max.is_none_or(|max| done.tried + under_way < max)
    }

    fn hear(&self, end: End, done: &mut CompleterReport) -> Result<()> {
        let broken = done.count(end);
        self.tell(done);
        broken.map_or(Ok(()), Err)
    }

    fn tell(&self, done: &CompleterReport) {
        if let Some(progress) = &self.on_progress {
            progress(done);
        }
    }
}

impl Store {
    /// Finishes what is abandoned: one pass, here and now. Returns once every handler has returned.
    ///
    /// Without passes, by hand or by [`Options::complete_every`](crate::Options::complete_every), abandoned
    /// requests wait for their callers. A pass reads only what is in flight or held and due, each row once; it
    /// never touches a claim that lives in this process, and loses to an owner that renews or a caller that is
    /// faster. A damaged record is counted and passed over. Several passes may run at once, here and in the
    /// store's own thread: each request is won by one of them.
    ///
    /// *Durability*: what is counted as completed or held is on disk. *Errors*: `Invalid` (a time to come),
    /// `Unknown` and `Poisoned` (reopen; the next pass goes on), `Closed`, `Corrupt`, `Internal` (no threads).
    /// After an error what was finished stays finished.
    pub fn complete_abandoned(&self, pass: &CompleterPass) -> Result<CompleterReport> {
        self.running.shared.check()?;
        let mut crew = Crew::new(&Arc::downgrade(&self.running), &pass.completer);
        let mut done = CompleterReport::default();
        let fed = feed(&self.running.shared, pass, &mut crew, &mut done);
        crew.dismiss();
        let mut broken = None;
        while let Some(end) = crew.next_end() {
            broken = broken.or(pass.hear(end, &mut done).err());
        }
        crew.join();
        log(&done);
        fed?;
        broken.map_or(Ok(done), Err)
    }
}

/// Looks at what is abandoned and hands it out, as fast as threads are free. What is handed out last may
/// still be under way on return.
pub(crate) fn feed(
    shared: &Shared,
    pass: &CompleterPass,
    crew: &mut Crew,
    done: &mut CompleterReport,
) -> Result<()> {
    shared.check()?;
    let now_ms = shared.now_ms();
    let at_ms = pass.at_ms.unwrap_or(now_ms);
    if at_ms > now_ms {
        return Err(Error::invalid("a pass cannot run ahead of store time; give a time that has come"));
    }
    let knows = |operation: &str| pass.completer.handlers.contains_key(operation);
    let mut place: Option<Vec<u8>> = None;
    while !pass.is_over(shared, done) {
        let looked = shared.look_abandoned(at_ms, place.as_deref(), FINISH_PAGE_LEN_MAX, knows)?;
        let Some(last) = looked.last() else {
            done.is_whole = true;
            break;
        };
        place = Some(last.0.clone());
        done.rows_read += looked.len() as u64;
        for (_, found) in looked {
            match found {
                Ok(Found::NotDue) => {}
                Ok(Found::NoHandler) => done.without_handler += 1,
                Ok(Found::Abandoned(id)) => {
                    if !give(shared, pass, crew, done, id)? {
                        return Ok(());
                    }
                }
                Err(error) => done.fail(&error),
            }
        }
        pass.tell(done);
    }
    Ok(())
}

/// Hands one out as soon as a thread is free; false if the pass is over.
fn give(
    shared: &Shared,
    pass: &CompleterPass,
    crew: &mut Crew,
    done: &mut CompleterReport,
    id: Id,
) -> Result<bool> {
    loop {
        while let Some(end) = crew.try_next_end() {
            pass.hear(end, done)?;
        }
        if pass.is_over(shared, done) {
            return Ok(false);
        }
        if pass.has_room(crew, done) {
            crew.give(id)?;
            return Ok(true);
        }
        match crew.next_end() {
            Some(end) => pass.hear(end, done)?,
            None => return Ok(false),
        }
    }
}

impl CompleterReport {
    /// Counts one end; an error that ends the pass is given back.
    fn count(&mut self, end: End) -> Option<Error> {
        match end {
            End::Passed => self.passed += 1,
            End::NoHandler => self.without_handler += 1,
            End::HeldUntried(HoldReason::TriedTooOften) => self.given_up += 1,
            End::HeldUntried(_) => self.held += 1,
            End::Tried(tried) => self.count_tried(tried),
            End::Failed(error) => match error.kind() {
                ErrorKind::Poisoned | ErrorKind::Unknown | ErrorKind::Closed => return Some(error),
                _ => self.fail(&error),
            },
        }
        None
    }

    fn count_tried(&mut self, tried: Tried) {
        self.tried += 1;
        *match tried {
            Tried::Completed => &mut self.completed,
            Tried::Said => &mut self.ended_by_handler,
            Tried::Later => &mut self.postponed,
            Tried::Unsaid => &mut self.unsaid,
            Tried::Panicked => &mut self.panicked,
            Tried::Held => &mut self.held,
            Tried::Lost => &mut self.lost,
            Tried::Refused => &mut self.refused,
            Tried::Unheard => &mut self.unheard,
        } += 1;
    }

    fn fail(&mut self, error: &Error) {
        match error.kind() {
            ErrorKind::Corrupt | ErrorKind::Incompatible => self.damaged += 1,
            _ => self.failed += 1,
        }
        tracing::warn!(target: "keyclaim", %error, "an abandoned request was passed over");
    }
}

pub(crate) fn log(done: &CompleterReport) {
    tracing::debug!(
        target: "keyclaim", rows_read = done.rows_read, tried = done.tried, completed = done.completed,
        given_up = done.given_up, damaged = done.damaged, failed = done.failed, "a pass of the completer ended"
    );
}

impl fmt::Debug for CompleterPass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompleterPass")
            .field("completer", &self.completer)
            .field("at_ms", &self.at_ms)
            .field("tries_max", &self.tries_max)
            .finish_non_exhaustive()
    }
}
