//! The rules, each a plain function over text: what it returns is what is wrong, one line each.

use std::path::{Path, PathBuf};

use crate::tree::Source;

/// The files that the `mod` items and `include!`s of a source name: each place where one may lie.
///
/// A `mod` inside an inline module is looked for in that module's folder, one level deep; deeper ones count as
/// orphans.
pub(crate) fn modules_named(text: &str, file: &Path, is_root: bool) -> Vec<PathBuf> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let stem = file.file_stem().unwrap_or_default();
    let inner = if is_root || stem == "mod" { folder.to_path_buf() } else { folder.join(stem) };
    let mut named = Vec::new();
    let mut path_attribute = None;
    let mut inline = PathBuf::new();
    for line in text.lines().map(code_of) {
        if line == "}" {
            inline = PathBuf::new();
        }
        let is_outermost = !line.starts_with(' ');
        let line = line.trim();
        if let Some(path) = between(line, "#[path = \"", "\"]") {
            path_attribute = Some(folder.join(path));
        }
        if let Some(path) = between(line, "include!(\"", "\")") {
            named.push(folder.join(path));
        }
        let item = line.rsplit("] ").next().unwrap_or(line);
        let item = match item.strip_prefix("pub") {
            Some(rest) if rest.starts_with('(') => rest.split_once(") ").map_or(rest, |(_, item)| item),
            Some(rest) => rest.trim_start(),
            None => item,
        };
        let Some(name) = item.strip_prefix("mod ") else { continue };
        if let Some(name) = name.strip_suffix(" {").filter(|_| is_outermost) {
            inline = PathBuf::from(name);
        }
        let Some(name) = name.strip_suffix(';') else { continue };
        if let Some(path) = path_attribute.take() {
            named.push(path);
            continue;
        }
        let name = name.trim_start_matches("r#");
        let inner = inner.join(&inline);
        named.extend([inner.join(format!("{name}.rs")), inner.join(name).join("mod.rs")]);
    }
    named
}

pub(crate) fn not_ascii(source: &Source) -> Vec<String> {
    each_line(source, |line| {
        line.chars().find(|c| !c.is_ascii()).map(|c| format!("U+{:04X} is not ASCII", u32::from(c)))
    })
}

/// Code (not comments) outside `home` that uses the crate `name`.
pub(crate) fn uses_crate(source: &Source, name: &str) -> Vec<String> {
    let path = format!("{name}::");
    statements(&source.text, |code| {
        let by_path = find_word(code, name).any(|at| code[at..].starts_with(&path));
        let by_use = is_use(code) && find_word(code, name).next().is_some();
        let by_extern = code.starts_with("extern crate ") && find_word(code, name).next().is_some();
        by_path || by_use || by_extern
    })
    .into_iter()
    .map(|line| format!("{}:{line}: names {name}", source.path))
    .collect()
}

/// What would make the machine depend on the engine, on time or on dispatch.
pub(crate) fn impure(source: &Source) -> Vec<String> {
    let mut found = uses_crate(source, "store");
    for word in ["dyn", "async", "await", "SystemTime", "Instant"] {
        found.extend(each_line(source, |line| {
            find_word(code_of(line), word).next().map(|_| format!("the machine has no {word}"))
        }));
    }
    found
}

/// Places that only exist where this was written, and registries that a mirror may stand in for.
pub(crate) fn foreign_places(source: &Source) -> Vec<String> {
    // Each in two parts, or this file would break its own rule.
    let anywhere = [
        ["../", "shared"],
        ["crates", ".io"],
        ["pypi", ".org"],
        ["pythonhosted", ".org"],
        ["npmjs", ".org"],
        ["npmjs", ".com"],
        ["proxy.golang", ".org"],
    ]
    .map(|parts| parts.concat());
    let at_the_start_of_a_path =
        [["/wo", "rk/"], [".lib", "rary/"], ["/tmp/", "wt/"]].map(|parts| parts.concat());
    each_line(source, |line| {
        let starts_path =
            |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.');
        let found = anywhere.iter().find(|place| line.contains(place.as_str()));
        let found = found.or_else(|| {
            at_the_start_of_a_path.iter().find(|place| {
                let whole = place.trim_end_matches('/');
                line.match_indices(whole).any(|(at, _)| {
                    let rest = &line[at + whole.len()..];
                    starts_path(at)
                        && !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '-')
                })
            })
        });
        found.map(|place| format!("refers to {place}"))
    })
}

