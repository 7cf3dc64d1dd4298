//! Faults for tests: the n-th read, write, resize, sync or lock fails as the test says.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

pub use super::backend::Op;

/// One fault: from its `nth` operation of that kind on, counted from one and from when it was added.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Which operations count.
    pub op: Op,
    /// Which of them fails, from one.
    pub nth: u64,
    /// Whether all after it fail as well.
    pub from_then_on: bool,
    /// Whether the operation is done before it is reported as failed.
    pub done: bool,
    /// The system's error number.
    pub errno: i32,
}

/// The faults of one store; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<Vec<(Fault, u64)>>>);

impl Faults {
    /// Adds a fault.
    pub fn add(&self, fault: Fault) {
        self.0.lock().push((fault, 0));
    }

    /// Removes all faults.
    pub fn clear(&self) {
        self.0.lock().clear();
    }

    /// Counts this operation and runs it, or fails in its place.
    pub(crate) fn run<R>(&self, op: Op, f: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        let due = self.count(op);
        match due {
            None => f(),
            Some(fault) => {
                if fault.done {
                    f()?;
                }
                Err(io::Error::from_raw_os_error(fault.errno))
            }
        }
    }

    fn count(&self, op: Op) -> Option<Fault> {
        let mut due = None;
        for (fault, seen) in self.0.lock().iter_mut().filter(|(fault, _)| fault.op == op) {
            *seen += 1;
            if *seen == fault.nth || (fault.from_then_on && *seen > fault.nth) {
                due = Some(*fault);
            }
        }
        due
    }
}
