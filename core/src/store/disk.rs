//! A simulated disk for tests: it remembers every change, fails as told, and can be cut off from power.
//!
//! It is assumed of it what redb assumes of media: what was written before a *successful* sync is durable, a
//! write changes no byte outside its range, and one byte is written whole or not at all. Nothing else: what was
//! not synced may be there or not, in any order and in parts. A *failed* sync loses what it was to write:
//! reads still show it, later syncs do not write it, and a power cut takes it away, as on Linux.

use std::io;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::Mutex;
use redb::{BackendError, StorageBackend};

/// One change of the disk, in the order it was made.
#[derive(Clone, Debug)]
pub enum DiskOp {
    /// These bytes were written at this offset.
    Write {
        /// Where.
        offset: u64,
        /// What.
        data: Arc<[u8]>,
    },
    /// The length was changed.
    SetLen(u64),
    /// All before it became durable.
    Sync,
}

/// One fault: from the `at`-th operation on, counted from zero and from when it was set.
#[derive(Clone, Copy, Debug)]
pub struct DiskFault {
    /// Whether reads are counted, or else changes: writes, resizes and syncs.
    pub reads: bool,
    /// Which of them fails.
    pub at: u64,
    /// Whether all after it fail as well.
    pub from_then_on: bool,
    /// The system's error number.
    pub errno: i32,
    /// How much of the failed change is made all the same, in percent: of a write its first bytes, of a sync the
    /// first of the changes that it was to make durable. The rest of those is lost.
    pub done_percent: u8,
}

/// A disk in memory; clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct SimDisk(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// What reads show.
    shown: Vec<u8>,
    /// What a power cut leaves for sure.
    durable: Vec<u8>,
    unsynced: Vec<DiskOp>,
    log: Vec<DiskOp>,
    fault: Option<(DiskFault, u64)>,
    faults_met: u64,
    lies: bool,
    panics: bool,
    is_cut: bool,
}

impl SimDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// A disk that holds these bytes, all of them durable.
    pub fn holding(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(State { shown: bytes.clone(), durable: bytes, ..State::default() })))
    }

    /// How many changes were made since this disk was made: a place in [`SimDisk::log`].
    pub fn log_len(&self) -> usize {
        self.0.lock().log.len()
    }

    /// All changes since this disk was made.
    pub fn log(&self) -> Vec<DiskOp> {
        self.0.lock().log.clone()
    }

    /// What is durable now, and what is not yet.
    pub fn unsynced(&self) -> (Vec<u8>, Vec<DiskOp>) {
        let state = self.0.lock();
        (state.durable.clone(), state.unsynced.clone())
    }

    /// Lets this fault happen, in place of any before.
    pub fn fail(&self, fault: DiskFault) {
        self.0.lock().fault = Some((fault, 0));
    }

    /// No more faults. What a failed sync has lost stays lost.
    pub fn heal(&self) {
        self.0.lock().fault = None;
    }

    /// How many operations have failed by a fault.
    pub fn faults_met(&self) -> u64 {
        self.0.lock().faults_met
    }

    /// From now on syncs succeed and make nothing durable: to see that a harness notices.
    pub fn lie(&self) {
        self.0.lock().lies = true;
    }

    /// From now on each change panics: redb does so on some damaged pages.
    pub fn panic(&self) {
        self.0.lock().panics = true;
    }

    /// Cuts the power: whoever still uses this disk gets errors.
    pub fn cut(&self) {
        self.0.lock().is_cut = true;
    }

    /// Drops what is cached: from now on reads show what the disk has.
    pub(super) fn drop_cache(&self) {
        let mut state = self.0.lock();
        // As for a file: what waits to be written is written first, unless that fails too.
        drop(state.sync());
        state.unsynced.clear();
        let State { shown, durable, .. } = &mut *state;
        shown.clone_from(durable);
    }
}

impl DiskOp {
    /// Makes this change; writes end where the bytes do.
    pub fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write { offset, data } => overwrite(bytes, index(*offset), data),
            Self::SetLen(len) => bytes.resize(index(*len), 0),
            Self::Sync => {}
        }
    }
}

