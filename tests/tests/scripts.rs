//! The scripts that every language interprets, run in Rust: their logs match byte for byte.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use keyclaim::ErrorKind;
use keyclaim_tests::script;

#[test]
fn every_script_gives_its_log() {
    for script in scripts() {
        let log = script::run(&fs::read_to_string(&script).unwrap());
        let expected = script.with_extension("log");
        if std::env::var_os("BLESS").is_some() {
            fs::write(&expected, &log).unwrap();
        }
        let wanted = fs::read_to_string(&expected).unwrap();
        for (line, wanted) in log.lines().zip(wanted.lines()) {
            assert_eq!(line, wanted, "{}", script.display());
        }
        assert_eq!(log, wanted, "{}", script.display());
    }
}

/// What a script leaves out, no language is held to.
#[test]
fn the_scripts_meet_every_answer_there_is() {
    let logs: String =
        scripts().iter().map(|script| fs::read_to_string(script.with_extension("log")).unwrap()).collect();
    let met: BTreeSet<&str> = logs.split([' ', '\n']).collect();
    let pairs: BTreeSet<String> = logs
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            Some(format!("{} {}", words.next()?, words.next()?))
        })
        .collect();
    for decision in ["won", "replay", "in_flight", "mismatch", "held", "expired"] {
        assert!(pairs.contains(&format!("claim {decision}")), "no claim is told {decision}");
    }
    for answer in ["run", "done", "refused", "settling", "reconcile", "held"] {
        assert!(pairs.contains(&format!("begin_effect {answer}")), "no step is told {answer}");
    }
    for standing in ["absent", "in_flight", "held", "complete"] {
        assert!(pairs.contains(&format!("inspect {standing}")), "nobody sees a key that is {standing}");
    }
    for op in [
        "renew",
        "checkpoint",
        "finish_effect",
        "complete",
        "release",
        "abandon",
        "hold",
        "drop",
        "resolve_complete",
        "resolve_absent",
        "resolve_resumable",
        "forget",
        "extend_window",
        "list",
        "close",
        "reopen",
    ] {
        assert!(pairs.contains(&format!("{op} ok")), "{op} never works");
        let may_be_refused = !matches!(op, "drop");
        assert!(!may_be_refused || pairs.contains(&format!("{op} error")), "{op} is never refused");
    }
    for kind in ["fresh", "again", "takeover", "reattempt", "reused_after_window"] {
        assert!(met.contains(format!("kind={kind}").as_str()), "nobody wins by {kind}");
    }
    for reason in ["owner", "abandoned", "step_in_doubt", "steps_changed"] {
        assert!(met.contains(format!("reason={reason}").as_str()), "nothing is held because of {reason}");
    }
    for kind in ErrorKind::ALL {
        assert!(met.contains(kind.name()), "no script provokes {kind}");
    }
}

fn scripts() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/scripts");
    let mut scripts: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .collect();
    scripts.sort();
    assert!(scripts.len() >= 12, "the scripts are gone");
    scripts
}
