//! What is asked, and the settings it is asked with: few of each, so that histories meet.

/// One thing that happens.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Claim {
        key: u8,
        payload: u8,
        policy: usize,
        nonce: Option<u8>,
        token_of: Option<usize>,
    },
    Own {
        claim: usize,
        act: Own,
    },
    Operate {
        key: u8,
        act: Operate,
        is_stale: bool,
    },
    /// The last reference to a claim goes.
    Drop {
        claim: usize,
    },
    Advance {
        ms: u64,
    },
    /// Time goes on to a deadline of this key, or to the instant before it.
    AdvanceTo {
        key: u8,
        deadline: usize,
        before: u64,
    },
    /// Both stores' claims go; the one on a file is closed and opened again.
    Restart,
}

/// What an owner says.
#[derive(Clone, Debug)]
pub(super) enum Own {
    Renew { lease_ms: Option<u64> },
    Checkpoint { point: u8 },
    Begin { step: u8, limit_ms: u64, doubt: Doubt },
    Finish { step: u8, end: End },
    Complete { outcome: Ending },
    Release,
    Abandon,
    Hold,
}

/// What a person does.
#[derive(Clone, Debug)]
pub(super) enum Operate {
    Complete { outcome: Ending },
    Absent,
    Resumable { step: Option<End> },
    Forget,
    Extend { ms: u64 },
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Doubt {
    Repeat,
    Reconcile { settle_ms: u64 },
    Hold,
}

/// How a step ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum End {
    Done,
    Refused,
    NotSent,
}

/// How a request ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ending {
    Success { body_len: usize },
    Failure,
    FailureToReattempt,
}

/// The settings of a claim.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) lease_ms: Option<u64>,
    pub(super) window_ms: u64,
    pub(super) horizon_ms: u64,
    pub(super) reruns: bool,
    pub(super) refuses_after_window: bool,
}

pub(super) const KEYS: u8 = 2;

pub(super) const POLICIES: [Settings; 4] = [
    policy(Some(1_000), 5_000, 9_000, true, false),
    policy(Some(500), 3_000, 3_000, false, true),
    policy(None, 4_000, 20_000, false, false),
    policy(Some(2_000), 3_000, 8_000, true, true),
];

const fn policy(
    lease_ms: Option<u64>,
    window_ms: u64,
    horizon_ms: u64,
    reruns: bool,
    refuses_after_window: bool,
) -> Settings {
    Settings { lease_ms, window_ms, horizon_ms, reruns, refuses_after_window }
}