/// How a power cut treats what was not synced, beyond leaving a part of the changes in order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Tear {
    /// The length of a sector, which is there or not.
    pub sector_len: usize,
    /// Whether a sector that was being written may hold garbage where it was to be changed. The file's first
    /// sector, which is overwritten in place, is torn between any two bytes instead: garbage there would break
    /// the assumption that one byte is written whole or not at all.
    pub garbage: bool,
}

/// What a power cut leaves: of each change, each sector as drawn. `draw` gives numbers below its argument.
pub fn torn(durable: &[u8], unsynced: &[DiskOp], tear: Tear, draw: &mut dyn FnMut(u64) -> u64) -> Vec<u8> {
    let mut bytes = durable.to_vec();
    for op in unsynced {
        match op {
            DiskOp::Write { offset, data } => tear_write(&mut bytes, index(*offset), data, tear, draw),
            DiskOp::SetLen(_) if draw(2) == 0 => op.apply(&mut bytes),
            DiskOp::SetLen(_) | DiskOp::Sync => {}
        }
    }
    bytes
}

fn tear_write(bytes: &mut [u8], offset: usize, data: &[u8], tear: Tear, draw: &mut dyn FnMut(u64) -> u64) {
    let (mut offset, mut data) = (offset, data);
    while !data.is_empty() {
        let room = tear.sector_len - offset % tear.sector_len;
        let (sector, rest) = data.split_at(room.min(data.len()));
        let is_first = offset < tear.sector_len;
        match draw(if tear.garbage { 3 } else { 2 }) {
            0 => {}
            1 => overwrite(bytes, offset, sector),
            _ if is_first => {
                for (at, byte) in sector.iter().enumerate().filter(|_| draw(2) == 0) {
                    overwrite(bytes, offset + at, &[*byte]);
                }
            }
            _ => {
                let garbage = sector.iter().map(|_| draw(256).to_le_bytes()[0]).collect::<Vec<_>>();
                overwrite(bytes, offset, &garbage);
            }
        }
        (offset, data) = (offset + sector.len(), rest);
    }
}

