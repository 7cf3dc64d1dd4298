//! What has to be done beside the requests: removing what is over, and reporting what does not end.
//!
//! Each pass can be run by hand, with a given time; [`Options::reap_every`](crate::Options::reap_every) runs
//! them in a thread. No answer depends on whether a pass has run.

use std::sync::Arc;

pub(crate) mod due;
mod reaper;

pub use reaper::{Reap, Reaped, Unfinished};
pub(crate) use reaper::{jittered, pass};

/// Something of the caller's that is told of this.
pub(crate) type Hook<T> = Arc<dyn Fn(&T) + Send + Sync>;
