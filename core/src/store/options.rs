//! How a store is opened.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::file;
use super::plant::Planted;
use crate::clock::{Clock, StoreTime};
use crate::limits::{
    BODY_LEN_DEFAULT, BODY_LEN_MAX, CACHE_LEN_DEFAULT, KEY_LEN_DEFAULT, KEY_LEN_MAX, QUEUE_LEN_DEFAULT,
    REAP_EVERY_MS_MIN, RENEW_LEASES_DEFAULT, WRITE_WAIT_MS_DEFAULT,
};
use crate::upkeep::{Completer, Hook, Unfinished};
use crate::{Abandoned, Error, Millis, Policy, Result};

/// Which processes of a machine may have a store open at a time.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Sharing {
    /// One. Every other one is told `Busy`.
    #[default]
    OneProcess,
    /// Any number, if all of them say so: the workers of a pre-fork server, each of which opens the store after it
    /// was forked.
    Processes,
}

/// How a store is opened: safe defaults, and the one choice that has none.
#[derive(Clone)]
pub struct Options {
    pub(super) policy: Policy,
    pub(super) cache_len: usize,
    pub(super) verify_on_open: bool,
    pub(super) queue_len_max: usize,
    pub(super) key_len_max: usize,
    pub(super) body_len_max: usize,
    pub(super) renew_leases_max: u32,
    pub(super) wait: Duration,
    pub(super) sharing: Sharing,
    pub(super) write_wait: Duration,
    pub(super) reboot_gap_max_ms: Millis,
    pub(super) clock: Option<Arc<dyn Clock>>,
    pub(super) on_repair: Option<Arc<dyn Fn(f64) + Send + Sync>>,
    pub(super) reap_every: Option<Duration>,
    pub(super) complete_every: Option<(Duration, Completer)>,
    pub(crate) on_unfinished: Option<Hook<Unfinished>>,
    pub(super) planted: Planted,
    #[cfg(any(test, feature = "testing"))]
    pub(super) faults: super::inject::Faults,
    #[cfg(any(test, feature = "testing"))]
    pub(super) panics: Arc<std::sync::atomic::AtomicU64>,
}

impl Options {
    /// The defaults, and what becomes of an attempt that died having recorded nothing.
    pub fn new(abandoned: Abandoned) -> Self {
        Self::with_policy(Policy::new(abandoned))
    }

    /// The defaults, with the policy of every claim that brings none of its own.
    pub fn with_policy(policy: Policy) -> Self {
        Self {
            policy,
            cache_len: CACHE_LEN_DEFAULT,
            verify_on_open: false,
            queue_len_max: QUEUE_LEN_DEFAULT,
            key_len_max: KEY_LEN_DEFAULT,
            body_len_max: BODY_LEN_DEFAULT,
            renew_leases_max: RENEW_LEASES_DEFAULT,
            wait: Duration::ZERO,
            sharing: Sharing::OneProcess,
            write_wait: Duration::from_millis(WRITE_WAIT_MS_DEFAULT),
            reboot_gap_max_ms: StoreTime::GAP_MAX_DEFAULT,
            clock: None,
            on_repair: None,
            reap_every: None,
            complete_every: None,
            on_unfinished: None,
            planted: Planted::default(),
            #[cfg(any(test, feature = "testing"))]
            faults: super::inject::Faults::default(),
            #[cfg(any(test, feature = "testing"))]
            panics: Arc::default(),
        }
    }

    /// Sets the page cache in bytes (default 64 MiB).
    #[must_use]
    pub fn cache_len(mut self, bytes: usize) -> Self {
        self.cache_len = bytes;
        self
    }

    /// Reads the whole file at every opening and refuses it as `Corrupt` if any page is damaged (default off).
    ///
    /// Every record has a checksum of its own, so damage to it or to the key it is filed under is found when
    /// it is looked up. Damage to a page's number, which can hide a key, and to the due index is found only
    /// here. Costs about a second for half a gigabyte.
    #[must_use]
    pub fn verify_on_open(mut self, verify: bool) -> Self {
        self.verify_on_open = verify;
        self
    }

    /// Sets how many claims may wait for the writer (default 1,024); the next one is told `Busy`.
    pub fn queue_len_max(mut self, claims: usize) -> Result<Self> {
        if claims == 0 {
            return Err(Error::invalid("a queue for no claims would refuse them all; allow one or more"));
        }
        self.queue_len_max = claims;
        Ok(self)
    }

    /// Sets the longest key in bytes (default 255, at most 1,024).
    pub fn key_len_max(mut self, bytes: usize) -> Result<Self> {
        if bytes == 0 || bytes > KEY_LEN_MAX {
            return Err(Error::invalid("the longest key must be between 1 and 1,024 bytes"));
        }
        self.key_len_max = bytes;
        Ok(self)
    }

    /// Sets the largest stored body in bytes (default 1 MiB, at most 64 MiB). A larger response is
    /// completed without its bytes; a larger request is refused.
    pub fn body_len_max(mut self, bytes: usize) -> Result<Self> {
        if bytes > BODY_LEN_MAX {
            return Err(Error::invalid("the largest stored body is 64 MiB"));
        }
        self.body_len_max = bytes;
        Ok(self)
    }

    /// Sets for how many leases the store renews a claim that lives in this process (default 10, 0 for none).
    #[must_use]
    pub fn renew_leases_max(mut self, leases: u32) -> Self {
        self.renew_leases_max = leases;
        self
    }

