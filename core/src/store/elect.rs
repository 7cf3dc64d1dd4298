//! Which of several processes does the upkeep: one at a time, for a while, renewed while it works.
//!
//! Two at a time harm nothing, since each change is a transaction that looks first; they would only do the work of
//! one. So the post is a row with an end, and not a lock: whoever died or was stopped is replaced once it is over.

use super::shared::Shared;
use crate::limits::UPKEEP_LEASE_MS_MIN;
use crate::{Millis, Result};

/// One opening of the store by a process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ProcessId(pub(super) [u8; 16]);

/// A part of the upkeep that is done by one process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Part {
    Reaper,
    Completer,
}

/// Who does it, and until when unless it says so again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Post {
    pub(super) holder: ProcessId,
    pub(super) until_ms: Millis,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Elected {
    /// Another process does it.
    Other,
    /// This one, as before; there is nothing to write yet.
    Mine,
    /// This one, once this is written.
    Take(Post),
}

impl Part {
    pub(super) const ALL: [Self; 2] = [Self::Reaper, Self::Completer];

    /// The row in `meta`.
    pub(super) fn name(self) -> &'static [u8] {
        match self {
            Self::Reaper => b"upkeep reaper",
            Self::Completer => b"upkeep completer",
        }
    }
}

/// Whether `me` does it from now on for `lease_ms`. It says so again once half of that is over.
pub(super) fn decide(post: Option<Post>, me: ProcessId, now_ms: Millis, lease_ms: Millis) -> Elected {
    let take = Elected::Take(Post { holder: me, until_ms: now_ms.plus(lease_ms) });
    match post {
        Some(post) if post.holder == me => {
            if post.until_ms.since(now_ms).0 > lease_ms.0 / 2 {
                Elected::Mine
            } else {
                take
            }
        }
        Some(post) if now_ms < post.until_ms => Elected::Other,
        Some(_) | None => take,
    }
}

impl Shared {
    /// Whether this process does this part of the upkeep now. Alone it always does.
    pub(super) fn does(&self, part: Part, period_ms: Millis) -> Result<bool> {
        if self.options.shared_wait().is_none() {
            return Ok(true);
        }
        let lease_ms = Millis(period_ms.0.saturating_mul(3).max(UPKEEP_LEASE_MS_MIN));
        self.lock_writer()?.elect(self, part, lease_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ProcessId = ProcessId([1; 16]);
    const B: ProcessId = ProcessId([2; 16]);
    const LEASE: Millis = Millis(100);

    fn post(holder: ProcessId, until_ms: u64) -> Post {
        Post { holder, until_ms: Millis(until_ms) }
    }

    #[test]
    fn one_process_has_the_post_until_its_end() {
        assert_eq!(decide(None, A, Millis(10), LEASE), Elected::Take(post(A, 110)));
        assert_eq!(decide(Some(post(A, 110)), B, Millis(109), LEASE), Elected::Other);
        assert_eq!(decide(Some(post(A, 110)), B, Millis(110), LEASE), Elected::Take(post(B, 210)));
        assert_eq!(decide(Some(post(B, 210)), A, Millis(111), LEASE), Elected::Other);
    }

    #[test]
    fn whoever_has_it_says_so_again_at_half_its_time() {
        assert_eq!(decide(Some(post(A, 110)), A, Millis(59), LEASE), Elected::Mine);
        assert_eq!(decide(Some(post(A, 110)), A, Millis(60), LEASE), Elected::Take(post(A, 160)));
        assert_eq!(decide(Some(post(A, 110)), A, Millis(500), LEASE), Elected::Take(post(A, 600)));
    }
}
