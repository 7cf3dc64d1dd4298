//! Looking without claiming: one key, or a scope in pages.

use super::Store;
use crate::fingerprint::Prefix;
use crate::key::{Id, Key, Scope};
use crate::limits::{PAGE_READS_MAX, PAGE_ROWS_MAX};
use crate::machine::{self, HoldReason, OutcomeClass, Record, State, StepProgress};
use crate::{Error, ErrorKind, Generation, Millis, Result, Token, codec, rows};

/// What a key holds, without its body.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Inspection {
    /// The intent.
    pub generation: Generation,
    /// The token an operator names to change it.
    pub token: Token,
    /// Which attempt of the generation is the current one.
    pub attempt: u32,
    /// Where it stands.
    pub standing: Standing,
    /// The first digits of its fingerprint, to tell two requests apart.
    pub fingerprint_prefix: Prefix,
    /// The operation's name.
    pub operation: Option<String>,
    /// When the generation began.
    pub created_ms: Millis,
    /// When a command last changed it.
    pub applied_ms: Millis,
    /// When its reaper horizon is over.
    pub horizon_until_ms: Millis,
    /// Its recovery point's name.
    pub point: Option<String>,
    /// Its steps, in order.
    pub steps: Vec<(String, StepStanding)>,
    /// Store time of this look.
    pub now_ms: Millis,
}

/// Where a record stands, for people.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Standing {
    /// An attempt runs, or its lease is over and nobody has taken over.
    InFlight {
        /// When the lease is over; none if it ends only by command.
        lease_until_ms: Option<Millis>,
    },
    /// Nobody may run it until it is resolved.
    Held {
        /// Why.
        reason: HoldReason,
    },
    /// There is an outcome.
    Complete {
        /// Whether it succeeded.
        class: OutcomeClass,
        /// Its status.
        status: u16,
        /// The length of its body.
        body_len: u64,
        /// When it was completed.
        completed_ms: Millis,
        /// When its replay window is over.
        window_until_ms: Millis,
    },
}

/// What is known of a step, for people.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum StepStanding {
    /// Begun; in doubt from then on.
    Begun {
        /// When it must have ended.
        until_ms: Millis,
    },
    /// It happened.
    Done,
    /// It was refused for good.
    Refused,
}

/// Which records a listing shows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Which {
    /// Those in flight, abandoned ones included.
    InFlight,
    /// Those held for a person.
    Held,
    /// Both.
    Unfinished,
    /// All, finished ones included.
    All,
}

/// One page of a listing.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Page {
    /// The keys and what they hold, in the order of their bytes.
    pub rows: Vec<(Key, Inspection)>,
    /// Ask for the page after this key; none if this was the last one.
    pub next: Option<Key>,
    /// Keys whose record is damaged. They stop nobody from seeing the others.
    pub damaged: Vec<Key>,
}

impl Store {
    /// What a key holds, without claiming it; none if it is new.
    ///
    /// Errors: `Closed`, `Poisoned`, `Corrupt`, `Incompatible`.
    pub fn inspect(&self, id: &Id) -> Result<Option<Inspection>> {
        let shared = &self.running.shared;
        let encoded = id.encode();
        let record = shared.read(|rows| rows::load(rows, &encoded))?;
        let now_ms = shared.now_ms();
        Ok(record
            .filter(|record| !machine::is_past(record, now_ms))
            .map(|record| Inspection::of(&record, now_ms)))
    }

    /// One page of a scope's keys after `after`, at most `rows_max` (and 1,000) of them.
    ///
    /// A page reads at most 10,000 records, so one may come back with few rows or none and still
    /// name a `next`. What changes between two pages may be seen in its old or its new place.
    pub fn list(&self, scope: &Scope, which: Which, after: Option<&Key>, rows_max: usize) -> Result<Page> {
        if rows_max == 0 {
            return Err(Error::invalid("a page of no rows would never end; ask for one or more"));
        }
        let rows_max = rows_max.min(PAGE_ROWS_MAX);
        let shared = &self.running.shared;
        shared.engine.check()?;
        let now_ms = shared.now_ms();
        let range = scope.range();
        // The next id in byte order is this one with a zero byte behind it.
        let start = after.map_or(range.start.clone(), |key| {
            let mut start = Id::new(scope.clone(), key.clone()).encode();
            start.push(0);
            start
        });
        // Only a scope of nothing but 0xff has no end; then the table's end is its end.
        let end = range
            .end
            .clone()
            .unwrap_or_else(|| vec![u8::MAX; crate::limits::SCOPE_LEN_MAX + crate::limits::KEY_LEN_MAX + 2]);
        let mut page = Page::default();
        let mut reads = 0;
        shared.read(|rows| {
            rows.scan(&start, &end, |encoded, bytes| {
                let key = Id::decode(encoded)?.key().clone();
                if page.rows.len() == rows_max || reads == PAGE_READS_MAX {
                    return Ok(false);
                }
                reads += 1;
                page.next = Some(key.clone());
                match codec::decode(encoded, bytes) {
                    Ok(record) if which.shows(&record) && !machine::is_past(&record, now_ms) => {
                        page.rows.push((key, Inspection::of(&record, now_ms)));
                    }
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::Corrupt => page.damaged.push(key),
                    Err(error) => return Err(error),
                }
                Ok(true)
            })
        })?;
        if page.rows.len() < rows_max && reads < PAGE_READS_MAX {
            page.next = None;
        }
        Ok(page)
    }
}

impl Which {
    fn shows(self, record: &Record) -> bool {
        match record.state {
            State::InFlight { .. } => matches!(self, Self::InFlight | Self::Unfinished | Self::All),
            State::Held { .. } => matches!(self, Self::Held | Self::Unfinished | Self::All),
            State::Complete { .. } => self == Self::All,
        }
    }
}

impl Inspection {
    pub(crate) fn of(record: &Record, now_ms: Millis) -> Self {
        let steps = record.steps.iter().map(|step| {
            let standing = match step.progress {
                StepProgress::Begun { until_ms, .. } => StepStanding::Begun { until_ms },
                StepProgress::Done(_) => StepStanding::Done,
                StepProgress::Refused(_) => StepStanding::Refused,
            };
            (step.name.clone(), standing)
        });
        Self {
            generation: record.generation,
            token: record.token,
            attempt: record.attempt,
            standing: Standing::of(&record.state),
            fingerprint_prefix: record.fingerprint.prefix(),
            operation: record.operation.clone(),
            created_ms: record.created_ms,
            applied_ms: record.applied_ms,
            horizon_until_ms: record.horizon_until_ms(),
            point: record.point.as_ref().map(|point| point.name.clone()),
            steps: steps.collect(),
            now_ms,
        }
    }
}

impl Standing {
    fn of(state: &State) -> Self {
        match state {
            State::InFlight { lease_until_ms, .. } => Self::InFlight { lease_until_ms: *lease_until_ms },
            State::Held { reason } => Self::Held { reason: *reason },
            State::Complete { outcome, completed_ms, window_until_ms } => Self::Complete {
                class: outcome.class,
                status: outcome.response.status,
                body_len: outcome.response.body.len(),
                completed_ms: *completed_ms,
                window_until_ms: *window_until_ms,
            },
        }
    }
}
