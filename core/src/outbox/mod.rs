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
//! letter stops those behind it. The functions in here decide, over [`Rows`](crate::rows::Rows), for every engine. The
//! page `core/docs/outbox.md` has the guarantees, the settings and what a consumer does.

mod decide;
mod delivery;
mod event;
mod options;
#[cfg(feature = "store")]
mod relay;
mod row;

pub use crate::backoff::Backoff;
pub use decide::{Ending, Leased, Settled, Terms, drop_dead, end, lease, load, plan, requeue};
pub use delivery::{DeadLetter, Delivery, PublishError, Relayed};
pub use event::{Event, EventId, check};
pub use options::RelayOptions;
#[cfg(feature = "store")]
pub use relay::Relay;
pub use row::{Place, Row, Standing};

#[cfg(feature = "store")]
pub(crate) use decide::no_such_letter;
