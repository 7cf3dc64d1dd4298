//! One flipped bit, anywhere in the file: the right answer or an error, never a new key or a made-up replay.
//!
//! `KEYCLAIM_CASES` sets how many bits are flipped, `KEYCLAIM_SEED` which. What is asked is in
//! `keyclaim_tests::proofs::flips`.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use keyclaim::Store;
use keyclaim_tests::proofs::flips::{Counts, DONE, made, options, places, quiet_redb};
use keyclaim_tests::seeded::{Draws, number};

/// A folder in memory where there is one: what is damaged are bytes, whatever they lie on.
fn fast_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary folder")
}

fn seed() -> u64 {
    number("KEYCLAIM_SEED").unwrap_or(4)
}

fn cases(default: u64) -> u64 {
    number("KEYCLAIM_CASES").unwrap_or(default)
}

#[test]
fn a_bit_flipped_in_a_closed_file_gives_the_right_answer_or_an_error() {
    quiet_redb();
    let folder = fast_folder();
    let path = folder.path().join("store");
    let whole = made(&path);
    let seed = seed();
    let mut place = places(&whole, seed);
    let (mut verified, mut plain) = (Counts::default(), Counts::default());
    for case in 0..cases(700) {
        let (at, bit) = place();
        let mut bytes = whole.clone();
        bytes[at] ^= bit;
        for is_verified in [true, false] {
            fs::write(&path, &bytes).expect("write");
            let what = format!("KEYCLAIM_SEED={seed}, case {case}, byte {at}, verified {is_verified}");
            let counts = if is_verified { &mut verified } else { &mut plain };
            let has_vanished = counts.look(&what, |look| {
                if let Some(store) = look.ok(Store::open(&path, options().verify_on_open(is_verified))) {
                    look.at(&store);
                }
            });
            assert!(!(is_verified && has_vanished), "{what}: verified, and still wrong");
            if has_vanished {
                eprintln!("{what}: vanished");
            }
        }
    }
    eprintln!("{} bytes; verified {verified:?}; plain {plain:?}", whole.len());
    assert!(plain.found > plain.flips / 10 && verified.found >= plain.found, "the sample met no data");
    // What is left are the numbers of pages, and the due index: see core/docs/faults.md.
    assert!(plain.hidden <= plain.flips / 200, "{plain:?}");
}

#[test]
fn a_bit_flipped_in_a_key_makes_no_key_new() {
    quiet_redb();
    let folder = fast_folder();
    let path = folder.path().join("store");
    let whole = made(&path);
    let word = b"acct_1done ";
    let found: Vec<usize> =
        whole.windows(word.len()).enumerate().filter(|(_, seen)| seen == word).map(|(at, _)| at).collect();
    assert!(found.len() > usize::from(DONE), "each key is somewhere: {}", found.len());
    let seed = seed();
    let mut draws = Draws::new(seed);
    let mut counts = Counts::default();
    for case in 0..cases(300) {
        // From the length before the scope to the last digit of the key.
        let start = found[usize::try_from(draws.below(found.len() as u64)).expect("small")] - 1;
        let at = start + usize::try_from(draws.below(word.len() as u64 + 2)).expect("small");
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << draws.below(8);
        fs::write(&path, &bytes).expect("write");
        let what = format!("KEYCLAIM_SEED={seed}, case {case}, byte {at}, a key");
        counts.look(&what, |look| {
            if let Some(store) = look.ok(Store::open(&path, options())) {
                look.at(&store);
            }
        });
        assert_eq!(counts.vanished_keys, 0, "{what}");
    }
    eprintln!("in keys: {counts:?}");
    assert!(counts.found > 20, "{counts:?}");
}

#[test]
fn a_bit_flipped_in_an_open_file_gives_the_right_answer_or_an_error() {
    quiet_redb();
    let folder = fast_folder();
    let path = folder.path().join("store");
    let whole = made(&path);
    let seed = seed();
    let mut place = places(&whole, seed);
    let mut counts = Counts::default();
    for case in 0..cases(200) {
        let (at, bit) = place();
        fs::write(&path, &whole).expect("write");
        // No cache, so that what the file holds now is read.
        let store = Store::open(&path, options().cache_len(0)).expect("it is whole");
        let file = OpenOptions::new().read(true).write(true).open(&path).expect("ours");
        let mut byte = [0];
        file.read_exact_at(&mut byte, at as u64).expect("there");
        file.write_all_at(&[byte[0] ^ bit], at as u64).expect("there");
        let what = format!("KEYCLAIM_SEED={seed}, case {case}, byte {at}, open");
        if counts.look(&what, |look| look.at(&store)) {
            eprintln!("{what}: vanished");
        }
        drop(catch_unwind(AssertUnwindSafe(|| store.close())));
    }
    eprintln!("open: {counts:?}");
    assert!(counts.found > counts.flips / 10, "the sample met no data");
}
