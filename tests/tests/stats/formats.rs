//! The text for Prometheus: well formed, complete, and silent about keys.

use std::collections::BTreeSet;

use keyclaim::{ErrorKind, Stats};
use keyclaim_tests::request::{id_in, paying};

use crate::exposition::{Family, parse};
use crate::faulty::*;
use crate::kit::*;

fn families(stats: &Stats) -> Vec<Family> {
    parse(&stats.to_prometheus()).expect("well formed")
}

#[test]
fn a_page_is_well_formed_and_named_by_the_rules() {
    assert_eq!(Stats::PROMETHEUS_CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8");
    let World { store, .. } = world();
    won(store.claim(&request("a"))).complete(&success(b"done")).expect("its owner");
    for stats in [Stats::default(), stats(&store)] {
        for family in families(&stats) {
            assert!(family.name.starts_with("keyclaim_"), "{family:?}");
            assert!(
                family.help.ends_with('.') || family.help.contains(';') || family.help.contains(':'),
                "{family:?}"
            );
            assert!(!family.name.contains("_ms") && !family.name.contains("milli"), "base units: {family:?}");
            // Every label is one of a few words of ours, whatever was claimed.
            for sample in &family.samples {
                assert!(sample.labels.len() <= 1);
                for (label, _) in &sample.labels {
                    assert!(["answer", "lane", "le", "result"].contains(&label.as_str()), "{label}");
                }
            }
        }
    }
}

#[test]
fn the_series_are_always_the_same_ones() {
    let World { store, clock } = world();
    let series = |stats: &Stats| -> BTreeSet<_> {
        let samples = families(stats).into_iter().flat_map(|family| family.samples);
        samples.map(|sample| (sample.name, sample.labels)).collect()
    };
    let at_first = series(&stats(&store));
    for n in 0..20 {
        drop(won(store.claim(&request(&format!("key {n}")))));
        drop(store.claim(&request(&format!("key {n}"))));
    }
    clock.advance(LEASE);
    drop(won(store.claim(&request("key 1"))));
    refused(store.forget(&id("key 2"), keyclaim::Token(99)), ErrorKind::Fenced);
    assert_eq!(series(&stats(&store)), at_first);
}

#[test]
fn no_format_tells_a_key_a_scope_or_a_body() {
    let World { store, .. } = world();
    let claim = won(store.claim(&paying("secret-key", b"secret-payload")));
    claim.checkpoint("secret-point", b"secret-data").expect("its owner");
    drop(won(store.claim(&keyclaim::ClaimRequest::new(
        id_in("secret-scope", "secret-key"),
        keyclaim::fingerprint::Scheme::Raw,
        keyclaim::fingerprint::Request::default(),
    ))));
    let stats = stats(&store);
    for told in [stats.to_prometheus(), format!("{stats:?}")] {
        assert!(!told.contains("secret"), "{told}");
    }
}

#[test]
fn the_page_tells_the_numbers_of_the_struct() {
    let World { store, .. } = world();
    won(store.claim(&request("a"))).complete(&success(b"done")).expect("its owner");
    let _owner = won(store.claim(&request("b")));
    let stats = stats(&store);
    let told = |name: &str| {
        let all = families(&stats).into_iter().flat_map(|family| family.samples);
        all.filter(|sample| sample.name == name).filter_map(|sample| sample.count).collect::<Vec<_>>()
    };
    assert_eq!(told("keyclaim_completed_total"), [stats.completed]);
    assert_eq!(told("keyclaim_in_flight"), [1]);
    assert_eq!(told("keyclaim_claim_objects"), [1]);
    assert_eq!(told("keyclaim_commit_group_commands_count"), [stats.groups]);
    assert_eq!(told("keyclaim_commit_group_commands_sum"), [stats.grouped_commands]);
    assert_eq!(told("keyclaim_commit_group_commands_bucket"), [3; 10]);
    assert_eq!(told("keyclaim_file_syncs_total"), [stats.file_syncs]);
}

#[test]
fn the_documentation_names_every_family_and_no_other() {
    let page = include_str!("../../../core/docs/stats.md");
    let documented: BTreeSet<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `keyclaim_"))
        .filter_map(|line| line.split(['`', '{']).next())
        .map(|name| format!("keyclaim_{name}"))
        .collect();
    let told: BTreeSet<_> = families(&Stats::default()).into_iter().map(|family| family.name).collect();
    assert_eq!(documented, told);
}
