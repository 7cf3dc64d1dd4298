//! What a caller brings along to claim a key.

use std::fmt;

use crate::fingerprint::{Fingerprint, Request, Scheme};
use crate::key::Id;
use crate::machine::{Blob, Body, ClaimCommand};
use crate::{Nonce, Policy, Result, Token, Writes};

/// A claim as a caller words it: who asks, for what, and under which settings.
///
/// The same value may be asked many times and from many threads: unless it names a nonce, every
/// call is a caller of its own.
#[derive(Clone)]
pub struct ClaimRequest<'a> {
    id: Id,
    print: Print<'a>,
    policy: Option<Policy>,
    operation: Option<&'a str>,
    stored: Option<&'a [u8]>,
    pub(super) nonce: Option<Nonce>,
    token: Option<Token>,
}

#[derive(Clone)]
enum Print<'a> {
    Made(Fingerprint),
    Of(Scheme, Request<'a>),
}

impl<'a> ClaimRequest<'a> {
    /// A claim for this request, told apart from others under this scheme.
    ///
    /// Should the key's record have been made under another scheme, the fingerprint is made again
    /// under that one, so that a deploy which changes the scheme breaks no retry.
    pub fn new(id: Id, scheme: Scheme, request: Request<'a>) -> Self {
        Self::with(id, Print::Of(scheme, request))
    }

    /// A claim with a fingerprint made elsewhere. A record made under another scheme is a mismatch.
    pub fn with_fingerprint(id: Id, fingerprint: Fingerprint) -> Self {
        Self::with(id, Print::Made(fingerprint))
    }

    fn with(id: Id, print: Print<'a>) -> Self {
        Self { id, print, policy: None, operation: None, stored: None, nonce: None, token: None }
    }

    /// Sets this claim's own settings in place of the store's.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Names the operation, and keeps these bytes of the request until it is complete, so that an
    /// abandoned claim can be finished without its caller: see [`Completer`](crate::Completer).
    ///
    /// A name of 1 to 255 bytes, and bytes up to the store's body limit
    /// ([`Options::body_len_max`](crate::Options::body_len_max)); anything else makes the claim `Invalid`. A
    /// takeover keeps what is stored, and takes these only where there are none.
    #[must_use]
    pub fn operation(mut self, name: &'a str, request: &'a [u8]) -> Self {
        self.operation = Some(name);
        self.stored = Some(request);
        self
    }

    /// Makes this call the repeat of an earlier one with the same nonce, whose answer was lost.
    ///
    /// One nonce stands for one caller: two that share it are both told of the same win.
    #[must_use]
    pub fn nonce(mut self, nonce: Nonce) -> Self {
        self.nonce = Some(nonce);
        self
    }

    /// Says that the caller owns the attempt with this token already, and wants to go on with it.
    #[must_use]
    pub fn token(mut self, token: Token) -> Self {
        self.token = Some(token);
        self
    }

    /// Who asks.
    pub fn id(&self) -> &Id {
        &self.id
    }

    pub(super) fn stored_len(&self) -> usize {
        self.stored.map_or(0, <[u8]>::len)
    }

    pub(super) fn policy_or(&self, store_policy: Policy) -> Policy {
        self.policy.unwrap_or(store_policy)
    }

    pub(super) fn command(&self, nonce: Nonce, policy: Policy, writes: &Writes) -> Result<ClaimCommand> {
        let fingerprint = match &self.print {
            Print::Made(fingerprint) => fingerprint.clone(),
            Print::Of(scheme, request) => scheme.fingerprint(request)?,
        };
        Ok(ClaimCommand {
            nonce,
            token: self.token,
            fingerprint,
            policy,
            operation: self.operation.map(str::to_owned),
            request: self.stored.map(|bytes| Body::Here(Blob::from(bytes))),
            writes: writes.clone(),
        })
    }

    /// The fingerprint under a record's scheme; none if this request has none under it, and so is another.
    pub(super) fn under(&self, scheme: &Scheme) -> Option<Fingerprint> {
        match &self.print {
            Print::Made(_) => None,
            Print::Of(_, request) => scheme.fingerprint(request).ok(),
        }
    }
}

impl fmt::Debug for ClaimRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The stored request is customer data, and a nonce lets its holder be told a win.
        f.debug_struct("ClaimRequest")
            .field("id", &self.id)
            .field("operation", &self.operation)
            .finish_non_exhaustive()
    }
}
