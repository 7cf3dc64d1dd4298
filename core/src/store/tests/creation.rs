//! A store appears whole or not at all.

use std::sync::Barrier;
use std::thread;

use redb::{Database, WriteTransaction};
use rustix::io::Errno;

use super::{Small, folder, has, helper, made, names, open, put};
use crate::store::file::{self, Format, Options};
use crate::store::inject::{Fault, Faults, Op};
use crate::{Error, ErrorKind, Result};

/// Fails, or panics, in the middle of making the tables.
struct Broken {
    panics: bool,
}

impl Format for Broken {
    type Found = ();

    fn begin(&self, txn: &WriteTransaction) -> Result<()> {
        Small.begin(txn)?;
        assert!(!self.panics, "as the test asked");
        Err(Error::invalid("as the test asked"))
    }

    fn recognise(&self, _: &Database) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_failed_creation_leaves_nothing() {
    let (folder, path) = folder();
    for (panics, kind) in [(false, ErrorKind::Invalid), (true, ErrorKind::Internal)] {
        let error = file::open(&path, &Options::default(), &Broken { panics }).expect_err("broken");
        assert_eq!(error.kind(), kind, "{error:?}");
        assert!(names(&folder).is_empty(), "{:?}", names(&folder));
    }
    open(&path).expect("the next one is fine");
}

#[test]
fn a_creation_that_fails_at_any_operation_leaves_nothing_or_a_whole_store() {
    let mut failures = 0;
    for (op, errno) in
        [(Op::Read, Errno::IO), (Op::Write, Errno::NOSPC), (Op::SetLen, Errno::NOSPC), (Op::Sync, Errno::IO)]
    {
        for nth in 1.. {
            let (folder, path) = folder();
            let faults = Faults::default();
            faults.add(Fault { op, nth, from_then_on: false, done: false, errno: errno.raw_os_error() });
            let options = Options { faults: faults.clone(), ..Options::default() };
            let result = file::open(&path, &options, &Small);
            let Err(error) = result else { break };
            failures += 1;
            assert_eq!(error.kind(), ErrorKind::Poisoned, "{op:?} {nth}: {error:?}");
            assert!(names(&folder).iter().all(|name| name == "store"), "{:?}", names(&folder));
            let store = open(&path).expect("nothing there, or a whole store");
            put(&store, b"row").expect("a healthy disk");
        }
    }
    assert!(failures > 15, "only {failures} operations could fail");
}

#[test]
fn a_crash_during_creation_leaves_no_file_at_the_path() {
    let (folder, path) = folder();
    let status = helper("crash-in-creation", &path).wait().expect("it ends");
    assert!(!status.success(), "it was to abort");
    assert!(!path.exists());
    let left = names(&folder);
    assert!(left.len() == 1 && left[0].starts_with("store.new-"), "it did begin: {left:?}");
    open(&path).expect("what is left over disturbs nobody");
}

#[test]
fn of_racing_creators_one_makes_the_store_and_all_use_it() {
    for _ in 0..8 {
        let (folder, path) = folder();
        let start = Barrier::new(4);
        thread::scope(|scope| {
            for row in [b"a", b"b", b"c", b"d"] {
                let (path, start) = (&path, &start);
                scope.spawn(move || {
                    start.wait();
                    let wait = std::time::Duration::from_secs(30);
                    let store = file::open_wait(path, &Options::default(), &Small, wait).expect("their turn");
                    put(&store, row).expect("a healthy disk");
                });
            }
        });
        let store = open(&path).expect("there");
        assert!([b"a", b"b", b"c", b"d"].iter().all(|row| has(&store, *row)), "two stores were made");
        assert_eq!(names(&folder), ["store"]);
    }
}

#[test]
fn a_creator_that_lost_the_race_replaces_nothing() {
    // The other one comes first, at the worst moment: between the building and the renaming.
    struct Late<'a>(&'a std::path::Path);
    impl Format for Late<'_> {
        type Found = Vec<u8>;

        fn begin(&self, txn: &WriteTransaction) -> Result<()> {
            made(self.0);
            Small.begin(txn)
        }

        fn recognise(&self, db: &Database) -> Result<Vec<u8>> {
            Small.recognise(db)
        }
    }
    let (folder, path) = folder();
    let store = file::open(&path, &Options::default(), &Late(&path)).expect("the winner's");
    assert!(has(&store, b"kept"), "the winner's store was replaced");
    assert_eq!(names(&folder), ["store"]);
}
