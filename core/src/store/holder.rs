//! Who has a file open: so that "in use" comes with a name.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::backend::FileId;

/// Finds the process that holds a lock on this file, or failing that, one that has it open.
///
/// `None` where `/proc` does not tell: another user's process, another container, no `/proc`. The
/// caller has closed its own handle, so if this process is named, it really holds the file.
pub(super) fn find(file: FileId) -> Option<u32> {
    let mut opened_by = None;
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        match holds(&process.path(), file) {
            Some(true) => return Some(pid),
            Some(false) => opened_by = Some(pid),
            None => {}
        }
    }
    opened_by
}

/// Whether the process has the file open, and if so, whether through a handle with a lock.
fn holds(process: &Path, file: FileId) -> Option<bool> {
    let mut opened = None;
    for handle in fs::read_dir(process.join("fd")).ok()?.flatten() {
        let Ok(meta) = fs::metadata(handle.path()) else { continue };
        if (FileId { dev: meta.dev(), ino: meta.ino() }) != file {
            continue;
        }
        let info = fs::read_to_string(process.join("fdinfo").join(handle.file_name())).unwrap_or_default();
        if info.lines().any(|line| line.starts_with("lock:")) {
            return Some(true);
        }
        opened = Some(false);
    }
    opened
}