/// Tests that do not run and code that is not there.
pub(crate) fn unfinished(source: &Source) -> Vec<String> {
    let words = [["#[ign", "ore"], ["to", "do!("], ["unimpl", "emented!("]].map(|parts| parts.concat());
    each_line(source, |line| {
        let code = code_of(line);
        words.iter().find(|word| code.contains(word.as_str())).map(|word| format!("{word} is not finished"))
    })
}

/// `allow` and `expect` attributes without a reason.
pub(crate) fn unreasoned_allows(source: &Source) -> Vec<String> {
    let code = source.text.lines().map(code_of).collect::<Vec<_>>().join("\n");
    let mut found = Vec::new();
    for start in ["#[", "#!["] {
        for (at, _) in code.match_indices(start) {
            let attribute = code[at..].split_once(")]").map_or(&code[at..], |(attribute, _)| attribute);
            let name = attribute[start.len()..].trim_start();
            let opens = ["allow(", "expect("].iter().any(|name| {
                attribute.contains(&format!(" {name}")) && attribute[start.len()..].starts_with("cfg_attr(")
            });
            let is_lint = name.starts_with("allow(") || name.starts_with("expect(") || opens;
            if is_lint && !attribute.contains("reason =") {
                let line = code[..at].matches('\n').count() + 1;
                found.push(format!("{}:{line}: says no `reason =`", source.path));
            }
        }
    }
    found
}

/// Notes to self that name no issue, as in `TODO(#12)`.
pub(crate) fn todos_without_issue(source: &Source) -> Vec<String> {
    let words = [["TO", "DO"], ["FIX", "ME"], ["X", "XX"]].map(|parts| parts.concat());
    each_line(source, |line| {
        let word = words.iter().find(|word| find_word(line, word).next().is_some())?;
        let names_issue =
            line.match_indices('#').any(|(at, _)| line[at + 1..].starts_with(|c: char| c.is_ascii_digit()));
        (!names_issue).then(|| format!("{word} names no issue"))
    })
}

pub(crate) fn too_long(source: &Source, lines_max: usize) -> Vec<String> {
    let lines = source.text.lines().count();
    if lines <= lines_max {
        return Vec::new();
    }
    vec![format!("{}: {lines} lines, more than {lines_max}: split it", source.path)]
}

/// The decision records: named `NNNN-words.md`, numbered without a gap, each linked from the index.
pub(crate) fn adr_faults(names: &[&str], index: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut sorted: Vec<&str> = names.iter().copied().filter(|name| *name != "README.md").collect();
    sorted.sort_unstable();
    for (name, number) in sorted.iter().zip(1..) {
        let expected = format!("{number:04}-");
        let words = name.strip_prefix(expected.as_str()).and_then(|rest| rest.strip_suffix(".md"));
        let well_named = words.is_some_and(|words| {
            !words.is_empty()
                && words.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        });
        if !well_named {
            found.push(format!("{name}: expected {expected}<words>.md here"));
        }
        if !index.contains(&format!("]({name})")) {
            found.push(format!("{name}: not linked from the index"));
        }
    }
    found
}

/// The pages that no other file names.
pub(crate) fn unlinked_pages(pages: &[&Source], all: &[Source]) -> Vec<String> {
    let named = |page: &Source| {
        let name = page.path.rsplit('/').next().unwrap_or(&page.path);
        all.iter().any(|other| other.path != page.path && find_word(&other.text, name).next().is_some())
    };
    pages
        .iter()
        .filter(|page| !named(page))
        .map(|page| format!("{}: linked from nowhere", page.path))
        .collect()
}

pub(crate) fn readme_faults(readme: &str, lines_max: usize) -> Vec<String> {
    let mut found = Vec::new();
    let lines = readme.lines().count();
    if lines > lines_max {
        found.push(format!("README.md: {lines} lines, more than {lines_max}"));
    }
    for command in ["make run", "make test"] {
        if !readme.contains(command) {
            found.push(format!("README.md: does not name `{command}`"));
        }
    }
    found
}

/// The packages that need a newer Rust than ours promises.
pub(crate) fn too_new<'a>(ours: &str, packages: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let parts =
        |version: &str| -> Vec<u32> { version.split('.').map(|part| part.parse().unwrap_or(0)).collect() };
    packages
        .filter(|(_, theirs)| parts(theirs) > [parts(ours), vec![0; 3]].concat())
        .map(|(name, theirs)| format!("{name} needs Rust {theirs}, rust-version promises {ours}"))
        .collect()
}

