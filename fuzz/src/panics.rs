//! Which panics are findings.
//!
//! redb panics on damaged pages, and core answers with an error; what does not come from redb or from the library
//! that it calls is a finding, even if core has caught it.

use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::{Mutex, Once, PoisonError};

static SEEN: Mutex<Option<String>> = Mutex::new(None);
/// Held while a target runs: what panics meanwhile is its.
static RUNNING: Mutex<()> = Mutex::new(());

/// Tries these bytes. The error is what the target, or a panic that was caught on the way, says.
pub fn caught(run: fn(&[u8]), bytes: &[u8]) -> Result<(), String> {
    listen();
    let _running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let run = catch_unwind(AssertUnwindSafe(|| run(bytes)));
    let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (run, seen) {
        (Ok(()), None) => Ok(()),
        (_, Some(seen)) => Err(seen),
        (Err(_), None) => Err("a panic of redb's came out".to_owned()),
    }
}

/// Takes the place of every other hook: the fuzzer's own would end the process at redb's first panic.
fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        drop(take_hook());
        set_hook(Box::new(|info| {
            let file = info.location().map_or("", |location| location.file());
            // Inside the standard library the caller is not told; those of our own crates are.
            if file.contains("/redb-") || file.starts_with("/rustc/") {
                return;
            }
            let text = info.payload_as_str().unwrap_or("no text");
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            let thread = std::thread::current();
            eprintln!("thread '{}' panicked at {place}: {text}", thread.name().unwrap_or("unnamed"));
            let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
            seen.get_or_insert_with(|| format!("{place}: {text}"));
        }));
    });
}
