//! A process that the system cuts short: a file that may not grow, descriptors that are closed.

mod faulty;

use std::path::Path;
use std::process::{Command, Stdio};

use faulty::*;
use keyclaim::store::Standing;
use keyclaim::{Abandoned, Options, Store};

fn open(path: &Path) -> Store {
    Store::open(path, Options::new(Abandoned::Rerun)).expect("nobody else has it")
}

/// Runs the program of the kill tests through a shell that sets it up; what it said.
fn said(setup: &str, path: &Path) -> (Vec<String>, std::process::ExitStatus) {
    let script = format!("{setup}; exec \"$0\" child \"$1\" 7 0 0 none 2");
    let mut child = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_kills")])
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a shell");
    let mut lines = Vec::new();
    let output = std::io::BufReader::new(child.stdout.take().expect("piped"));
    for line in std::io::BufRead::lines(output).map_while(Result::ok) {
        let is_last = line.starts_with("wrong");
        lines.push(line);
        if is_last {
            break;
        }
    }
    drop(child.stdin.take());
    (lines, child.wait().expect("it ends"))
}

#[test]
fn a_file_that_may_not_grow_loses_nothing_that_was_acknowledged() {
    // Ignored, the signal leaves EFBIG to the store; otherwise it ends the process in the middle of a write.
    for (setup, is_told) in [("trap '' XFSZ; ulimit -f 2000", true), ("ulimit -f 2000", false)] {
        let folder = fast_folder();
        let path = folder.path().join("store");
        let (lines, status) = said(setup, &path);
        let words = |line: &String| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let last = lines.last().expect("it said something");
        if is_told {
            assert!(last.contains("Unknown") || last.contains("Poisoned"), "{last}");
        } else {
            assert_eq!(
                std::os::unix::process::ExitStatusExt::signal(&status),
                Some(25),
                "XFSZ: {status} {last}"
            );
        }
        let store = open(&path);
        let mut done = 0;
        for line in lines.iter().map(words).filter(|line| line[0] == "done" && line[3] == "0") {
            let key: u64 = line[1].parse().expect("a number");
            // Keys that end with 6 or 9 are used again.
            if [6, 9].contains(&(key % 10)) {
                continue;
            }
            let found = store.inspect(&keyclaim_tests::request::id(&format!("k{key}"))).expect("healthy");
            let found = found.expect("it was acknowledged");
            assert_eq!(found.token.0.to_string(), line[2]);
            assert!(matches!(found.standing, Standing::Complete { .. }), "{found:?}");
            done += 1;
        }
        assert!(done > 10, "{done} were completed before the file was full");
    }
}

/// Prints much while its store is open; see below.
#[test]
fn helper() {
    let Some(path) = std::env::var_os("KEYCLAIM_TEST_PATH") else { return };
    let store = open(Path::new(&path));
    for n in 0..20 {
        println!("{}", "out ".repeat(2_000));
        eprintln!("{}", "err ".repeat(2_000));
        won(store.claim(&request(&format!("{n}")))).complete(&success(b"done")).expect("healthy");
    }
    store.close().expect("healthy");
}

#[test]
fn a_process_without_standard_descriptors_prints_nothing_into_its_store() {
    let folder = fast_folder();
    let path = folder.path().join("store");
    let status = Command::new("sh")
        .args(["-c", "exec \"$0\" --exact helper --nocapture <&- >&- 2>&-"])
        .arg(std::env::current_exe().expect("this program"))
        .env("KEYCLAIM_TEST_PATH", &path)
        .status()
        .expect("a shell");
    assert!(status.success(), "{status}");
    let store = Store::open(&path, Options::new(Abandoned::Rerun).verify_on_open(true)).expect("whole");
    for n in 0..20 {
        assert_eq!(replay(store.claim(&request(&format!("{n}")))).response, success(b"done").response);
    }
}
