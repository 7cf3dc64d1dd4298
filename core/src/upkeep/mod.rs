//! What has to be done beside the requests: finishing what is abandoned, removing what is over, and
//! reporting what does not end.
//!
//! Each pass can be run by hand, with a given time; [`Options::complete_every`](crate::Options::complete_every)
//! and [`Options::reap_every`](crate::Options::reap_every) run them in threads. No answer depends on whether
//! a pass has run.

use std::sync::Arc;

mod completer;
pub(crate) mod due;
mod reaper;

pub use completer::{Completer, CompleterPass, CompleterReport, Ended, Later, Takeover};
pub(crate) use completer::{Crew, Taken, feed, log};
pub use reaper::{Reap, Reaped, Unfinished};
pub(crate) use reaper::{jittered, pass};

/// Something of the caller's that is told of this.
pub(crate) type Hook<T> = Arc<dyn Fn(&T) + Send + Sync>;
