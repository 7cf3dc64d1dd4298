//! How the unfinished records stand now, read from the lane of the due index that is theirs alone.

use std::cell::LazyCell;

use crate::limits::STATS_READS_MAX;
use crate::machine::{Record, State};
use crate::rows::{self, Lane, Rows, Slot, Table};
use crate::{ErrorKind, Millis, Result, Token};

/// What one reading found; see the fields of [`Stats`](super::Stats).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Now {
    pub(crate) in_flight: u64,
    pub(crate) held: u64,
    pub(crate) orphaned: u64,
    pub(crate) oldest_in_flight_ms: u64,
    pub(crate) damaged: u64,
    pub(crate) rows_read: u64,
    pub(crate) is_floor: bool,
}

impl Now {
    /// Looks at the unfinished records, [`STATS_READS_MAX`] at most. The time is asked for when the first is met;
    /// `lives_here` says whether the owner of the record with this key and token is a claim of this process.
    pub(crate) fn read(
        rows: &impl Rows,
        now_ms: impl FnOnce() -> Millis,
        lives_here: impl Fn(Vec<u8>, Token) -> bool,
    ) -> Result<Self> {
        let now_ms = LazyCell::new(now_ms);
        let last = Slot { lane: Lane::Unfinished, when: Millis(u64::MAX) };
        let (mut now, mut after, mut left) = (Self::default(), None::<Vec<u8>>, STATS_READS_MAX);
        // Ends: every round but the last leaves fewer rows to read.
        loop {
            // One more than is read, to learn whether there is more.
            let page = rows.due_before(last, after.as_deref(), PAGE_LEN.min(left + 1))?;
            let is_last = page.len() < PAGE_LEN.min(left + 1);
            for entry in page {
                if left == 0 {
                    now.is_floor = true;
                    return Ok(now);
                }
                left -= 1;
                now.rows_read += 1;
                match entry.row.filter(|row| row.table == Table::Records) {
                    Some(row) => match rows::load(rows, &row.key) {
                        Ok(Some(record)) => {
                            let token = record.token;
                            now.count(&record, *now_ms, || lives_here(row.key, token));
                        }
                        // The index is wrong; the reaper puts it right.
                        Ok(None) => {}
                        Err(error) if is_of_one_record(error.kind()) => now.damaged += 1,
                        Err(error) => return Err(error),
                    },
                    None => now.damaged += 1,
                }
                after = Some(entry.place);
            }
            if is_last {
                return Ok(now);
            }
        }
    }

    fn count(&mut self, record: &Record, now_ms: Millis, lives_here: impl FnOnce() -> bool) {
        match record.state {
            State::InFlight { lease_until_ms, .. } => {
                self.in_flight += 1;
                let age_ms = now_ms.since(record.created_ms).0;
                self.oldest_in_flight_ms = self.oldest_in_flight_ms.max(age_ms);
                if lease_until_ms.is_some_and(|until_ms| now_ms >= until_ms) && !lives_here() {
                    self.orphaned += 1;
                }
            }
            State::Held { .. } => self.held += 1,
            State::Complete { .. } => {}
        }
    }
}

fn is_of_one_record(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Corrupt | ErrorKind::Incompatible)
}

/// Entries of the index in memory at once (arbitrary).
const PAGE_LEN: usize = 1_000;
