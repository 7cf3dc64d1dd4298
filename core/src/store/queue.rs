//! What waits for the writer: two lanes, both bounded, owners before claims.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::slot::Giver;
use super::sync::{AtomicUsize, Condvar, Mutex, Ordering};
use crate::key::Id;
use crate::limits::{GROUP_LEN_MAX, OWNER_QUEUE_LEN_MAX};
use crate::machine::{Answer, Command};
use crate::upkeep::Taken;
use crate::{Error, ErrorKind, Result};

/// One command on its way to the writer.
pub(super) struct Job {
    pub(super) id: Id,
    pub(super) command: Command,
    pub(super) giver: Giver<Reply>,
    /// The place of the owner it comes from, given back when the command is answered, heard or not.
    place: Option<Place>,
}

/// One of the few places that a claim object has in the owners' lane.
pub(crate) struct Place(Arc<AtomicUsize>);

/// What comes back.
pub(crate) struct Reply {
    pub(crate) answer: Result<Answer>,
    /// What lets go of the win, should nobody be there to be told.
    pub(super) untold: Option<Command>,
    /// What goes with the win of an abandoned claim.
    pub(super) taken: Option<Taken>,
}

/// Which lane a job waits in.
pub(crate) enum Lane {
    /// Claims and operators: refused with `Busy` when it is full.
    Claims,
    /// What an owner says: never refused, since every claim object has places of its own.
    Owner(Place),
    /// What the store says for an owner: one renewal a claim, and the letting go of an untold win.
    Store,
}

pub(super) struct Queue {
    lanes: Mutex<Lanes>,
    filled: Condvar,
    claims_max: usize,
}

#[derive(Default)]
struct Lanes {
    owners: VecDeque<Job>,
    claims: VecDeque<Job>,
    closed: bool,
}

impl Job {
    pub(super) fn new(id: Id, command: Command, giver: Giver<Reply>) -> Self {
        Self { id, command, giver, place: None }
    }
}

impl Place {
    /// Takes one of the places that this counts; `Busy` if there is none left. An owner says one thing
    /// after the other, so whoever pours commands into the queue is stopped.
    pub(crate) fn take(taken: &Arc<AtomicUsize>) -> Result<Self> {
        let place = Self(taken.clone());
        if taken.fetch_add(1, Ordering::AcqRel) >= OWNER_QUEUE_LEN_MAX {
            return Err(Error::busy(
                "this claim has too many commands waiting; await them first",
                BUSY_RETRY_AFTER,
            ));
        }
        Ok(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Queue {
    pub(super) fn new(claims_max: usize) -> Self {
        Self { lanes: Mutex::default(), filled: Condvar::new(), claims_max }
    }

    pub(super) fn push(&self, lane: Lane, mut job: Job) -> Result<()> {
        let mut lanes = self.lanes.lock();
        if lanes.closed {
            return Err(closed());
        }
        match lane {
            Lane::Store => lanes.owners.push_back(job),
            Lane::Owner(place) => {
                job.place = Some(place);
                lanes.owners.push_back(job);
            }
            Lane::Claims if lanes.claims.len() >= self.claims_max => {
                return Err(Error::busy("the queue of claims is full; ask again", BUSY_RETRY_AFTER));
            }
            Lane::Claims => lanes.claims.push_back(job),
        }
        drop(lanes);
        self.filled.notify_one();
        Ok(())
    }

    /// Waits until something is to be served; false once the queue is closed and empty.
    pub(super) fn wait_for_work(&self) -> bool {
        let mut lanes = self.lanes.lock();
        while lanes.is_empty() && !lanes.closed {
            self.filled.wait(&mut lanes);
        }
        !lanes.is_empty()
    }

    /// What waits now, owners first, as much as one group takes.
    pub(super) fn take_group(&self) -> Vec<Job> {
        let mut lanes = self.lanes.lock();
        let owners = lanes.owners.len().min(GROUP_LEN_MAX);
        let mut group: Vec<Job> = lanes.owners.drain(..owners).collect();
        let claims = lanes.claims.len().min(GROUP_LEN_MAX - owners);
        group.extend(lanes.claims.drain(..claims));
        group
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lanes.lock().is_empty()
    }

    /// Refuses whatever comes from now on; what waits is still served.
    pub(super) fn close(&self) {
        self.lanes.lock().closed = true;
        self.filled.notify_all();
    }
}

impl Lanes {
    fn is_empty(&self) -> bool {
        self.owners.is_empty() && self.claims.is_empty()
    }
}

pub(super) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the store is closed; open it again")
}

/// A full queue of 1,024 is served within a few groups; at a sync of some milliseconds that is this long.
const BUSY_RETRY_AFTER: Duration = Duration::from_millis(50);
