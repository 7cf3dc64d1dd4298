//! The rules of the house that no lint knows, held against the whole repository. What each rule finds is shown by
//! the tests beside it.

#[path = "tidy/rules.rs"]
mod rules;
#[path = "tidy/tree.rs"]
mod tree;

use std::collections::BTreeMap;

use rules::{
    adr_faults, foreign_places, impure, not_ascii, readme_faults, todos_without_issue, too_long, too_new,
    unfinished, unlinked_pages, unreasoned_allows, uses_crate,
};
use tree::{Source, ignored, metadata, reached_sources, sources, top};

/// Arbitrary: more than this and a newcomer gets lost. Most files are far below.
const SOURCE_LINES_MAX: usize = 700;
/// Arbitrary: what one reads before trying it out.
const README_LINES_MAX: usize = 150;
const CODE: [&str; 16] =
    ["c", "cc", "cpp", "css", "go", "h", "hpp", "html", "js", "mjs", "py", "pyi", "rs", "sh", "toml", "ts"];
/// Written by a package manager, which names its registry.
const LOCK_FILES: [&str; 6] =
    ["Cargo.lock", "go.sum", "package-lock.json", "poetry.lock", "uv.lock", "yarn.lock"];

#[test]
fn every_rust_file_is_part_of_a_target() {
    let sources = sources();
    let reached = reached_sources(&sources);
    let rust: Vec<_> = sources.iter().filter(|source| extension(source) == "rs").collect();
    assert!(rust.len() > 10, "the walk found next to nothing");
    none(
        rust.iter()
            .filter(|source| !reached.contains(&source.path))
            .map(|source| format!("{}: orphan", source.path)),
    );
}

#[test]
fn nothing_that_a_test_reads_is_left_out_of_a_clone() {
    none(ignored().iter().filter(|path| !is_built(path)).map(|path| format!("{path}: ignored by git")));
}

#[test]
fn sources_are_ascii() {
    none(sources().iter().filter(|source| is_code(source)).flat_map(not_ascii));
}

#[test]
fn decision_records_are_numbered_and_linked() {
    let sources = sources();
    let folder = "core/docs/adr/";
    let records: BTreeMap<&str, &Source> =
        sources.iter().filter_map(|source| Some((source.path.strip_prefix(folder)?, source))).collect();
    let index = records.get("README.md").expect("core/docs/adr/README.md is the index");
    none(adr_faults(&records.keys().copied().collect::<Vec<_>>(), &index.text).into_iter());
}

#[test]
fn every_page_of_the_docs_is_linked() {
    let sources = sources();
    let pages: Vec<&Source> = sources
        .iter()
        .filter(|source| source.path.starts_with("core/docs/") && !source.path.starts_with("core/docs/adr/"))
        .filter(|source| extension(source) == "md")
        .collect();
    none(unlinked_pages(&pages, &sources).into_iter());
}

#[test]
fn only_the_store_names_redb() {
    none(core_outside("core/src/store").iter().flat_map(|source| uses_crate(source, "redb")));
}

#[test]
fn only_the_codec_names_bincode() {
    none(core_outside("core/src/codec").iter().flat_map(|source| uses_crate(source, "bincode")));
}

#[test]
fn the_machine_is_pure() {
    let machine: Vec<_> =
        sources().into_iter().filter(|source| source.path.starts_with("core/src/machine")).collect();
    assert!(!machine.is_empty(), "core/src/machine is gone");
    none(machine.iter().flat_map(impure));
}

#[test]
fn the_repository_stands_alone() {
    let sources = sources();
    none(sources.iter().filter(|source| !is_lock_file(source)).flat_map(foreign_places));
}

#[test]
fn nothing_is_left_unfinished() {
    none(sources().iter().filter(|source| extension(source) == "rs").flat_map(unfinished));
}

#[test]
fn every_allowed_lint_has_a_reason() {
    let sources = sources();
    // The rules hold examples of what they find.
    let rust =
        sources.iter().filter(|source| extension(source) == "rs" && !source.path.ends_with("tidy/rules.rs"));
    none(rust.flat_map(unreasoned_allows));
}

#[test]
fn every_note_to_self_names_an_issue() {
    let sources = sources();
    none(sources.iter().filter(|source| is_code(source)).flat_map(todos_without_issue));
}

#[test]
fn no_source_is_too_long() {
    let sources = sources();
    // The header is generated, and the contract of the C ABI belongs on one page.
    let exempt = |source: &&Source| {
        source.path.split('/').any(|part| part == "tests" || part == "docs")
            || source.path.starts_with("include/")
    };
    let code = sources.iter().filter(|source| is_code(source) && !exempt(source));
    none(code.flat_map(|source| too_long(source, SOURCE_LINES_MAX)));
}

#[test]
fn the_readme_is_short_and_names_both_commands() {
    if let Some(readme) = sources().iter().find(|source| source.path == "README.md") {
        none(readme_faults(&readme.text, README_LINES_MAX).into_iter());
    }
}

#[test]
fn no_dependency_needs_a_newer_rust_than_we_promise() {
    let metadata =
        metadata(&top().join("Cargo.toml"), &["--locked", "--filter-platform", "x86_64-unknown-linux-gnu"]);
    let packages = metadata["packages"].as_array().expect("packages are a list");
    let versions: BTreeMap<&str, &str> = packages
        .iter()
        .filter_map(|package| Some((package["name"].as_str()?, package["rust_version"].as_str()?)))
        .collect();
    let ours = versions.get("keyclaim").expect("core has a rust-version");
    none(too_new(ours, versions.iter().map(|(name, version)| (*name, *version))).into_iter());
}

#[track_caller]
fn none(faults: impl Iterator<Item = String>) {
    let faults: Vec<String> = faults.collect();
    assert!(faults.is_empty(), "{} found:\n{}", faults.len(), faults.join("\n"));
}

fn core_outside(home: &str) -> Vec<Source> {
    let outside = |source: &Source| source.path.starts_with("core/src/") && !source.path.starts_with(home);
    sources().into_iter().filter(|source| extension(source) == "rs" && outside(source)).collect()
}

fn is_code(source: &Source) -> bool {
    CODE.contains(&extension(source)) || source.path == "Makefile" || source.path.starts_with(".ci/")
}

/// Whether a tool wrote this file and writes it again; anything else belongs in a clone.
fn is_built(path: &str) -> bool {
    let is_folder = |part: &str| {
        matches!(part, "target" | "node_modules" | "__pycache__" | ".venv" | "artifacts")
            || part.ends_with(".egg-info")
    };
    // The examples leave their stores where they are started: at the top.
    !path.contains('/')
        || path.split('/').any(is_folder)
        || [".o", ".profraw", ".DS_Store"].iter().any(|end| path.ends_with(end))
}

fn is_lock_file(source: &Source) -> bool {
    LOCK_FILES.contains(&source.path.rsplit('/').next().unwrap_or_default())
}

fn extension(source: &Source) -> &str {
    source
        .path
        .rsplit('/')
        .next()
        .and_then(|name| name.rsplit_once('.'))
        .map_or("", |(_, extension)| extension)
}
