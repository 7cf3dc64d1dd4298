//! Commands on a store in memory, against the model.

use keyclaim_tests::proofs::model;

/// Two bytes are a command: which one, on which key, by whom.
pub(crate) fn ops_vs_model(bytes: &[u8]) {
    model::model_spelled(bytes);
}
