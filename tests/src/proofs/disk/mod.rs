//! The whole store on a simulated disk, crashed and failed at every change of it.
//!
//! ```text
//! a seed -> actions on a store, each answer held against the model -> changes of the disk, acknowledgements
//!        -> at every change: what a power cut may leave -> opened -> is it what was told?
//! ```

mod action;
mod drive;
mod faults;
mod group;
mod images;
mod look;
mod perform;
mod record;
mod values;
mod world;

use std::env;

pub use images::Cut;

use super::{Budget, Report};
use keyclaim::Sharing;
use keyclaim::store::plant::Plant;
use record::Recording;

use crate::seeded::Draws;

const IMAGES: &str = "crash images";
const FAULTS: &str = "fault points";
/// Arbitrary: some thousands of changes, in a file that stays small.
const STEPS: u64 = 150;
/// Of a workload that is spelled. Arbitrary: some tens of milliseconds.
const STEPS_SPELLED: u64 = 40;
/// The bytes before its actions: one says which store, and three each of a cut.
const CUTS_SPELLED: usize = 1 + 4 * 3;

/// Which store on which disk.
#[derive(Clone, Copy, Debug, Default)]
struct Mode {
    sharing: Sharing,
    /// A mistake that the store makes.
    plant: Option<Plant>,
    /// Whether the disk lies about its syncs.
    lies: bool,
}

impl Mode {
    /// The same without mistakes: how what was left is looked at.
    fn healthy(self) -> Self {
        Self { sharing: self.sharing, ..Self::default() }
    }

    /// The test of `tests/crash_images.rs` that replays a violation.
    fn crash_test(self) -> &'static str {
        match self {
            Self { lies: true, .. } => "a_disk_that_lies",
            Self { sharing: Sharing::Processes, .. } => "every_crash_of_a_shared",
            _ => "every_crash_leaves",
        }
    }

    fn fault_test(self) -> &'static str {
        if self.sharing == Sharing::Processes { "every_fault_of_a_shared" } else { "every_fault_is" }
    }
}

/// Opens what power cuts may leave, at least as many images as there are cases. `KEYCLAIM_IMAGE` picks one, as a
/// violation's line says.
pub fn crash_images(budget: &Budget) -> Report {
    images_of(budget, Mode::default())
}

/// The same of a store that is shared by processes, of which one is there.
pub fn crash_images_shared(budget: &Budget) -> Report {
    images_of(budget, Mode { sharing: Sharing::Processes, ..Mode::default() })
}

/// The same of a store that makes this mistake, to see that it is noticed.
pub fn crash_images_planted(budget: &Budget, plant: Option<Plant>) -> Report {
    images_of(budget, Mode { plant, ..Mode::default() })
}

/// The same on a disk that says that it has synced and has not: to see that it is noticed.
pub fn crash_images_of_a_lying_disk(budget: &Budget) -> Report {
    images_of(budget, Mode { lies: true, ..Mode::default() })
}

/// A workload and power cuts that these bytes spell: which store, four cuts, and what is done.
///
/// # Panics
/// If a promise is seen broken.
pub fn crash_spelled(bytes: &[u8]) {
    crash_spelled_planted(bytes, None);
}

/// The same of a store that makes this mistake.
///
/// # Panics
/// If it is noticed.
pub fn crash_spelled_planted(bytes: &[u8], plant: Option<Plant>) {
    let Some((head, actions)) = bytes.split_first_chunk::<CUTS_SPELLED>() else { return };
    let mut head = Draws::spelled(head);
    let sharing = if head.below(4) == 0 { Sharing::Processes } else { Sharing::default() };
    let mode = Mode { sharing, plant, ..Mode::default() };
    let recording = Recording::drawn(Draws::spelled(actions), STEPS_SPELLED, mode, Draws::has_bytes)
        .unwrap_or_else(|what| panic!("{what}"));
    let points = (recording.ops.len() - recording.start) as u64 + 1;
    while head.has_bytes() {
        let ops = recording.start + usize::try_from(head.below(0x1_0000) % points).unwrap_or_default();
        let cut = usize::try_from(head.below(256)).unwrap_or_default();
        let mut draws = Draws::new(ops as u64 ^ ((cut as u64) << 32));
        images::check_one(&recording, images::Which { ops, cut }, &mut draws)
            .unwrap_or_else(|what| panic!("{what}"));
    }
}

fn images_of(budget: &Budget, mode: Mode) -> Report {
    let mut report = Report::new(IMAGES, budget.seed);
    let only = picked("KEYCLAIM_IMAGE").and_then(|parts| match parts[..] {
        [ops, cut] => {
            Some(images::Which { ops: usize::try_from(ops).ok()?, cut: usize::try_from(cut).ok()? })
        }
        _ => None,
    });
    for seed in budget.seed.. {
        report.add("runs", 1);
        match Recording::of(seed, STEPS, mode) {
            Ok(recording) => {
                report.add("changes", (recording.ops.len() - recording.start) as u64);
                images::check_all(&recording, seed, only, &mut report);
            }
            Err(what) => report.violation(format!(
                "{what}; replay: KEYCLAIM_SEED={seed} cargo test -p keyclaim-tests --test crash_images {}",
                mode.crash_test()
            )),
        }
        if only.is_some() || report.cases >= budget.cases || !report.violations.is_empty() {
            break;
        }
    }
    report
}

/// Lets operations fail, at least as many as there are cases. `KEYCLAIM_FAULT` picks one, as a violation's line
/// says.
pub fn fault_points(budget: &Budget) -> Report {
    faults_of(budget, Mode::default())
}

/// The same of a store that is shared by processes, of which one is there.
pub fn fault_points_shared(budget: &Budget) -> Report {
    faults_of(budget, Mode { sharing: Sharing::Processes, ..Mode::default() })
}

/// The same of a store that makes this mistake, to see that it is noticed.
pub fn fault_points_planted(budget: &Budget, plant: Option<Plant>) -> Report {
    faults_of(budget, Mode { plant, ..Mode::default() })
}

fn faults_of(budget: &Budget, mode: Mode) -> Report {
    let mut report = Report::new(FAULTS, budget.seed);
    let only = picked("KEYCLAIM_FAULT").and_then(|parts| match parts[..] {
        [opening, way, at] => {
            Some(faults::Which { opening: opening > 0, way: usize::try_from(way).ok()?, at })
        }
        _ => None,
    });
    for seed in budget.seed.. {
        report.add("runs", 1);
        faults::check_all(seed, mode, only, &mut report);
        if only.is_some() || report.cases >= budget.cases || !report.violations.is_empty() {
            break;
        }
    }
    report
}

/// Numbers with colons between them.
fn picked(variable: &str) -> Option<Vec<u64>> {
    env::var(variable).ok()?.split(':').map(|part| part.parse().ok()).collect()
}
