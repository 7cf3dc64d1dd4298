//! Where commands come in: whoever finds nobody waiting is served at once, all others queue for the writer's thread.

use super::queue::{Job, Lane, Queue};
use super::sync::{Mutex, MutexGuard};
use crate::Result;

/// Brings one command, and returns once it is served or queued.
///
/// `make` makes the command, with what keeps the commands of its caller in their order: a guard, which is dropped
/// once its place among the others is settled. `serve` serves it with the writer in hand.
///
/// Errors: as of [`Queue::push`]; it was not served.
pub(super) fn bring<W, G>(
    writer: &Mutex<W>,
    queue: &Queue,
    lane: Lane,
    make: impl FnOnce() -> (Job, G),
    serve: impl FnOnce(MutexGuard<'_, W>, Vec<Job>),
) -> Result<()> {
    let writer = writer.try_lock();
    let (job, order) = make();
    // Looked at with the order held: whoever was before this command has it queued by now.
    if let Some(writer) = writer.filter(|_| queue.is_empty()) {
        drop(order);
        serve(writer, vec![job]);
        Ok(())
    } else {
        let pushed = queue.push(lane, job);
        drop(order);
        pushed
    }
}

/// Serves group after group until the queue is closed and empty.
pub(super) fn serve_groups<W>(
    writer: &Mutex<W>,
    queue: &Queue,
    mut serve: impl FnMut(MutexGuard<'_, W>, Vec<Job>),
) {
    while queue.wait_for_work() {
        // Taken with the writer in hand: what comes meanwhile joins the group.
        let writer = writer.lock();
        let group = queue.take_group();
        serve(writer, group);
    }
}
