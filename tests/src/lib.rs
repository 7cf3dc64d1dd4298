//! What crosses modules, processes or languages; the tests themselves are in `tests/`.
