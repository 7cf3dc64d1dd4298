//! A file of lines that a provider keeps: what is in it happened, and nothing else did.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::marker::PhantomData;
use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The journal at a path; each call opens it, as each call to a provider is its own.
#[derive(Debug)]
pub(crate) struct Journal<T> {
    path: PathBuf,
    lines: PhantomData<fn() -> T>,
}

/// A journal that is open: nobody else's until it is dropped.
pub(crate) struct Open<T> {
    file: File,
    pub(crate) entries: Vec<T>,
}

impl<T: DeserializeOwned + Serialize> Journal<T> {
    /// The journal at this path. It is made when it is first opened.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, lines: PhantomData }
    }

    /// Opens it once nobody else has it open. Blocks.
    pub(crate) fn open(&self) -> io::Result<Open<T>> {
        let is_new = !self.path.try_exists()?;
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(&self.path)?;
        file.lock()?;
        if is_new && let Some(dir) = self.path.parent() {
            File::open(dir)?.sync_all()?;
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        // What was cut off by a crash was never acknowledged to anyone.
        let whole_len = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if whole_len < bytes.len() {
            file.set_len(whole_len as u64)?;
            bytes.truncate(whole_len);
        }
        file.seek(SeekFrom::End(0))?;
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let entries = lines.map(serde_json::from_slice).collect::<Result<_, _>>()?;
        Ok(Open { file, entries })
    }
}

impl<T: Serialize> Open<T> {
    /// Adds an entry. *Durability*: on disk when this returns; after an error nobody knows.
    pub(crate) fn append(&mut self, entry: &T) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.file.sync_all()
    }
}

impl<T> Clone for Journal<T> {
    fn clone(&self) -> Self {
        Self { path: self.path.clone(), lines: PhantomData }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_cut_off_by_a_crash_is_no_entry() {
        let dir = tempfile::tempdir().expect("a folder");
        let journal: Journal<u32> = Journal::new(dir.path().join("j"));
        journal.open().expect("opens").append(&1).expect("written");
        let mut file = OpenOptions::new().append(true).open(&journal.path).expect("there");
        file.write_all(b"12").expect("written");
        let mut open = journal.open().expect("opens");
        assert_eq!(open.entries, [1]);
        open.append(&2).expect("written");
        drop(open);
        assert_eq!(journal.open().expect("opens").entries, [1, 2]);
    }
}
