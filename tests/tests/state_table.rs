//! Every state x every command x before, at and after every deadline, against a table written by
//! hand from the rules in core/docs (not from the code).
//!
//! A row of `state_table/table.txt` is `states | commands | answer`, where the answer may change
//! at a deadline: `InFlight | lease: Takeover ..`. A name may end in `*`. What follows an answer
//! is what is written: `~field ..` the record with these fields changed, `new` a new record, `-` the
//! record is deleted; nothing means that nothing is written. The values that are written are checked in
//! `state_table/describe.rs`. Every combination must be covered by exactly one row.

#[path = "state_table/commands.rs"]
mod commands;
#[path = "state_table/describe.rs"]
mod describe;
#[path = "state_table/states.rs"]
mod states;

use std::collections::BTreeMap;

use keyclaim::machine::{Facts, decide};
use keyclaim::{Millis, Token};

use commands::Asked;
use describe::describe;
use states::Situation;

const TABLE: &str = include_str!("state_table/table.txt");

/// What a row says: an answer, and other answers from named deadlines on.
type Row = Vec<(String, String)>;

#[test]
fn every_state_answers_every_command_as_the_table_says() {
    let (states, commands) = (states::all(), commands::all());
    let table = table(&states, &commands);
    let (mut failures, mut checked) = (Vec::new(), 0);
    for state in &states {
        for command in &commands {
            let row = &table[&(state.name, command.name.clone())];
            for now_ms in state.instants() {
                checked += 1;
                let expected = expected_at(row, state, now_ms);
                let said = answer(state, command, now_ms);
                if said != expected {
                    let (name, at) = (&command.name, state.told(now_ms));
                    failures.push(format!("{} | {name} at {at}: `{said}`, not `{expected}`", state.name));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} of {checked} differ:\n{}", failures.len(), failures.join("\n"));
    assert!(checked > 15_000, "only {checked} combinations were checked");
}

#[test]
fn the_table_covers_the_full_cross_product_once() {
    let (states, commands) = (states::all(), commands::all());
    assert_eq!(table(&states, &commands).len(), states.len() * commands.len());
}

#[test]
fn every_deadline_of_the_rules_is_met_before_at_and_after() {
    let met: BTreeMap<&str, usize> = states::all().iter().flat_map(|state| state.deadlines.clone()).fold(
        BTreeMap::new(),
        |mut met, (name, _)| {
            *met.entry(name).or_default() += 1;
            met
        },
    );
    assert_eq!(
        met.keys().copied().collect::<Vec<_>>(),
        ["horizon", "lease", "limit", "pause", "settle", "window"]
    );
    for state in states::all() {
        for (_, at) in &state.deadlines {
            let around = [at - 1, *at, at + 1].into_iter().filter(|at| *at >= state.from_ms);
            assert!(around.into_iter().all(|at| state.instants().contains(&at)), "{}", state.name);
        }
    }
}

fn answer(state: &Situation, command: &Asked, now_ms: u64) -> String {
    let facts = Facts {
        now_ms: Millis(now_ms),
        next_token: Token(states::NEXT),
        owner_lives_here: command.owner_here,
    };
    let asked = command.about(state.record.as_ref());
    describe(state.record.as_ref(), &asked, facts, &decide(state.record.as_ref(), &asked, facts))
}

fn expected_at(row: &Row, state: &Situation, now_ms: u64) -> String {
    let passed = |name: &str| name.is_empty() || now_ms >= state.deadline(name);
    row.iter().rfind(|(name, _)| passed(name)).expect("the first answer has no deadline").1.clone()
}

fn table(states: &[Situation], commands: &[Asked]) -> BTreeMap<(&'static str, String), Row> {
    let mut table = BTreeMap::new();
    let mut pointers = Vec::new();
    let state_names: Vec<String> = states.iter().map(|state| state.name.to_owned()).collect();
    let command_names: Vec<String> = commands.iter().map(|command| command.name.clone()).collect();
    for line in TABLE.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut cells = line.split('|').map(str::trim);
        let (named_states, named_commands) =
            (cells.next().expect("states"), cells.next().unwrap_or_else(|| panic!("no commands: {line}")));
        let row: Row = cells.map(segment).collect();
        assert!(!row.is_empty(), "no answer: {line}");
        let states = select(&state_names, named_states);
        for state in states {
            let state = states::name(&state);
            for command in select(&command_names, named_commands) {
                if row[0].1 == "as own" {
                    pointers.push((state, command.clone()));
                }
                let before = table.insert((state, command.clone()), row.clone());
                assert!(before.is_none(), "`{state} | {command}` has two rows, the second is: {line}");
            }
        }
    }
    for (state, command) in pointers {
        let act = command.split_once('-').expect("an owner's command").1;
        let own = table[&(state, format!("own-{act}"))].clone();
        table.insert((state, command), own);
    }
    for state in states {
        for command in commands {
            let there = table.contains_key(&(state.name, command.name.clone()));
            assert!(there, "no row for `{} | {}`", state.name, command.name);
        }
    }
    table
}

fn segment(cell: &str) -> (String, String) {
    match cell.split_once(':') {
        Some((deadline, answer)) => (deadline.trim().to_owned(), answer.trim().to_owned()),
        None => (String::new(), cell.to_owned()),
    }
}

/// The names that the patterns select; each pattern must select something.
fn select(names: &[String], patterns: &str) -> Vec<String> {
    let mut selected = Vec::new();
    for pattern in patterns.split_whitespace() {
        let fits = |name: &String| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == pattern,
        };
        let found: Vec<String> = names.iter().filter(|name| fits(name)).cloned().collect();
        assert!(!found.is_empty(), "`{pattern}` names nothing");
        selected.extend(found);
    }
    selected
}
