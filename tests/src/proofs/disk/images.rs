//! Crash images: what a power cut may leave at each change of a recorded run, opened and held against the model.

use std::panic::{AssertUnwindSafe, catch_unwind};

use keyclaim::Store;
use keyclaim::store::disk::{DiskOp, SimDisk, Tear, torn};

use super::Mode;
use super::drive::{now_after, options};
use super::look::{Seen, probe};
use super::record::{Point, Recording};
use crate::proofs::{Report, in_parts};
use crate::seeded::Draws;

/// What a power cut leaves of the changes that were not synced. Cut at each change in turn, all of them are also
/// each prefix of a longer row of changes.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// All that was written.
    All,
    /// Nothing of it.
    Nothing,
    /// A part.
    Torn(Tear),
}

/// Those in which the opening is cut: one of each kind.
const CUTS_OF_OPENING: [Cut; 5] = [Cut::ALL[0], Cut::ALL[1], Cut::ALL[2], Cut::ALL[4], Cut::ALL[6]];
/// Arbitrary: every so many images also the opening is crashed, at every change it makes.
const DOUBLE_EVERY: u64 = 24;
/// Arbitrary: every so many images the store is also asked, which writes, and so takes ten times as long.
const PROBE_EVERY: u64 = 12;

/// Which image: after so many changes, and by which of the cuts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Which {
    pub(super) ops: usize,
    pub(super) cut: usize,
}

/// All images of a recorded run, or only one.
pub(super) fn check_all(recording: &Recording, seed: u64, only: Option<Which>, report: &mut Report) {
    in_parts(report, |part, report| check_part(recording, seed, only, part, report));
}

fn check_part(
    recording: &Recording,
    seed: u64,
    only: Option<Which>,
    (part, parts): (usize, usize),
    report: &mut Report,
) {
    let (mut durable, mut synced) = (Vec::new(), 0);
    for ops in 0..=recording.ops.len() {
        // The change before this point; a sync makes all before it durable.
        if let Some(DiskOp::Sync) = ops.checked_sub(1).and_then(|last| recording.ops.get(last)) {
            recording.ops[synced..ops].iter().for_each(|op| op.apply(&mut durable));
            synced = ops;
        }
        let is_ours = ops >= recording.start && ops % parts == part;
        if !is_ours || only.is_some_and(|only| only.ops != ops) {
            continue;
        }
        let Some(point) = recording.at(ops, now_after) else { continue };
        let unsynced = &recording.ops[synced..ops];
        for (number, how) in Cut::ALL.iter().enumerate() {
            if only.is_some_and(|only| only.cut != number) || (unsynced.is_empty() && number > 0) {
                continue;
            }
            let mut draws = Draws::new(seed ^ ((ops as u64) << 8) ^ number as u64);
            let bytes = how.of(&durable, unsynced, &mut draws);
            report.cases += 1;
            let checked = catch_unwind(AssertUnwindSafe(|| {
                check(&bytes, &point, recording, only.is_some(), &mut draws, report)
            }));
            let what = checked.unwrap_or_else(|_| Err("a panic escaped from the store".to_owned()));
            if let Err(what) = what {
                let test = recording.mode.crash_test();
                report.violation(format!(
                    "{what} [at {}]; replay: KEYCLAIM_SEED={seed} KEYCLAIM_IMAGE={ops}:{number} cargo test -p \
                     keyclaim-tests --test crash_images {test}",
                    point.what
                ));
                // What follows a broken promise is worse, down to files on which redb aborts the process.
                return;
            }
        }
    }
}

/// One image of a recorded run: it is held against the model, and the opening may be crashed as well.
pub(super) fn check_one(recording: &Recording, which: Which, draws: &mut Draws) -> Result<(), String> {
    let Some(point) = recording.at(which.ops, now_after) else { return Ok(()) };
    let done = recording.ops.get(..which.ops).unwrap_or(&recording.ops);
    let synced = done.iter().rposition(|op| matches!(op, DiskOp::Sync)).map_or(0, |last| last + 1);
    let (before, unsynced) = done.split_at(synced);
    let mut durable = Vec::new();
    for op in before {
        op.apply(&mut durable);
    }
    let how = Cut::ALL[which.cut % Cut::ALL.len()];
    let bytes = how.of(&durable, unsynced, draws);
    let mut report = Report::new("", 0);
    check(&bytes, &point, recording, false, draws, &mut report)
        .map_err(|what| format!("{what} [{which:?} at {}]", point.what))
}

