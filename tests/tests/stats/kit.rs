//! Stores on a clock turned by hand, and what moved in their numbers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keyclaim::clock::ManualClock;
use keyclaim::{Abandoned, Options, Policy, Stats, Store};

use crate::exposition::{Family, parse};
use crate::faulty::Gate;

pub(crate) const LEASE: u64 = 1_000;
pub(crate) const WINDOW: u64 = 10_000;
pub(crate) const HORIZON: u64 = 30_000;

pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) clock: ManualClock,
}

pub(crate) fn policy(abandoned: Abandoned) -> Policy {
    let span = Duration::from_millis;
    let policy = Policy::new(abandoned).lease(span(LEASE)).expect("in bounds");
    let policy = policy.replay_window(span(WINDOW)).expect("in bounds");
    policy.reaper_horizon(span(HORIZON)).expect("in bounds")
}

pub(crate) fn options(clock: &ManualClock) -> Options {
    Options::with_policy(policy(Abandoned::Rerun)).clock(Arc::new(clock.clone())).renew_leases_max(0)
}

pub(crate) fn world() -> World {
    let clock = ManualClock::new(1_700_000_000_000);
    World { store: Store::in_memory(options(&clock)).expect("memory"), clock }
}

/// A store whose writer can be stopped, and which takes this many claims meanwhile.
pub(crate) fn gated(claims: usize) -> (Store, Gate) {
    let gate = Gate::new();
    let options = Options::with_policy(policy(Abandoned::Rerun)).clock(Arc::new(gate.clone()));
    let options = options.renew_leases_max(0).queue_len_max(claims).expect("above zero");
    (Store::in_memory(options).expect("memory"), gate)
}

pub(crate) fn stats(store: &Store) -> Stats {
    store.stats().expect("healthy")
}

/// What moved among the counters meanwhile, by how much; commits and the file left out.
pub(crate) fn moved(store: &Store, work: impl FnOnce()) -> Vec<(String, u64)> {
    let before = counters(&stats(store));
    work();
    difference(&before, &counters(&stats(store)))
}

pub(crate) fn difference(
    before: &BTreeMap<String, u64>,
    after: &BTreeMap<String, u64>,
) -> Vec<(String, u64)> {
    let grown = |(name, after): (&String, &u64)| {
        let before = before.get(name).copied().unwrap_or_default();
        assert!(*after >= before, "{name} fell");
        (*after > before).then(|| (name.clone(), after - before))
    };
    after.iter().filter_map(grown).collect()
}

/// All counters by a short name, such as `claims:won`.
pub(crate) fn counters(stats: &Stats) -> BTreeMap<String, u64> {
    let families = parse(&stats.to_prometheus()).expect("well formed");
    let counted = families.into_iter().filter(|family| family.kind == "counter");
    counted.filter(|family| !family.name.starts_with("keyclaim_file")).flat_map(short).collect()
}

fn short(family: Family) -> impl Iterator<Item = (String, u64)> {
    let name = family.name.strip_prefix("keyclaim_").and_then(|name| name.strip_suffix("_total"));
    let name = name.expect("a counter of ours").to_owned();
    family.samples.into_iter().map(move |sample| {
        let label = sample.labels.first().map(|(_, value)| format!(":{value}")).unwrap_or_default();
        (format!("{name}{label}"), sample.count.expect("counters are whole"))
    })
}

/// What should have moved.
pub(crate) fn these(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
    let mut expected: Vec<_> = expected.iter().map(|(name, by)| ((*name).to_owned(), *by)).collect();
    expected.sort();
    expected
}