    /// Waits this long for another process to close the store: for rolling restarts.
    #[must_use]
    pub fn open_wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Sets which processes may have the store open at a time (default one). All of them must say the same.
    ///
    /// With [`Sharing::Processes`] every guarantee of a claim holds between them as it does between threads: one
    /// winner, fencing, replays, waits. Experimental, see `core/docs/sharing.md` for what is not promised yet. Each
    /// process opens the store for itself, after it was forked. Commits of different processes take turns, and so
    /// several processes are slower than one.
    #[must_use]
    pub fn sharing(mut self, sharing: Sharing) -> Self {
        self.sharing = sharing;
        self
    }

    /// Sets how long a command waits for a write of another process before it is told `Busy` (default 5 s). Without
    /// [`Sharing::Processes`] there is nobody to wait for.
    #[must_use]
    pub fn write_wait(mut self, wait: Duration) -> Self {
        self.write_wait = wait;
        self
    }

    /// How long to wait for another process's write, if there can be one.
    pub(super) fn shared_wait(&self) -> Option<Duration> {
        (self.sharing == Sharing::Processes).then_some(self.write_wait)
    }

    /// Sets how much of the wall clock's gap over a reboot counts as time passed (default one hour).
    #[must_use]
    pub fn reboot_gap_max(mut self, gap: Duration) -> Self {
        self.reboot_gap_max_ms = Millis::from_duration(gap);
        self
    }

    /// Takes time from this clock instead of the system's.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Is told the progress, 0.0 to 1.0, of a repair after a crash, should one be needed.
    #[must_use]
    pub fn on_repair(mut self, progress: impl Fn(f64) + Send + Sync + 'static) -> Self {
        self.on_repair = Some(Arc::new(progress));
        self
    }

    /// Removes what is past its horizon about this often, in a thread of the store's own (default off).
    ///
    /// Without it, and without [`Store::reap`](super::Store::reap) by hand, nothing is ever removed: answers
    /// are the same, and the file grows. The period of one store is always the same, and up to 10 % more or
    /// less than this, so that stores opened together reap apart. The first pass comes after a tenth of it.
    ///
    /// Errors: `Invalid` below 10 ms.
    pub fn reap_every(mut self, period: Duration) -> Result<Self> {
        if Millis::from_duration(period).0 < REAP_EVERY_MS_MIN {
            return Err(Error::invalid("the reaper's period must be 10 ms or more"));
        }
        self.reap_every = Some(period);
        Ok(self)
    }

    /// Finishes abandoned requests by these handlers about this often, in threads of the store's own (default
    /// off); otherwise like [`Store::complete_abandoned`](super::Store::complete_abandoned).
    ///
    /// A handler that takes long keeps its thread and no other: the others go on, over as many passes as it
    /// takes. The period of one store is always the same, and up to 10 % more or less than this; the first
    /// pass comes after a tenth of it. No try begins once the last handle on the store is gone or it is being
    /// closed, and closing waits for handlers that run ([`Completer::close_wait`]).
    ///
    /// Errors: `Invalid` below 10 ms.
    pub fn complete_every(mut self, period: Duration, completer: Completer) -> Result<Self> {
        if Millis::from_duration(period).0 < REAP_EVERY_MS_MIN {
            return Err(Error::invalid("the completer's period must be 10 ms or more"));
        }
        self.complete_every = Some((period, completer));
        Ok(self)
    }

    /// Is told of each record that is unfinished past its horizon, before that is recorded as reported.
    ///
    /// It is called once a horizon for each record, by whichever pass finds it; again in the next pass if it
    /// panicked or the process died before the record of the report was on disk. No lock is held meanwhile:
    /// it may resolve the record. It must not own a handle on the store, which would then never close.
    #[must_use]
    pub fn on_unfinished(mut self, hook: impl Fn(&Unfinished) + Send + Sync + 'static) -> Self {
        self.on_unfinished = Some(Arc::new(hook));
        self
    }

    /// The I/O faults this store is opened with, to add to at any time.
    #[cfg(any(test, feature = "testing"))]
    pub fn faults(&self) -> super::inject::Faults {
        self.faults.clone()
    }

    /// Lets the store make this mistake, and no other.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn plant(mut self, plant: super::plant::Plant) -> Self {
        self.planted = Planted::with(plant);
        self
    }

    /// How many of the next decisions panic, to set at any time.
    #[cfg(any(test, feature = "testing"))]
    pub fn panics(&self) -> Arc<std::sync::atomic::AtomicU64> {
        self.panics.clone()
    }

    pub(super) fn file(&self, create: bool) -> file::Options {
        file::Options {
            create,
            cache_len: self.cache_len,
            verify: self.verify_on_open,
            progress: self.on_repair.clone(),
            shared_wait: self.shared_wait(),
            planted: self.planted,
            #[cfg(any(test, feature = "testing"))]
            faults: self.faults.clone(),
        }
    }

    /// Panics if a test asked for it.
    #[allow(clippy::unused_self, reason = "only tests ask for panics")]
    pub(super) fn maybe_panic(&self) {
        #[cfg(any(test, feature = "testing"))]
        {
            use std::sync::atomic::Ordering::SeqCst;
            let asked = self.panics.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
            assert!(asked.is_err(), "a test asked for this panic");
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("policy", &self.policy).finish_non_exhaustive()
    }
}
