//! keyclaim

pub mod codec;
pub mod fingerprint;
pub mod http;
pub mod key;
pub mod limits;
pub mod machine;

pub mod rows;

mod error;
mod policy;
mod token;

pub use error::{Error, ErrorKind, Result};
pub use key::{Id, Key, Scope};
pub use policy::{Abandoned, AfterFailure, AfterWindow, Millis, Policy};
pub use token::{Generation, Nonce, StoreId, Token};
