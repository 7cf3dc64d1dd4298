//! Numbers and names that mark one intent and its attempts.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::key::Id;

/// The fencing number of an attempt: strictly increasing per store and never issued twice.
///
/// Hand it to whatever the owner writes to; a smaller number than the last seen one is stale.
/// It is new with every win by a fresh claim, a takeover or a reattempt, and with every operator command.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Token(pub u64);

impl Token {
    /// The token that follows this one. Saturates: a store cannot issue 2^64 tokens.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Names one intent behind a key: the token of its first attempt, kept by every later attempt.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Generation(pub u64);

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Names one call of claim: 128 random bits made where the answer is awaited.
///
/// Whoever lost the answer asks again with the same nonce and is told that it won, if it did.
#[derive(Clone, Copy, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct Nonce(pub [u8; 16]);

impl Nonce {
    /// A fresh nonce from the operating system's randomness.
    pub fn random() -> crate::Result<Self> {
        Ok(Self(random_bytes()?))
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A nonce lets its holder be told a win, so logs get a prefix only.
        write!(f, "Nonce({:02x}{:02x}..)", self.0[0], self.0[1])
    }
}

/// Names one store: 16 random bytes made when it is created. Two ids seen are two stores, and two winners.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct StoreId(pub [u8; 16]);

impl StoreId {
    /// A fresh id from the operating system's randomness.
    pub fn random() -> crate::Result<Self> {
        Ok(Self(random_bytes()?))
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The key of one step's call to another service, as 32 hex digits: the same for every attempt of
/// one generation, another for the next one and for another store.
pub fn downstream_key(store: StoreId, id: &Id, generation: Generation, step: &str) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("keyclaim 2026 downstream key v1");
    hasher.update(&store.0);
    hasher.update(&generation.0.to_le_bytes());
    hash_id_and_step(hasher, id, step)
}

/// Like [`downstream_key`], from the id and step alone: it survives the loss of the store, and is the
/// same for a later generation too, so the other side must not be asked for a new intent under it.
pub fn downstream_key_of_id(id: &Id, step: &str) -> String {
    hash_id_and_step(blake3::Hasher::new_derive_key("keyclaim 2026 downstream key of id v1"), id, step)
}

fn hash_id_and_step(mut hasher: blake3::Hasher, id: &Id, step: &str) -> String {
    for part in [&id.encode()[..], step.as_bytes()] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().to_hex().chars().take(32).collect()
}

pub(crate) fn random_bytes() -> crate::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    #[expect(
        clippy::disallowed_methods,
        reason = "the border: what is drawn here is an argument to the rest"
    )]
    let drawn = getrandom::fill(&mut bytes);
    drawn.map_err(|error| {
        crate::Error::new(crate::ErrorKind::Internal, "the operating system gave no random bytes")
            .caused_by(error)
    })?;
    Ok(bytes)
}
