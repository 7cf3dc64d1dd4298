//! What waits for the writer: two lanes, both bounded, owners before claims.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::slot::Giver;
use crate::key::Id;
use crate::limits::GROUP_LEN_MAX;
use crate::machine::{Answer, Command};
use crate::{Error, ErrorKind, Result};

/// One command on its way to the writer.
pub(super) struct Job {
    pub(super) id: Id,
    pub(super) command: Command,
    pub(super) giver: Giver<Reply>,
}

/// What comes back.
pub(crate) struct Reply {
    pub(crate) answer: Result<Answer>,
    /// What lets go of the win, should nobody be there to be told.
    pub(super) untold: Option<Command>,
}

/// Which lane a job waits in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Lane {
    /// Claims, look-ups, operators: refused with `Busy` when it is full.
    Claims,
    /// Owners and whatever lets go of a claim: every live claim has its place, so this is never refused.
    Owners,
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

impl Queue {
    pub(super) fn new(claims_max: usize) -> Self {
        Self { lanes: Mutex::default(), filled: Condvar::new(), claims_max }
    }

    pub(super) fn push(&self, lane: Lane, job: Job) -> Result<()> {
        let mut lanes = self.lanes.lock();
        if lanes.closed {
            return Err(closed());
        }
        match lane {
            Lane::Owners => lanes.owners.push_back(job),
            Lane::Claims if lanes.claims.len() >= self.claims_max => {
                return Err(Error::busy("the queue of claims is full; ask again", BUSY_RETRY_AFTER));
            }
            Lane::Claims => lanes.claims.push_back(job),
        }
        drop(lanes);
        self.filled.notify_one();
        Ok(())
    }

    /// The next group, owners first; waits for one. None once the queue is closed and empty.
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
