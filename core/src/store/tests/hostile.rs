//! What may be at the path instead of a store.

use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::thread;

use redb::{Database, Durability, ReadableDatabase, TableDefinition};
use rustix::thread::Uid;

use super::{folder, has, made, names, open, put, refusal};
use crate::ErrorKind;
use crate::store::file::{self, Options};

const THEIRS: TableDefinition<u64, &str> = TableDefinition::new("theirs");

fn others_database(path: &Path) {
    let db = Database::create(path).expect("a new file");
    let txn = db.begin_write().expect("new");
    txn.open_table(THEIRS).expect("new").insert(1, "one").expect("new");
    txn.commit().expect("new");
}

fn refused(path: &Path, kind: ErrorKind, word: &str) {
    let before = fs::read(path).ok();
    let error = refusal(path);
    assert_eq!(error.kind(), kind, "{error:?}");
    assert!(error.message().contains(word), "{error:?}");
    assert_eq!(fs::read(path).ok(), before, "a failed opening changes nothing: {error:?}");
}

#[test]
fn what_is_no_file_is_invalid() {
    let (folder, path) = folder();
    refused(folder.path(), ErrorKind::Invalid, "folder");
    refused(&folder.path().join("none/store"), ErrorKind::Invalid, "does not exist");
    refused(Path::new("/dev/null"), ErrorKind::Invalid, "no regular file");
    refused(Path::new("/"), ErrorKind::Invalid, "folder");
    refused(Path::new(""), ErrorKind::Invalid, "empty");
    refused(&folder.path().join("x".repeat(300)), ErrorKind::Invalid, "too long");
    symlink(folder.path().join("nowhere"), &path).expect("a link");
    refused(&path, ErrorKind::Invalid, "link to nothing");
    assert_eq!(names(&folder), ["store"], "nothing was made on the way");
}

#[test]
fn reopening_never_makes_a_store() {
    let (folder, path) = folder();
    let options = Options { create: false, ..Options::default() };
    let error = file::open(&path, &options, &super::Small).expect_err("nothing is there");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(names(&folder).is_empty());
    made(&path);
    assert!(has(&file::open(&path, &options, &super::Small).expect("now it is"), b"kept"));
}

#[test]
fn another_programs_file_stays_as_it_is() {
    let (_folder, path) = folder();
    for text in ["a", "hello\n", "redX and more of it", &"text ".repeat(100_000)] {
        fs::write(&path, text).expect("write");
        refused(&path, ErrorKind::Incompatible, "no store");
    }
}

#[test]
fn another_programs_redb_database_stays_as_it_is() {
    let (_folder, path) = folder();
    others_database(&path);
    refused(&path, ErrorKind::Incompatible, "another program");
    let db = Database::open(&path).expect("still theirs, and unlocked");
    let txn = db.begin_read().expect("readable");
    let rows = txn.open_table(THEIRS).expect("there");
    assert_eq!(rows.get(1).expect("readable").expect("there").value(), "one");
}

#[test]
fn another_programs_crashed_redb_database_stays_as_it_is() {
    let (folder, path) = folder();
    let live = folder.path().join("live");
    others_database(&live);
    let db = Database::open(&live).expect("theirs");
    let mut txn = db.begin_write().expect("theirs");
    txn.set_durability(Durability::Immediate).expect("no savepoints");
    txn.open_table(THEIRS).expect("theirs").insert(2, "two").expect("theirs");
    txn.commit().expect("theirs");
    // What a crash leaves: a copy of the file while it is open.
    fs::copy(&live, &path).expect("copy");
    refused(&path, ErrorKind::Incompatible, "another program");
}

#[test]
fn an_empty_file_is_never_taken_for_a_new_store() {
    let (_folder, path) = folder();
    fs::write(&path, "").expect("write");
    refused(&path, ErrorKind::Corrupt, "is empty");
}

#[test]
fn a_store_cut_short_anywhere_is_corrupt() {
    let (_folder, path) = folder();
    let whole = made(&path);
    let ends = (0..=400).chain((401..whole.len()).step_by(1021)).chain([whole.len() - 1]);
    for len in ends {
        fs::write(&path, &whole[..len]).expect("write");
        refused(&path, ErrorKind::Corrupt, "restore");
    }
    fs::write(&path, &whole).expect("write");
    assert!(has(&open(&path).expect("whole again"), b"kept"));
}