impl Cut {
    /// Every kind; what is torn is drawn anew each time, so twice the same are two images.
    pub const ALL: [Self; 8] = [
        Self::All,
        Self::Nothing,
        Self::Torn(Tear { sector_len: 512, garbage: false }),
        Self::Torn(Tear { sector_len: 512, garbage: false }),
        Self::Torn(Tear { sector_len: 4096, garbage: false }),
        Self::Torn(Tear { sector_len: 4096, garbage: false }),
        Self::Torn(Tear { sector_len: 512, garbage: true }),
        Self::Torn(Tear { sector_len: 4096, garbage: true }),
    ];

    /// The image.
    pub fn of(self, durable: &[u8], unsynced: &[DiskOp], draws: &mut Draws) -> Vec<u8> {
        let mut bytes = durable.to_vec();
        match self {
            Self::All => unsynced.iter().for_each(|op| op.apply(&mut bytes)),
            Self::Nothing => {}
            Self::Torn(tear) => return torn(durable, unsynced, tear, &mut |end| draws.below(end)),
        }
        bytes
    }
}

fn check(
    bytes: &[u8],
    point: &Point,
    recording: &Recording,
    is_thorough: bool,
    draws: &mut Draws,
    report: &mut Report,
) -> Result<(), String> {
    let disk = SimDisk::holding(bytes.to_vec());
    let mode = recording.mode.healthy();
    let (options, clock) = options(mode, point.passed_ms);
    let opened = Store::on_disk(&disk, options).map_err(|error| format!("it does not open: {error:?}"))?;
    let opening = disk.log();
    let result = (|| {
        let seen = Seen::of(&opened).map_err(|error| format!("it cannot be read: {error:?}"))?;
        let worlds = seen.find(&point.worlds, point.now_ms)?;
        if is_thorough || draws.below(DOUBLE_EVERY) == 0 {
            check_opening((bytes, mode), &opening, point, &seen, draws, report)?;
        }
        if is_thorough || draws.below(PROBE_EVERY) == 0 {
            report.add("asked", 1);
            let told = recording.tokens.get(..point.tokens).unwrap_or_default();
            probe(&opened, &worlds, told, || clock.advance(10_000_000))?;
        }
        Ok(())
    })();
    disk.cut();
    result
}

/// Crashes the opening itself at each of its changes: what was seen behind it is seen again.
fn check_opening(
    (bytes, mode): (&[u8], Mode),
    opening: &[DiskOp],
    point: &Point,
    seen: &Seen,
    draws: &mut Draws,
    report: &mut Report,
) -> Result<(), String> {
    let (mut durable, mut synced) = (bytes.to_vec(), 0);
    for ops in 1..=opening.len() {
        if matches!(opening[ops - 1], DiskOp::Sync) {
            opening[synced..ops].iter().for_each(|op| op.apply(&mut durable));
            synced = ops;
        }
        // Of nothing unsynced there is one image.
        let cuts = if synced == ops { &CUTS_OF_OPENING[..1] } else { &CUTS_OF_OPENING };
        for cut in cuts {
            report.add("double", 1);
            let again = SimDisk::holding(cut.of(&durable, &opening[synced..ops], draws));
            let store = Store::on_disk(&again, options(mode, point.passed_ms).0).map_err(|error| {
                format!("crashed at change {ops} of opening, it does not open: {error:?}")
            })?;
            let found = Seen::of(&store);
            again.cut();
            let found = found
                .map_err(|error| format!("crashed at change {ops} of opening, unreadable: {error:?}"))?;
            if found != *seen {
                return Err(format!(
                    "crashed at change {ops} of opening, it shows something else than before"
                ));
            }
        }
    }
    Ok(())
}
