//! Power cuts on a simulated disk.

use keyclaim_tests::proofs::disk;

/// Thirteen bytes say which store, and where and how its power is cut; the others, what it does before.
pub(crate) fn crash_ops(bytes: &[u8]) {
    disk::crash_spelled(bytes);
}
