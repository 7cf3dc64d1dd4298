//! Scripts
