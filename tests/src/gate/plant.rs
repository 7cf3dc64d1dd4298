//! Mistakes that a worker can be told to make. The gate must see each of them.

/// A mistake of whoever writes a handler.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Plant {
    /// The provider is called before the intent is committed.
    CallBeforeIntent,
    /// The call's result is not recorded.
    ForgetResult,
    /// The downstream key is another one on each attempt.
    KeyOfAttempt,
    /// A reconciled step is asked about without waiting until the call has settled.
    NoSettling,
    /// A step in doubt is called again, although the provider books every call.
    RepeatInDoubt,
    /// An order is run although the store did not grant its claim.
    RunUnclaimed,
}

impl Plant {
    const ALL: [(Self, &'static str); 6] = [
        (Self::CallBeforeIntent, "call-before-intent"),
        (Self::ForgetResult, "forget-result"),
        (Self::KeyOfAttempt, "key-of-attempt"),
        (Self::NoSettling, "no-settling"),
        (Self::RepeatInDoubt, "repeat-in-doubt"),
        (Self::RunUnclaimed, "run-unclaimed"),
    ];

    pub(super) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(plant, _)| *plant == self).map_or("none", |(_, name)| name)
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(plant, _)| *plant)
    }
}