impl State {
    fn change(&mut self, op: DiskOp) -> io::Result<()> {
        assert!(!self.panics, "a test wants this change to panic");
        let done = match self.meet(false) {
            Ok(()) => Ok(()),
            Err(Some(fault)) => Err(fault),
            Err(None) => return Err(io::Error::other("the power is cut")),
        };
        let op = match (op, &done) {
            (DiskOp::Write { offset, data }, Err(fault)) => {
                let (data, _) = data.split_at(share(data.len(), *fault));
                DiskOp::Write { offset, data: data.into() }
            }
            (DiskOp::SetLen(_), Err(fault)) => return Err(errno(*fault)),
            (op, _) => op,
        };
        if let DiskOp::Write { offset, data } = &op
            && index(*offset) + data.len() > self.shown.len()
        {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        op.apply(&mut self.shown);
        self.unsynced.push(op.clone());
        self.log.push(op);
        done.map_err(errno)
    }

    fn sync(&mut self) -> io::Result<()> {
        match self.meet(false) {
            Ok(()) if self.lies => Ok(()),
            Ok(()) => {
                self.unsynced.drain(..).for_each(|op| op.apply(&mut self.durable));
                self.log.push(DiskOp::Sync);
                Ok(())
            }
            Err(Some(fault)) => {
                let kept = share(self.unsynced.len(), fault);
                self.unsynced.drain(..).take(kept).for_each(|op| op.apply(&mut self.durable));
                Err(errno(fault))
            }
            Err(None) => Err(io::Error::other("the power is cut")),
        }
    }

    /// Counts this operation; the fault if it is to fail, none if the power is cut.
    fn meet(&mut self, is_read: bool) -> Result<(), Option<DiskFault>> {
        if self.is_cut {
            return Err(None);
        }
        let Some((fault, seen)) = self.fault.as_mut().filter(|(fault, _)| fault.reads == is_read) else {
            return Ok(());
        };
        let at = *seen;
        *seen += 1;
        if at == fault.at || (fault.from_then_on && at > fault.at) {
            self.faults_met += 1;
            return Err(Some(*fault));
        }
        Ok(())
    }
}

impl StorageBackend for SimDisk {
    fn len(&self) -> io::Result<u64> {
        let state = self.0.lock();
        if state.is_cut {
            return Err(io::Error::other("the power is cut"));
        }
        Ok(state.shown.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.0.lock();
        state
            .meet(true)
            .map_err(|fault| fault.map_or_else(|| io::Error::other("the power is cut"), errno))?;
        let there = state.shown.get(index(offset)..).and_then(|bytes| bytes.get(..out.len()));
        out.copy_from_slice(there.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.lock().change(DiskOp::SetLen(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.lock().sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.lock().change(DiskOp::Write { offset, data: data.into() })
    }

    // One process has it: nobody else's lock is ever in the way.

    fn try_lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn try_lock_shared_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn unlock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<(), BackendError> {
        Ok(())
    }

    fn query_lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
        Ok(false)
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes, {} changes unsynced", self.shown.len(), self.unsynced.len())
    }
}

fn overwrite(bytes: &mut [u8], offset: usize, data: &[u8]) {
    bytes.iter_mut().skip(offset).zip(data).for_each(|(byte, new)| *byte = *new);
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

fn share(len: usize, fault: DiskFault) -> usize {
    len * usize::from(fault.done_percent.min(100)) / 100
}

fn errno(fault: DiskFault) -> io::Error {
    io::Error::from_raw_os_error(fault.errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> SimDisk {
        let disk = SimDisk::holding(vec![b'.'; 8]);
        disk.write(0, b"ab").expect("healthy");
        disk.sync_data().expect("healthy");
        disk.write(2, b"cd").expect("healthy");
        disk
    }

    fn shown(disk: &SimDisk) -> Vec<u8> {
        let mut bytes = vec![0; 8];
        disk.read(0, &mut bytes).expect("healthy");
        bytes
    }

    #[test]
    fn only_what_was_synced_is_durable() {
        let disk = disk();
        assert_eq!(shown(&disk), b"abcd....");
        assert_eq!(disk.unsynced().0, b"ab......");
        disk.sync_data().expect("healthy");
        assert_eq!(disk.unsynced().0, b"abcd....");
        assert_eq!(disk.log_len(), 4);
    }

    #[test]
    fn what_a_failed_sync_was_to_write_is_shown_but_never_durable() {
        let disk = disk();
        disk.fail(DiskFault { reads: false, at: 0, from_then_on: false, errno: 5, done_percent: 0 });
        assert!(disk.sync_data().is_err());
        disk.sync_data().expect("it fails once");
        assert_eq!((shown(&disk), disk.unsynced().0), (b"abcd....".to_vec(), b"ab......".to_vec()));
        disk.drop_cache();
        assert_eq!(shown(&disk), b"ab......");
    }

    #[test]
    fn a_short_write_leaves_its_first_bytes() {
        let disk = disk();
        disk.fail(DiskFault { reads: false, at: 0, from_then_on: true, errno: 28, done_percent: 50 });
        assert!(disk.write(4, b"wxyz").is_err() && disk.set_len(16).is_err());
        assert_eq!(shown(&disk), b"abcdwx..");
        disk.heal();
        disk.set_len(16).expect("healed");
        disk.cut();
        assert!(disk.len().is_err() && disk.write(0, b"a").is_err() && disk.read(0, &mut [0]).is_err());
    }

    #[test]
    fn a_torn_write_keeps_within_its_sectors() {
        let write = DiskOp::Write { offset: 2, data: b"12345".as_slice().into() };
        let tear = |garbage, choices: &[u64]| {
            let mut choices = choices.iter().copied();
            let tear = Tear { sector_len: 4, garbage };
            torn(b"........", std::slice::from_ref(&write), tear, &mut |_| choices.next().expect("enough"))
        };
        assert_eq!(tear(false, &[1, 0]), b"..12....");
        assert_eq!(tear(false, &[0, 1]), b"....345.");
        // Of the first sector any bytes, of others garbage.
        assert_eq!(tear(true, &[2, 1, 0, 2, 7, 8, 9]), b"...2\x07\x08\x09.");
    }
}
