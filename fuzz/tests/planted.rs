//! The corpora are good for something: of a store that makes a mistake, some input tells.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use keyclaim::store::plant::Plant;
use keyclaim_fuzz::target;
use keyclaim_tests::proofs::{disk, model};

/// After how many inputs each mistake is seen; panics if it is not.
fn seen(name: &str, plants: &[Plant], run: impl Fn(&[u8], Option<Plant>)) {
    let folder = fs::read_dir(target(name).expect("a target").corpus()).expect("a corpus is committed");
    let mut files: Vec<_> = folder.map(|entry| entry.expect("readable").path()).collect();
    files.sort();
    let inputs: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).expect("readable")).collect();
    for plant in plants {
        let tells = |bytes: &Vec<u8>| catch_unwind(AssertUnwindSafe(|| run(bytes, Some(*plant)))).is_err();
        let at = inputs.iter().position(tells);
        println!("{plant:?}: input {at:?} of {}", inputs.len());
        assert!(at.is_some(), "{plant:?} survives the {} inputs of {name}", inputs.len());
    }
}

#[test]
fn a_store_that_answers_wrongly_is_told_by_an_input() {
    let plants = [Plant::FingerprintIgnored, Plant::NonceIgnored, Plant::StaleOwnerObeyed, Plant::BodyCut];
    seen("ops_vs_model", &plants, model::model_spelled_planted);
}

#[test]
fn a_store_that_loses_something_in_a_crash_is_told_by_an_input() {
    let plants = [Plant::TokenNotStored, Plant::EventLeftOut, Plant::DueRowLeftOut, Plant::LastOfGroupLost];
    seen("crash_ops", &plants, disk::crash_spelled_planted);
}
