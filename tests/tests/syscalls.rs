//! The order of the system calls of a real process, as strace sees them: what was acknowledged had been synced
//! before, and a new file's folder too.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Calls that change a file or make it durable. A call that could do so past our eyes is a violation.
const CALLS: &str = "pwrite64,write,writev,pwritev,pwritev2,fdatasync,fsync,ftruncate,fallocate,sync_file_range,\
                     link,linkat,rename,renameat,renameat2,copy_file_range,sendfile,io_uring_enter,msync";
/// What a child says of something that must be durable.
const ACKS: [&str; 7] = ["won", "stepped", "pointed", "renewed", "done", "held", "counted"];
/// Lines to wait for (arbitrary).
const LINES: usize = 400;

/// Runs a child under strace until it has said so many lines; returns strace's log.
fn trace(folder: &Path, threads: u32, plant: &str, inject: Option<&str>) -> String {
    let log = folder.join("log");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-y", "-s", "32", "-e", &format!("trace={CALLS}"), "-o"]).arg(&log);
    if let Some(inject) = inject {
        strace.args(["-e", inject]);
    }
    fs::create_dir(folder.join("data")).expect("a folder");
    let mut child = strace
        .arg(env!("CARGO_BIN_EXE_kills"))
        .arg("child")
        .arg(folder.join("data/store"))
        .args(["7", "0", "0", plant, &threads.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("strace is missing: apt-get install strace");
    let mut output = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let said = output.by_ref().take(LINES).count();
    // The child ends when nobody is there to listen; what it says until then must not block it.
    drop(child.stdin.take());
    output.for_each(drop);
    child.wait().expect("it ends");
    assert_eq!(said, LINES, "strace could not trace the child; does this machine allow ptrace?");
    fs::read_to_string(&log).expect("strace writes it")
}

#[derive(Debug, Default)]
struct Seen {
    acks: u64,
    syncs: u64,
    folder_syncs: u64,
    violations: Vec<String>,
}

#[derive(Clone, Copy, Default)]
struct Thread<'a> {
    /// When it last said anything.
    spoke_at: usize,
    /// When the call began that has not returned yet, and how: only there stands which file it is about.
    began_at: usize,
    began: &'a str,
}

/// Reads the log from top to bottom. With `is_alone` the process has one thread that writes, so nothing at all
/// may be unsynced when it speaks.
fn check(log: &str, folder: &Path, is_alone: bool) -> Seen {
    let data = folder.join("data").display().to_string();
    let mut seen = Seen::default();
    let mut threads: HashMap<&str, Thread<'_>> = HashMap::new();
    // Line numbers, from 1: the last change, the start of the last sync that has succeeded, the last publishing.
    let (mut changed_at, mut synced_from, mut published_at) = (0, 0, 0);
    for (at, line) in (1..).zip(log.lines()) {
        let Some((pid, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        let thread = threads.entry(pid).or_default();
        let is_resumed = call.starts_with("<...");
        if !is_resumed {
            thread.began_at = at;
            thread.began = call;
        }
        let name = call.trim_start_matches("<... ").split(['(', ' ']).next().unwrap_or_default();
        let is_done = call.ends_with("= 0") && !call.contains("INJECTED");
        let is_ours = thread.began.contains(&data);
        let is_of_folder = thread.began.contains(&format!("{data}>"));
        match name {
            // The pipe: what is told, when it begins to be told.
            "write" if call.contains("<pipe:") && call.starts_with("write(1<") && !is_resumed => {
                let word = call.split('"').nth(1).unwrap_or_default();
                let word = word.split([' ', '\\']).next().unwrap_or_default();
                if word == "ready" && published_at != 0 {
                    seen.violations.push(format!("line {at}: the new file's folder was not synced"));
                }
                if ACKS.contains(&word) {
                    seen.acks += 1;
                    if synced_from <= thread.spoke_at {
                        seen.violations
                            .push(format!("line {at}: told without a sync since it was asked: {call}"));
                    }
                    if is_alone && changed_at > synced_from {
                        seen.violations
                            .push(format!("line {at}: told while line {changed_at} is not synced: {call}"));
                    }
                }
                thread.spoke_at = at;
            }
            // When it begins, and again when it returns: it may have changed the file at any time between.
            "write" | "pwrite64" | "ftruncate" | "fallocate" if is_ours => changed_at = at,
            "link" | "linkat" | "rename" | "renameat" | "renameat2" if is_ours => published_at = at,
            "fdatasync" | "fsync" if is_done && is_of_folder => {
                seen.folder_syncs += 1;
                if published_at < thread.began_at {
                    published_at = 0;
                }
            }
            "fdatasync" | "fsync" if is_done && is_ours => {
                seen.syncs += 1;
                synced_from = synced_from.max(thread.began_at);
            }
            // Of another file; and syncs that have not returned, failed or were injected.
            "write" | "pwrite64" | "ftruncate" | "fallocate" | "fdatasync" | "fsync" | "link" | "linkat"
            | "rename" | "renameat" | "renameat2" => {}
            // These two do not say of which file they are.
            "msync" | "io_uring_enter" if !is_resumed => {
                seen.violations.push(format!("line {at}: a call that this test cannot judge: {call}"));
            }
            name if CALLS.split(',').any(|known| known.trim() == name) && is_ours && !is_resumed => {
                seen.violations.push(format!("line {at}: a call that this test cannot judge: {call}"));
            }
            _ => {}
        }
    }
    seen
}

fn traced(threads: u32, plant: &str, inject: Option<&str>) -> Seen {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let log = trace(folder.path(), threads, plant, inject);
    check(&log, folder.path(), threads == 1)
}

#[test]
fn what_was_acknowledged_had_been_synced_before() {
    for threads in [1, 8] {
        let seen = traced(threads, "none", None);
        eprintln!("{threads} threads: {} acks, {} syncs", seen.acks, seen.syncs);
        assert!(seen.violations.is_empty(), "{threads} threads: {:#?}", seen.violations);
        assert!(seen.acks > 100 && seen.syncs > 50 && seen.folder_syncs > 0, "{seen:?}");
    }
}

#[test]
fn an_acknowledgement_that_comes_first_is_seen() {
    for threads in [1, 8] {
        assert!(!traced(threads, "ack-first", None).violations.is_empty());
    }
}

#[test]
fn a_sync_that_is_left_out_is_seen() {
    // The kernel is not asked at all, and the process is told that it was done.
    for call in ["fdatasync", "fsync"] {
        let seen = traced(1, "none", Some(&format!("inject={call}:retval=0")));
        assert!(!seen.violations.is_empty(), "{call}: {seen:?}");
    }
}

/// What the checker finds wrong with lines written by hand, in which `$` is the store's folder.
fn found(lines: &[&str], is_alone: bool) -> Vec<String> {
    check(&lines.join("\n").replace('$', "/d/data"), Path::new("/d"), is_alone).violations
}

#[test]
fn a_log_in_order_passes() {
    let whole = [
        r#"7   linkat(3<$>, "new", 3<$>, "store", 0) = 0"#,
        r"7   fsync(3<$>) = 0",
        r#"7   write(1<pipe:[5]>, "ready\n", 6) = 6"#,
        r#"8   pwrite64(4<$/store>, "\1"..., 4096, 0) = 4096"#,
        r"8   fdatasync(4<$/store> <unfinished ...>",
        r"8   <... fdatasync resumed>) = 0",
        r#"8   write(1<pipe:[5]>, "won 1 2\n", 8) = 8"#,
    ];
    for is_alone in [true, false] {
        assert_eq!(found(&whole, is_alone), Vec::<String>::new());
    }
}

#[test]
fn an_acknowledgement_before_its_sync_is_found() {
    let change = r#"8   pwrite64(4<$/store>, "\1"..., 4096, 0) = 4096"#;
    let sync = "8   fdatasync(4<$/store>) = 0";
    let told = r#"8   write(1<pipe:[5]>, "done 1 2\n", 9) = 9"#;
    for is_alone in [true, false] {
        assert_eq!(found(&[change, sync, told], is_alone).len(), 0);
        assert_ne!(found(&[change, told, sync], is_alone).len(), 0, "told, then synced");
        assert_ne!(found(&[change, sync, told, change, told], is_alone).len(), 0, "told twice on one sync");
    }
    assert_ne!(found(&[sync, change, told], true).len(), 0, "synced, then changed");
}

#[test]
fn only_a_sync_of_the_store_that_has_succeeded_counts() {
    let told = r#"8   write(1<pipe:[5]>, "done 1 2\n", 9) = 9"#;
    for sync in [
        &["8   fdatasync(4<$/store>) = -1 EIO (Input/output error)"][..],
        &["8   fdatasync(4<$/store>) = 0 (INJECTED)"],
        &["8   fdatasync(4<$/store> <unfinished ...>"],
        &["8   fdatasync(5</other/file>) = 0"],
        &["8   fdatasync(5</other/file> <unfinished ...>", "8   <... fdatasync resumed>) = 0"],
        &["8   fsync(3<$>) = 0"],
        &["8   fsync(3<$> <unfinished ...>", "8   <... fsync resumed>) = 0"],
        &[
            "8   fdatasync(4<$/store> <unfinished ...>",
            "8   <... fdatasync resumed>) = -1 EIO (Input/output error)",
        ],
    ] {
        let change = r#"8   pwrite64(4<$/store>, "\1"..., 4096, 0) = 4096"#;
        for is_alone in [true, false] {
            let lines = [&[change], sync, &[told]].concat();
            assert_ne!(found(&lines, is_alone).len(), 0, "{sync:?}");
        }
    }
}

#[test]
fn a_change_that_returns_while_a_sync_runs_is_not_synced_by_it() {
    let lines = [
        r#"9   pwrite64(4<$/store>, "\1"..., 4096, 0 <unfinished ...>"#,
        "8   fdatasync(4<$/store> <unfinished ...>",
        "9   <... pwrite64 resumed>) = 4096",
        "8   <... fdatasync resumed>) = 0",
        r#"8   write(1<pipe:[5]>, "done 1 2\n", 9) = 9"#,
    ];
    assert_ne!(found(&lines, true).len(), 0);
}

#[test]
fn a_new_file_whose_folder_is_not_synced_is_found() {
    let publish = r#"7   linkat(3<$>, "new", 3<$>, "store", 0) = 0"#;
    let ready = r#"7   write(1<pipe:[5]>, "ready\n", 6) = 6"#;
    let resumed = ["7   fsync(3<$> <unfinished ...>", "7   <... fsync resumed>) = 0"];
    assert_eq!(found(&[publish, resumed[0], resumed[1], ready], true).len(), 0);
    assert_ne!(found(&[publish, ready], true).len(), 0);
    assert_ne!(found(&["7   fsync(3<$>) = 0", publish, ready], true).len(), 0);
    assert_ne!(found(&[publish, "7   fsync(4<$/store>) = 0", ready], true).len(), 0);
    assert_ne!(
        found(&["6   fsync(3<$> <unfinished ...>", publish, "6   <... fsync resumed>) = 0", ready], true)
            .len(),
        0
    );
}

#[test]
fn a_change_by_a_call_that_cannot_be_judged_is_found() {
    for call in [
        "8   msync(0x7f0000000000, 4096, MS_SYNC) = 0",
        "8   io_uring_enter(5<anon_inode:[io_uring]>, 1, 1, 0, NULL, 8) = 1",
        r#"8   pwritev(4<$/store>, [{iov_base="\1"..., iov_len=10}], 1, 0) = 10"#,
    ] {
        assert_ne!(found(&[call], true).len(), 0, "{call}");
    }
}

#[test]
fn a_plain_write_to_the_store_is_a_change() {
    let told = r#"8   write(1<pipe:[5]>, "done 1 2\n", 9) = 9"#;
    let written = [r"8   fdatasync(4<$/store>) = 0", r#"8   write(4<$/store>, "\1"..., 10) = 10"#, told];
    assert_ne!(found(&written, true).len(), 0);
}
