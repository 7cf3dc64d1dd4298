//! The files of core at which a store's threads meet, compiled with doubles of its locks: `loom` lets the threads of a
//! model run in every order, `shuttle` in many.
//!
//! What those files need of the rest of core is taken from it, or stands in here where it is not public.

#[cfg(not(any(feature = "loom", feature = "shuttle")))]
compile_error!("choose a scheduler: --features loom or --features shuttle");

#[cfg(all(feature = "loom", feature = "shuttle"))]
compile_error!("choose one scheduler");

mod error;
#[cfg(test)]
mod scheduler;

pub use error::{Error, ErrorKind, Result};

mod key {
    pub(crate) use keyclaim::Id;
}

mod limits {
    pub(crate) use keyclaim::limits::*;
}

mod machine {
    pub(crate) use keyclaim::machine::{Answer, Command};
}

mod upkeep {
    pub(crate) struct Taken;
}

mod store;
