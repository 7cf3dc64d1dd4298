//! A pass of the reaper over a large store of which a tenth is due, and claims meanwhile.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use keyclaim::clock::ManualClock;
use keyclaim::machine::{Record, State};
use keyclaim::{Abandoned, Millis, Options, Reap, Reaped, Store};

use super::load::{self, Keys, micros, quantile, timed};
use super::raw::{self, Template};
use super::report::{Row, Spread};
use super::settings::Settings;

const NOW_MS: u64 = 1_700_000_000_000;
/// Of so many records one is due.
const DUE_OF: u64 = 10;

/// A store of so many finished records, of which every tenth is past its replay window.
pub struct Filled {
    store: Store,
    due: u64,
}

impl Filled {
    /// Fills a new store in this folder, straight into its tables.
    ///
    /// # Panics
    /// If the disk fails.
    pub fn make(folder: &Path, records: u64) -> Self {
        let path = folder.join("reaped.keyclaim");
        let template = Template::of(open(&path), &path, true);
        let fresh = template.record();
        let over = earlier(fresh.clone());
        let when = [&fresh, &over].map(|record| record.due().when.0.to_be_bytes());
        raw::fill_with(&path, records, |number| {
            if number % DUE_OF == 0 { (&over, &when[1]) } else { (&fresh, &when[0]) }
        });
        Self { store: open(&path), due: records / DUE_OF }
    }

    /// How many records are due.
    pub fn due(&self) -> u64 {
        self.due
    }

    /// One whole pass.
    ///
    /// # Panics
    /// If the store fails.
    pub fn reap(&self) -> Reaped {
        self.store.reap(&Reap::new()).expect("the store is healthy")
    }
}

pub(super) fn rows(settings: &Settings) -> Vec<Row> {
    let folder = settings.folder();
    let filled = Filled::make(folder.path(), settings.records_reaped);
    let keys = Keys::from(settings.records_reaped + 1);
    let claim = || timed(|| load::win(&filled.store, &load::request(keys.next()))).0;
    let quiet: Vec<_> = (0..settings.lone * settings.reps).map(|_| claim()).collect();
    let is_done = AtomicBool::new(false);
    let (took, reaped, busy) = thread::scope(|scope| {
        let claiming = scope.spawn(|| {
            let mut took = vec![claim()];
            while !is_done.load(Ordering::Acquire) {
                took.push(claim());
            }
            took
        });
        let (took, reaped) = timed(|| filled.reap());
        is_done.store(true, Ordering::Release);
        (took, reaped, claiming.join().expect("the claiming thread ends"))
    });
    assert_eq!((reaped.tombstoned, reaped.rows_read), (filled.due, filled.due), "it reads what is due only");
    let title = |what: &str| format!("reap: {what}, {} records", settings.records_reaped);
    let row = |name: String, unit: &'static str, ours: f64, raw: Option<f64>, note: String| Row {
        name,
        unit,
        ours: Spread::of(vec![ours]),
        raw: raw.map(|raw| Spread::of(vec![raw])),
        ratio: None,
        target: None,
        note,
    };
    vec![
        row(
            title("due rows of a pass"),
            "1/s",
            reaped.rows_read as f64 / took.as_secs_f64(),
            None,
            format!(
                "{} due, {} read, {} commits, {:.1} s",
                filled.due,
                reaped.rows_read,
                reaped.batches,
                took.as_secs_f64()
            ),
        ),
        row(
            title("claims meanwhile, p99"),
            "us",
            micros(quantile(&busy, 0.99)),
            Some(micros(quantile(&quiet, 0.99))),
            format!("{} claims meanwhile; raw: p99 of {} without a pass", busy.len(), quiet.len()),
        ),
    ]
}

fn open(path: &Path) -> Store {
    let clock = Arc::new(ManualClock::new(NOW_MS));
    Store::open(path, Options::new(Abandoned::Rerun).clock(clock)).expect("the bench's own store opens")
}

/// The same record, finished so long ago that its window is over now.
fn earlier(mut record: Record) -> Record {
    let State::Complete { completed_ms, window_until_ms, .. } = &mut record.state else {
        panic!("the template is a complete record")
    };
    let window_ms = window_until_ms.since(*completed_ms);
    let back = |when: &mut Millis| *when = Millis(when.0 - window_ms.0 - 1);
    back(completed_ms);
    back(window_until_ms);
    back(&mut record.created_ms);
    back(&mut record.applied_ms);
    record
}
