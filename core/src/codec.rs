//! Bytes and values.
