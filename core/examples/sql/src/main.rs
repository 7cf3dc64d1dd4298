//! Places an order in SQLite or PostgreSQL. Run it twice with the same key: the order is placed once.
//!
//! ```text
//! cargo run -- sqlite orders.db key-1 "2 apples"
//! cargo run -- postgres "host=/var/run/postgresql user=me dbname=shop" key-1 "2 apples"
//! ```

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use keyclaim::{Abandoned, Id, Key, Options, Scope, Store};
use keyclaim_example_sql::order::{InDoubt, Order, Orders, Steps, answer};
use keyclaim_example_sql::{postgres, sqlite};

/// Arbitrary: far longer than the transaction, and no longer than a client waits.
const LIMIT: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let told = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [kind @ ("sqlite" | "postgres"), place, key, item] => run(kind, place, key, item),
        _ => Err("usage: sqlite FILE KEY ITEM | postgres CONNECTION KEY ITEM".into()),
    };
    match told {
        Ok(number) => println!("order {number}"),
        Err(error) => {
            eprintln!("no order: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn run(kind: &str, place: &str, key: &str, item: &str) -> Result<String, Box<dyn std::error::Error>> {
    let mut orders: Box<dyn Orders> = if kind == "sqlite" {
        Box::new(sqlite::open(Path::new(place))?)
    } else {
        let mut client = ::postgres::Client::connect(place, ::postgres::NoTls)?;
        client.batch_execute(postgres::SCHEMA)?;
        Box::new(client)
    };
    // What died before its step was begun had written nothing: it may simply run again.
    let store = Store::open("orders.keyclaim", Options::new(Abandoned::Rerun))?;
    // The scope is who asks: in a service the authenticated account, never what a client sends.
    let order = Order { id: Id::new(Scope::new("account 7")?, Key::new(key)?), item: item.into() };
    let steps = Steps { limit: LIMIT, in_doubt: InDoubt::Ask };
    let number = answer(&store, orders.as_mut(), &order, steps)?;
    store.close()?;
    Ok(String::from_utf8(number)?)
}