fn each_line(source: &Source, fault: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let lines = source.text.lines().zip(1..);
    lines.filter_map(|(line, number)| Some(format!("{}:{number}: {}", source.path, fault(line)?))).collect()
}

/// The first lines of the statements that `is_bad`; a `use` over several lines is one statement.
fn statements(text: &str, is_bad: impl Fn(&str) -> bool) -> Vec<usize> {
    let mut found = Vec::new();
    let mut open_use: Option<(usize, String)> = None;
    for (line, number) in text.lines().map(code_of).zip(1..) {
        let line = line.trim();
        let (start, statement) = match open_use.take() {
            Some((start, so_far)) => (start, format!("{so_far} {line}")),
            None => (number, line.to_owned()),
        };
        if is_use(&statement) && !statement.contains(';') {
            open_use = Some((start, statement));
        } else if is_bad(&statement) {
            found.push(start);
        }
    }
    found
}

fn is_use(code: &str) -> bool {
    code.starts_with("use ") || (code.starts_with("pub") && code.contains(" use "))
}

/// A line without its comment. `//` after a colon is taken for part of an address.
fn code_of(line: &str) -> &str {
    let comment = line.match_indices("//").find(|(at, _)| !line[..*at].ends_with(':'));
    comment.map_or(line, |(at, _)| &line[..at])
}

fn find_word<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |at| !text[..*at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part))
}

