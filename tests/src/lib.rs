//! What crosses modules, processes or languages; the tests themselves are in `tests/`.

pub mod bench;
pub mod machine_kit;
