//! What a request asked for, as 32 bytes and the scheme they were made under.

use serde::{Deserialize, Serialize};

/// A scheme and the BLAKE3 made under it. Two requests are the same if both are equal.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct Fingerprint {
    /// How it was made.
    pub scheme: Scheme,
    /// The hash.
    pub hash: [u8; 32],
}

/// How a fingerprint is made; kept with the record, so that a deploy which changes it breaks no retry.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub enum Scheme {
    /// The payload's bytes as they are.
    Raw,
    /// The payload as canonical JSON, without the members these JSON pointers name.
    Json {
        /// RFC 6901 pointers of the members left out, sorted.
        without: Vec<String>,
    },
}
