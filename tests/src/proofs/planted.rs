//! Planted bugs: which harness must see which mistake, and within how many cases.

use keyclaim::store::plant::Plant;

use super::{Budget, Report, disk, flips, linear, model};

/// A harness that can be run on a store that makes a mistake.
#[derive(Clone, Copy, Debug)]
pub struct Judge {
    /// Its name.
    pub name: &'static str,
    /// What runs it, with a mistake or without.
    pub run: fn(&Budget, Option<Plant>) -> Report,
    /// How many cases it is given: no more than in `make test`.
    pub cases: u64,
}

/// As [`disk::crash_images`].
pub const CRASH_IMAGES: Judge =
    Judge { name: "crash-images", run: disk::crash_images_planted, cases: 20_000 };
/// As [`disk::fault_points`].
pub const FAULT_POINTS: Judge = Judge { name: "fault-points", run: disk::fault_points_planted, cases: 1_000 };
/// As [`model::model`].
pub const MODEL: Judge = Judge { name: "model", run: model::model_planted, cases: 60 };
/// As [`linear::histories`].
pub const HISTORIES: Judge = Judge { name: "histories", run: linear::histories_planted, cases: 600 };
/// Bits of a closed file.
pub const FLIPS: Judge = Judge { name: "flips", run: flips::flips_planted, cases: 200 };

/// All of them.
pub const JUDGES: [Judge; 5] = [CRASH_IMAGES, FAULT_POINTS, MODEL, HISTORIES, FLIPS];

/// Each mistake, and who must see it.
pub const PAIRS: [(Plant, Judge); 18] = [
    (Plant::AckBeforeSync, CRASH_IMAGES),
    (Plant::CommitErrorIgnored, FAULT_POINTS),
    (Plant::SyncLeftOut, CRASH_IMAGES),
    (Plant::PoisonLeftOut, FAULT_POINTS),
    (Plant::WritesBehind, CRASH_IMAGES),
    (Plant::LastOfGroupLost, CRASH_IMAGES),
    (Plant::TokenNotStored, CRASH_IMAGES),
    (Plant::StaleOwnerObeyed, HISTORIES),
    (Plant::FingerprintIgnored, MODEL),
    (Plant::NonceIgnored, HISTORIES),
    (Plant::WroteForgotten, CRASH_IMAGES),
    (Plant::DueRowLeftOut, CRASH_IMAGES),
    (Plant::BodyRowLeftOut, MODEL),
    (Plant::EventLeftOut, CRASH_IMAGES),
    (Plant::NextEventForgotten, CRASH_IMAGES),
    (Plant::WallClockTrusted, HISTORIES),
    (Plant::ChecksumIgnored, FLIPS),
    (Plant::BodyCut, MODEL),
];
