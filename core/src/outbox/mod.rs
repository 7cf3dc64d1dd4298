//! The outbox: events that commit with what a request records, and are published at least once.
//!
//! ```text
//!  emitted -> waiting -> leased -> published: gone
//!                ^          | failed: after a delay, or its lease ran out
//!                +----------+
//!                ^          | refused, or failed too often
//!                |          v
//!                +------- dead letter -> dropped by a person: gone
//!                 requeued by a person
//! ```
//!
//! An event with an ordering key waits until all before it with the same scope and ordering key are gone; a dead
//! letter stops those behind it. The functions in here decide, over [`Rows`](crate::rows::Rows), for every engine.

mod backoff;
mod decide;
mod event;
mod row;

pub use backoff::Backoff;
pub use decide::{Ending, Leased, Settled, Terms, drop_dead, end, lease, plan, requeue};
pub use event::{Event, EventId, check};
pub use row::{Place, Row, Standing};