#[test]
fn an_overwritten_page_is_an_error_or_harmless_and_never_a_panic() {
    let (_folder, path) = folder();
    let whole = made(&path);
    let mut errors = 0;
    for start in (0..whole.len()).step_by(512) {
        let byte = [0, 0xff, 0x5a][start / 512 % 3];
        let mut bad = whole.clone();
        bad[start..start + 512].fill(byte);
        fs::write(&path, &bad).expect("write");
        if let Err(error) = open(&path) {
            errors += 1;
            let kinds = [ErrorKind::Corrupt, ErrorKind::Incompatible];
            assert!(kinds.contains(&error.kind()), "{start}: {error:?}");
            assert!(fs::read(&path).expect("read") == bad, "{start}: a failed opening wrote");
        }
    }
    assert!(errors > 3, "overwriting the header at least is noticed");
}

#[test]
fn an_older_redb_format_is_incompatible() {
    let (_folder, path) = folder();
    made(&path);
    let file = fs::OpenOptions::new().write(true).open(&path).expect("ours");
    for slot in [64, 192] {
        file.write_all_at(&[2], slot).expect("write");
    }
    refused(&path, ErrorKind::Incompatible, "upgrade");
}

#[test]
fn what_may_not_be_written_is_invalid() {
    let (folder, path) = folder();
    made(&path);
    let bare = folder.path().join("bare");
    fs::create_dir(&bare).expect("a folder");
    for (path, mode) in [(&path, 0o444), (&bare, 0o555)] {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("ours");
    }
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("ours");
    thread::scope(|scope| {
        let other_user = scope.spawn(|| {
            // Permission bits do not bind root, so this thread alone becomes somebody else. Whoever
            // cannot do that is bound by them already.
            let _ = rustix::thread::set_thread_uid(Uid::from_raw(65_534));
            refused(&path, ErrorKind::Invalid, "rights");
            refused(&bare.join("store"), ErrorKind::Invalid, "rights");
        });
        other_user.join().expect("it holds for another user");
    });
    assert_eq!(fs::read_dir(&bare).expect("ours").count(), 0);
}

#[test]
fn a_store_is_for_its_owner_only() {
    let (_folder, path) = folder();
    made(&path);
    assert_eq!(fs::metadata(&path).expect("made").permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_second_handle_is_busy_under_any_name_and_names_its_holder() {
    let (folder, path) = folder();
    let store = open(&path).expect("new");
    let (hard, soft) = (folder.path().join("hard"), folder.path().join("soft"));
    fs::hard_link(&path, &hard).expect("a link");
    symlink(&path, &soft).expect("a link");
    for name in [&path, &hard, &soft] {
        let error = refusal(name);
        assert_eq!(error.kind(), ErrorKind::Busy, "{error:?}");
        assert!(error.message().contains(&format!("this process ({})", std::process::id())), "{error:?}");
        assert!(error.retry_after().is_some());
    }
    put(&store, b"row").expect("refusing others costs it nothing");
}

#[test]
fn a_file_unlinked_or_replaced_while_open_is_noticed() {
    let (folder, path) = folder();
    let store = open(&path).expect("new");
    store.state.check_identity().expect("all is well");
    let aside = folder.path().join("aside");
    fs::rename(&path, &aside).expect("move");
    let error = store.state.check_identity().expect_err("unlinked");
    assert!(error.kind() == ErrorKind::Poisoned && error.message().contains("unlinked"), "{error:?}");
    fs::copy(&aside, &path).expect("copy");
    let error = store.state.check_identity().expect_err("replaced");
    assert!(error.kind() == ErrorKind::Poisoned && error.message().contains("replaced"), "{error:?}");
    fs::rename(&aside, &path).expect("move back");
    store.state.check_identity().expect("it is the same file again");
}

#[test]
fn the_file_is_watched_where_it_was_opened() {
    let (_folder, path) = folder();
    let store = open(&path).expect("new");
    assert!(store.state.path().expect("a file").is_absolute());
    assert_eq!(store.found, b"small");
}
