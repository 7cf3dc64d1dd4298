//! What an opening would write, kept back until the file is known to be a store.
//!
//! redb writes to a file that it opens: a flag, at the least. Another program's database, or a damaged
//! file that cannot be opened after all, must stay as it is, byte for byte. So an opening sees its own
//! writes, the file does not, and only a successful opening has them done, in the order it made them.

use std::io;

use redb::StorageBackend;

/// One change, in the order redb made it.
#[derive(Debug)]
pub(super) enum Change {
    Write { offset: u64, data: Vec<u8> },
    SetLen(u64),
    Sync,
}

/// The changes so far.
#[derive(Debug, Default)]
pub(super) struct Journal {
    changes: Vec<Change>,
    len: Option<u64>,
}

impl Journal {
    pub(super) fn push(&mut self, change: Change) {
        if let Change::SetLen(len) = &change {
            self.len = Some(*len);
        }
        self.changes.push(change);
    }

    /// The length that the file would have.
    pub(super) fn len(&self, file: &dyn StorageBackend) -> io::Result<u64> {
        self.len.map_or_else(|| file.len(), Ok)
    }

    /// Reads what the file would hold.
    pub(super) fn read(&self, file: &dyn StorageBackend, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = offset.saturating_add(out.len() as u64);
        if end > self.len(file)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (there, beyond) = out.split_at_mut(within(file.len()?, offset, out.len()));
        if !there.is_empty() {
            file.read(offset, there)?;
        }
        beyond.fill(0);
        for change in &self.changes {
            match change {
                Change::Write { offset: start, data } => overlay(offset, out, *start, data),
                Change::SetLen(len) => {
                    let kept = within(*len, offset, out.len());
                    out.iter_mut().skip(kept).for_each(|byte| *byte = 0);
                }
                Change::Sync => {}
            }
        }
        Ok(())
    }

    pub(super) fn into_changes(self) -> Vec<Change> {
        self.changes
    }
}

/// How many of `count` bytes from `offset` on lie before `end`.
fn within(end: u64, offset: u64, count: usize) -> usize {
    usize::try_from(end.saturating_sub(offset)).map_or(count, |before| before.min(count))
}

/// Copies the part of `data`, which begins at `start`, that falls into `out`, which begins at `offset`.
fn overlay(offset: u64, out: &mut [u8], start: u64, data: &[u8]) {
    let skip_out = within(start, offset, out.len());
    let skip_data = within(offset, start, data.len());
    let targets = out.iter_mut().skip(skip_out);
    targets.zip(data.iter().skip(skip_data)).for_each(|(to, from)| *to = *from);
}

#[cfg(test)]
mod tests {
    use redb::backends::InMemoryBackend;

    use super::*;

    #[test]
    fn reads_see_what_applying_the_changes_would_give() {
        // A reference store gets each change at once; every window of both must read the same.
        let (base, reference) = (InMemoryBackend::new(), InMemoryBackend::new());
        for file in [&base, &reference] {
            file.set_len(16).expect("memory");
            StorageBackend::write(file, 0, b"0123456789abcdef").expect("memory");
        }
        let mut journal = Journal::default();
        let steps: [(u64, Option<&[u8]>); 7] = [
            (3, Some(b"XYZ")),
            (4, Some(b"--")),
            (6, None),
            (20, None),
            (5, Some(b"AAAAAAA")),
            (18, Some(b"ZZ")),
            (19, None),
        ];
        for (at, data) in steps {
            if let Some(data) = data {
                StorageBackend::write(&reference, at, data).expect("memory");
                journal.push(Change::Write { offset: at, data: data.to_vec() });
            } else {
                reference.set_len(at).expect("memory");
                journal.push(Change::SetLen(at));
            }
            let len = StorageBackend::len(&reference).expect("memory");
            assert_eq!(journal.len(&base).expect("memory"), len);
            for (from, to) in (0..=len).flat_map(|from| (from..=len).map(move |to| (from, to))) {
                let mut seen = vec![b'?'; usize::try_from(to - from).expect("small")];
                let mut expected = seen.clone();
                journal.read(&base, from, &mut seen).expect("inside");
                StorageBackend::read(&reference, from, &mut expected).expect("inside");
                assert_eq!(seen, expected, "{from}..{to} after {at}");
            }
            assert!(journal.read(&base, len, &mut [0]).is_err());
        }
    }
}
