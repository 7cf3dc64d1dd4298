//! BLAKE3 under contexts of our own, so that no two uses can be mistaken for each other.

use std::sync::OnceLock;

use blake3::Hasher;
use blake3::hazmat::{ContextKey, HasherExt, hash_derive_key_context};

/// One use of BLAKE3 in derive-key mode: gives the hashes of [`Hasher::new_derive_key`] with its context.
///
/// The context is hashed once per process: for records of a usual size that is a fifth of the work.
pub(crate) struct Domain {
    context: &'static str,
    key: OnceLock<ContextKey>,
}

impl Domain {
    pub(crate) const fn new(context: &'static str) -> Self {
        Self { context, key: OnceLock::new() }
    }

    pub(crate) fn hasher(&self) -> Hasher {
        Hasher::new_from_context_key(self.key.get_or_init(|| hash_derive_key_context(self.context)))
    }
}

/// The first bytes of a hash, as many as are wanted up to 32.
pub(crate) fn first_bytes<const N: usize>(hasher: &Hasher) -> [u8; N] {
    const { assert!(N <= blake3::OUT_LEN) };
    let mut bytes = [0; N];
    bytes.iter_mut().zip(hasher.finalize().as_bytes()).for_each(|(to, from)| *to = *from);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_hashes_as_its_context_does_every_time() {
        static DOMAIN: Domain = Domain::new("keyclaim test context");
        for _ in 0..2 {
            let mut plain = Hasher::new_derive_key("keyclaim test context");
            assert_eq!(DOMAIN.hasher().update(b"x").finalize(), plain.update(b"x").finalize());
        }
    }

    #[test]
    fn the_first_bytes_are_those_of_the_extended_output() {
        let mut hasher = Hasher::new_derive_key("keyclaim test context");
        hasher.update(b"x");
        let mut extended = [0; 16];
        hasher.finalize_xof().fill(&mut extended);
        assert_eq!(first_bytes::<16>(&hasher), extended);
    }
}
