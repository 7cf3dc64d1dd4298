//! The same numbers through the `metrics` facade, for whatever recorder the program has installed.

use metrics::{Label, Unit, counter, describe_counter, describe_gauge, gauge};

use super::Stats;
use super::families::{FAMILIES, Kind, Sample, Value};

impl Stats {
    /// Tells the program's `metrics` recorder what each number is. Once is enough, after the recorder is installed.
    pub fn describe_metrics() {
        for family in FAMILIES {
            let (name, help, unit) = (family.name, family.help, unit(family.name));
            match family.kind {
                Kind::Counter => describe_counter!(name, unit, help),
                Kind::Gauge => describe_gauge!(name, unit, help),
                Kind::Histogram => {
                    // A recorder keeps histograms from single values, and these are counted already.
                    for suffix in ["_bucket", "_sum", "_count"] {
                        describe_counter!(format!("{name}{suffix}"), Unit::Count, help);
                    }
                }
            }
        }
    }

    /// Sets the program's `metrics` recorder to these numbers. Call it with a fresh reading as often as the
    /// recorder is read; without a recorder it does nothing.
    ///
    /// Counters are set, not added to: one store per recorder, since two would overwrite each other. A histogram
    /// goes out as the counters that it has in Prometheus's format: `_bucket` by its bound `le`, `_sum` and
    /// `_count`.
    pub fn publish_metrics(&self) {
        for family in FAMILIES {
            for sample in (family.samples)(self) {
                let name = format!("{}{}", family.name, sample.suffix);
                match family.kind {
                    Kind::Counter | Kind::Histogram => {
                        counter!(name, labels(&sample)).absolute(sample.value.whole());
                    }
                    Kind::Gauge => gauge!(name, labels(&sample)).set(sample.value.float()),
                }
            }
        }
    }
}

fn labels(sample: &Sample) -> Vec<Label> {
    sample.label.map(|(name, value)| Label::from_static_parts(name, value)).into_iter().collect()
}

fn unit(name: &str) -> Unit {
    match name {
        name if name.ends_with("_seconds") => Unit::Seconds,
        name if name.ends_with("_bytes_total") => Unit::Bytes,
        _ => Unit::Count,
    }
}

impl Value {
    /// Counters are numbers of things.
    fn whole(self) -> u64 {
        match self {
            Self::Whole(value) | Self::Millis(value) => value,
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "the facade's gauges are floats; beyond 2^53 nobody counts"
    )]
    fn float(self) -> f64 {
        match self {
            Self::Whole(value) => value as f64,
            Self::Millis(ms) => ms as f64 / 1_000.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    use metrics::{
        Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString,
    };

    use super::*;

    /// Keeps what it is told, by the line that Prometheus would have for it.
    #[derive(Clone, Debug, Default)]
    struct Kept(Arc<Mutex<BTreeMap<String, String>>>);

    struct Cell(Kept, String);

    impl Kept {
        fn cell(&self, key: &Key) -> Arc<Cell> {
            let labels = key.labels().map(|label| format!("{{{}=\"{}\"}}", label.key(), label.value()));
            Arc::new(Cell(self.clone(), format!("{}{}", key.name(), labels.collect::<String>())))
        }

        fn keep(&self, name: &str, value: impl std::fmt::Display) {
            self.0.lock().unwrap().insert(name.to_owned(), value.to_string());
        }
    }

    impl CounterFn for Cell {
        fn increment(&self, _: u64) {
            panic!("counters are set: they are counted already");
        }

        fn absolute(&self, value: u64) {
            self.0.keep(&self.1, value);
        }
    }

    impl GaugeFn for Cell {
        fn increment(&self, _: f64) {
            panic!("gauges are set");
        }

        fn decrement(&self, _: f64) {
            panic!("gauges are set");
        }

        fn set(&self, value: f64) {
            self.0.keep(&self.1, value);
        }
    }

    impl Recorder for Kept {
        fn describe_counter(&self, key: KeyName, unit: Option<Unit>, help: SharedString) {
            self.keep(key.as_str(), format!("counter {unit:?} {help}"));
        }

        fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, help: SharedString) {
            self.keep(key.as_str(), format!("gauge {unit:?} {help}"));
        }

        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
            panic!("histograms go out as counters");
        }

        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(self.cell(key))
        }

        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(self.cell(key))
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            panic!("histograms go out as counters");
        }
    }

    fn told(tell: impl FnOnce()) -> BTreeMap<String, String> {
        let kept = Kept::default();
        metrics::with_local_recorder(&kept, tell);
        kept.0.lock().unwrap().clone()
    }

    #[test]
    fn a_recorder_is_set_to_the_same_series_as_the_page_for_prometheus() {
        let stats = Stats { won: 7, oldest_in_flight_ms: 1_500, groups_by_size: [2; 10], ..Stats::default() };
        let page = stats.to_prometheus();
        let lines =
            page.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
        let expected: BTreeMap<_, _> =
            lines.map(|(name, value)| (name.to_owned(), value.parse::<f64>().unwrap().to_string())).collect();
        // Set twice, it is set and not added to.
        assert_eq!(told(|| [(), ()].into_iter().for_each(|()| stats.publish_metrics())), expected);
        assert_eq!(expected["keyclaim_claims_total{answer=\"won\"}"], "7");
        assert_eq!(expected["keyclaim_oldest_in_flight_seconds"], "1.5");
    }

    #[test]
    fn every_series_is_described_with_its_unit() {
        let described = told(Stats::describe_metrics);
        let published = told(|| Stats::default().publish_metrics());
        let names = published.keys().filter_map(|name| name.split('{').next());
        names.for_each(|name| assert!(described.contains_key(name), "{name}"));
        let begins =
            |name: &str, with: &str| assert!(described[name].starts_with(with), "{}", described[name]);
        begins("keyclaim_oldest_in_flight_seconds", "gauge Some(Seconds) Age");
        begins("keyclaim_file_written_bytes_total", "counter Some(Bytes) Bytes");
        begins("keyclaim_claims_total", "counter Some(Count) Calls");
    }

    #[test]
    fn without_a_recorder_it_does_nothing() {
        Stats::describe_metrics();
        Stats::default().publish_metrics();
    }
}