fn between<'a>(line: &'a str, before: &str, after: &str) -> Option<&'a str> {
    line.split_once(before)?.1.split_once(after).map(|(found, _)| found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rust(text: &str) -> Source {
        Source { path: "core/src/x.rs".to_owned(), text: text.to_owned() }
    }

    /// The rule finds each of the bad texts and none of the good ones.
    fn tells_apart(rule: impl Fn(&Source) -> Vec<String>, bad: &[&str], good: &[&str]) {
        for text in bad {
            assert_eq!(rule(&rust(text)).len(), 1, "not found once in: {text}");
        }
        for text in good {
            assert_eq!(rule(&rust(text)), Vec::<String>::new(), "found in: {text}");
        }
    }

    #[test]
    fn modules_are_looked_for_where_rust_looks() {
        let named = |text: &str, file: &str, is_root| -> Vec<String> {
            let paths = modules_named(text, Path::new(file), is_root);
            paths.iter().map(|path| path.to_string_lossy().into_owned()).collect()
        };
        assert_eq!(named("pub(crate) mod a;", "src/lib.rs", true), ["src/a.rs", "src/a/mod.rs"]);
        assert_eq!(named("#[cfg(unix)] mod a;", "src/b.rs", false), ["src/b/a.rs", "src/b/a/mod.rs"]);
        assert_eq!(named("pub mod r#a;", "src/b/mod.rs", false), ["src/b/a.rs", "src/b/a/mod.rs"]);
        assert_eq!(named("#[path = \"c/d.rs\"]\nmod a;", "t/tidy.rs", true), ["t/c/d.rs"]);
        assert_eq!(named("include!(\"e.rs\");", "t/tidy.rs", true), ["t/e.rs"]);
        let inline = "mod t {\n    pub mod a;\n}\nmod b;";
        let inside = ["t/t/a.rs", "t/t/a/mod.rs", "t/b.rs", "t/b/mod.rs"];
        assert_eq!(named(inline, "t/t.rs", true), inside);
        assert!(named("// mod a;\nmod a { }\nlet module;", "src/lib.rs", true).is_empty());
    }

    #[test]
    fn a_letter_outside_ascii_is_found() {
        tells_apart(not_ascii, &["// a \u{2014} b", "let \u{e9} = 1;"], &["// a - b"]);
    }

    #[test]
    fn a_crate_is_found_by_path_and_by_use_but_not_in_comments_and_other_words() {
        tells_apart(
            |source| uses_crate(source, "redb"),
            &[
                "use redb::Database;",
                "pub(crate) use redb as engine;",
                "use {\n  redb::Table,\n};",
                "let x = redb::Y;",
            ],
            &["// redb::Y is wrapped", "/// As `redb::Y`.", "let redb_version = 4;", "other_redb::x()"],
        );
    }

    #[test]
    fn a_machine_with_time_dispatch_or_an_engine_is_found() {
        tells_apart(
            impure,
            &[
                "use crate::store::Tables;",
                "use crate::{\n    limits,\n    store,\n};",
                "crate::store::open()",
                "fn f(rows: &dyn Rows) {}",
                "async fn f() {}",
                "let now = SystemTime::now();",
                "fn f(now: Instant) {}",
            ],
            &[
                "store: StoreId,",
                "/// Instant and dyn in words.",
                "let instant = now;",
                "use crate::token::StoreId;",
            ],
        );
    }

    #[test]
    fn places_of_the_writer_and_registries_are_found() {
        let shared = ["see ../", "shared/x"].concat();
        let work = ["cd /wo", "rk/main"].concat();
        let bare = ["`/wo", "rk`"].concat();
        let library = ["cat .lib", "rary/x"].concat();
        let registry = ["https://crates", ".io/x"].concat();
        tells_apart(
            foreign_places,
            &[&shared, &work, &bare, &library, &registry],
            &[
                ".github/workflows/x",
                "https://a.example/network/x",
                "home/work/x",
                concat!("self.", "library()"),
                "/workers/x",
            ],
        );
    }

    #[test]
    fn what_is_not_finished_is_found() {
        let ignored = ["#[ign", "ore = \"slow\"]"].concat();
        let todo = ["to", "do!()"].concat();
        let stub = ["unimpl", "emented!()"].concat();
        tells_apart(unfinished, &[&ignored, &todo, &stub], &["let todo = 1;", "#[test]"]);
    }

    #[test]
    fn an_allow_without_a_reason_is_found() {
        tells_apart(
            unreasoned_allows,
            &[
                "#[allow(dead_code)]",
                "#![allow(clippy::x)]\n#[doc(reason = 1)]",
                "#[expect(clippy::x)]",
                "#[cfg_attr(test, allow(dead_code))]",
            ],
            &[
                "#[allow(dead_code, reason = \"the other build uses it\")]",
                "#[expect(\n    clippy::x,\n    reason = \"because\",\n)]",
                "x.expect(\"it holds\")",
                "#[derive(Debug)]",
            ],
        );
    }

    #[test]
    fn a_note_without_an_issue_is_found() {
        let bare = ["// TO", "DO: later"].concat();
        let named = ["// TO", "DO(#12): later"].concat();
        tells_apart(todos_without_issue, &[&bare], &[&named, "let todos = 1;"]);
    }

    #[test]
    fn a_long_file_is_found() {
        tells_apart(|source| too_long(source, 2), &["a\nb\nc"], &["a\nb\n"]);
    }

    #[test]
    fn decision_records_out_of_line_are_found() {
        let index = "[a](0001-a.md) [b](0002-b.md)";
        assert!(adr_faults(&["README.md", "0002-b.md", "0001-a.md"], index).is_empty());
        assert_eq!(adr_faults(&["0001-a.md", "0003-c.md"], "[a](0001-a.md) [c](0003-c.md)").len(), 1);
        assert_eq!(adr_faults(&["0001-a.md", "0001-b.md"], "[a](0001-a.md) [b](0001-b.md)").len(), 1);
        assert_eq!(adr_faults(&["0001-a.md", "0002-c.md"], index).len(), 1);
        assert_eq!(adr_faults(&["0001 A.md"], "[a](0001 A.md)").len(), 1);
    }

    #[test]
    fn a_page_that_nobody_names_is_found() {
        let page = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
        let all = [page("docs/a.md", "a.md is me"), page("docs/b.md", "[a](a.md)")];
        assert_eq!(unlinked_pages(&[&all[0]], &all), Vec::<String>::new());
        assert_eq!(unlinked_pages(&[&all[1]], &all), ["docs/b.md: linked from nowhere"]);
    }

    #[test]
    fn a_readme_that_is_long_or_hides_the_commands_is_found() {
        assert!(readme_faults("make run\nmake test\n", 2).is_empty());
        assert_eq!(readme_faults("make run\nmake test\nmore\n", 2).len(), 1);
        assert_eq!(readme_faults("make test\n", 2).len(), 1);
    }

    #[test]
    fn a_dependency_that_needs_a_newer_rust_is_found() {
        let ask = |theirs| too_new("1.95", [("x", theirs)].into_iter()).len();
        assert_eq!(
            [ask("1.95"), ask("1.95.0"), ask("1.56"), ask("1.95.1"), ask("1.96"), ask("2.0")],
            [0, 0, 0, 1, 1, 1]
        );
    }
}
