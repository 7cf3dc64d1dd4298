//! A strict parser of Prometheus's text format, version 0.0.4: what a scraper might guess at is an error here.

use std::collections::BTreeSet;

/// One family with all its samples.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) name: String,
    pub(crate) help: String,
    pub(crate) kind: String,
    pub(crate) samples: Vec<Sample>,
}

/// One sample line.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) value: f64,
    /// The value, if it is a whole number.
    pub(crate) count: Option<u64>,
}

/// The families of a page, or the first thing wrong with it.
pub(crate) fn parse(page: &str) -> Result<Vec<Family>, String> {
    if !page.ends_with('\n') || page.contains('\r') {
        return Err("lines end with a line feed, the last one too".into());
    }
    let mut families: Vec<Family> = Vec::new();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        let help = line.strip_prefix("# HELP ").ok_or(format!("a family begins with HELP: {line}"))?;
        let (name, help) = help.split_once(' ').ok_or(format!("no help: {line}"))?;
        if !is_name(name, true) || families.iter().any(|family| family.name == name) {
            return Err(format!("a bad or second name: {line}"));
        }
        let line = lines.next().unwrap_or_default();
        let kind = line.strip_prefix(&format!("# TYPE {name} ")).ok_or(format!("TYPE follows: {line}"))?;
        let mut samples = Vec::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            samples.push(sample(line)?);
        }
        let family = Family { name: name.into(), help: help.into(), kind: kind.into(), samples };
        check(&family)?;
        families.push(family);
    }
    Ok(families)
}

fn sample(line: &str) -> Result<Sample, String> {
    let (left, value) = line.rsplit_once(' ').ok_or(format!("no value: {line}"))?;
    let is_number = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    if !value.bytes().all(is_number) || value.starts_with('.') || value.ends_with('.') {
        return Err(format!("not a plain number: {line}"));
    }
    let count = value.parse().ok();
    let value = value.parse().map_err(|_| format!("not a number: {line}"))?;
    let (name, labels) = match left.split_once('{') {
        None => (left, ""),
        Some((name, rest)) => (name, rest.strip_suffix('}').ok_or(format!("open labels: {line}"))?),
    };
    let labels = labels.split_terminator(',').map(|label| {
        let (name, rest) = label.split_once("=\"").ok_or(format!("a bad label: {line}"))?;
        let value = rest.strip_suffix('"').ok_or(format!("an open value: {line}"))?;
        // None of our values needs an escape.
        if !is_name(name, false) || value.is_empty() || value.contains(['"', '\\', ' ']) {
            return Err(format!("a bad label: {line}"));
        }
        Ok((name.to_owned(), value.to_owned()))
    });
    let labels = labels.collect::<Result<Vec<_>, String>>()?;
    if !is_name(name, true) {
        return Err(format!("a bad name: {line}"));
    }
    Ok(Sample { name: name.into(), labels, value, count })
}

fn check(family: &Family) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{}: {what}", family.name));
    let series: BTreeSet<_> = family.samples.iter().map(|sample| (&sample.name, &sample.labels)).collect();
    if series.len() != family.samples.len() || series.is_empty() {
        return wrong("no sample, or one twice");
    }
    let is_total = family.name.ends_with("_total");
    match family.kind.as_str() {
        "counter" if !is_total => wrong("a counter ends with _total"),
        "gauge" if is_total => wrong("only a counter ends with _total"),
        "counter" | "gauge" if family.samples.iter().any(|sample| sample.name != family.name) => {
            wrong("a sample of another name")
        }
        "counter" | "gauge" => Ok(()),
        "histogram" => check_histogram(family).map_err(|what| format!("{}: {what}", family.name)),
        _ => wrong("an unknown type"),
    }
}

/// Buckets from the smallest bound to all, each counting those before it too; then the sum and the count.
fn check_histogram(family: &Family) -> Result<(), &'static str> {
    let [buckets @ .., sum, count] = family.samples.as_slice() else { return Err("too short") };
    let named = |sample: &Sample, suffix| sample.name == format!("{}{suffix}", family.name);
    if !named(sum, "_sum") || !named(count, "_count") || !sum.labels.is_empty() || !count.labels.is_empty() {
        return Err("no sum or no count");
    }
    let mut so_far = (f64::NEG_INFINITY, 0.0);
    for bucket in buckets {
        let [(label, bound)] = bucket.labels.as_slice() else { return Err("a bucket has its bound") };
        let bound = bound.replace("+Inf", "inf").parse().map_err(|_| "a bound is a number")?;
        if label != "le" || !named(bucket, "_bucket") || bound <= so_far.0 || bucket.value < so_far.1 {
            return Err("buckets out of order");
        }
        so_far = (bound, bucket.value);
    }
    if so_far == (f64::INFINITY, count.value) { Ok(()) } else { Err("the last bucket is the count") }
}

fn is_name(name: &str, with_colon: bool) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || (with_colon && c == ':');
    name.chars().all(fits) && name.starts_with(|c: char| !c.is_ascii_digit())
}

#[test]
fn the_parser_takes_what_the_format_allows_and_nothing_else() {
    let head = "# HELP a_total A.\n# TYPE a_total counter\n";
    let histogram = "# HELP h H.\n# TYPE h histogram\n";
    let good = [
        format!("{head}a_total 1\n"),
        format!("{head}a_total{{b=\"c\"}} 1.5\na_total{{b=\"d\"}} 2\n"),
        format!("{histogram}h_bucket{{le=\"1\"}} 1\nh_bucket{{le=\"+Inf\"}} 2\nh_sum 9\nh_count 2\n"),
    ];
    for page in good {
        parse(&page).expect(&page);
    }
    let bad = [
        format!("{head}a_total 1"),
        format!("{head}a_total 1\r\n"),
        format!("{head}\na_total 1\n"),
        head.to_owned(),
        "a_total 1\n".into(),
        "# HELP a_total A.\na_total 1\n".into(),
        format!("{head}a_total 1\n{head}a_total 1\n"),
        format!("{head}a_total 1\na_total 2\n"),
        format!("{head}b_total 1\n"),
        format!("{head}a_total -1\n"),
        format!("{head}a_total NaN\n"),
        format!("{head}a_total 1 1700000000000\n"),
        format!("{head}a_total{{b=\"c\" 1\n"),
        format!("{head}a_total{{b=c}} 1\n"),
        format!("{head}a_total{{b=\"c\\\"d\"}} 1\n"),
        format!("{head}a_total{{2=\"c\"}} 1\n"),
        "# HELP a A.\n# TYPE a counter\na 1\n".into(),
        "# HELP a_total A.\n# TYPE a_total gauge\na_total 1\n".into(),
        "# HELP a-b A.\n# TYPE a-b gauge\na-b 1\n".into(),
        "# HELP a A.\n# TYPE a number\na 1\n".into(),
        format!("{histogram}h_bucket{{le=\"+Inf\"}} 2\nh_sum 9\n"),
        format!("{histogram}h_bucket{{le=\"+Inf\"}} 2\nh_sum 9\nh_count 3\n"),
        format!("{histogram}h_bucket{{le=\"1\"}} 3\nh_bucket{{le=\"+Inf\"}} 2\nh_sum 9\nh_count 2\n"),
        format!("{histogram}h_bucket{{le=\"1\"}} 2\nh_sum 9\nh_count 2\n"),
    ];
    for page in bad {
        assert!(parse(&page).is_err(), "taken: {page}");
    }
}
