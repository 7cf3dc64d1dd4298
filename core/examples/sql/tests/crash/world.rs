//! A store and a database, which outlive the processes that use them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use keyclaim::machine::StepResult;
use keyclaim::{Call, Id, Key, Scope, Token};
use keyclaim_example_sql::order::{Order, Orders};
use keyclaim_example_sql::{Failure, postgres, sqlite};
use tempfile::TempDir;

/// The kinds of database that every scenario runs on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Postgres,
    Sqlite,
}

/// All of them.
pub(crate) const KINDS: [Kind; 2] = [Kind::Postgres, Kind::Sqlite];

/// A table of the plants: the same in both databases.
const PLANTED: &str = "CREATE TABLE planted_key (downstream_key text PRIMARY KEY, number text); \
    CREATE TABLE planted_bare (downstream_key text, number text)";

pub(crate) struct World {
    pub(crate) kind: Kind,
    pub(crate) place: String,
    folder: TempDir,
}

/// A connection to either.
pub(crate) enum Db {
    Postgres(Box<::postgres::Client>),
    Sqlite(rusqlite::Connection),
}

impl World {
    /// A new store, and a new database with empty tables.
    pub(crate) fn new(kind: Kind) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let folder = tempfile::tempdir().expect("a folder");
        let place = match kind {
            Kind::Sqlite => folder.path().join("orders.db").to_str().expect("a plain path").to_owned(),
            Kind::Postgres => {
                let info = crate::server::conninfo();
                let name = format!("world_{}", COUNT.fetch_add(1, Ordering::Relaxed));
                let mut client = ::postgres::Client::connect(&info, ::postgres::NoTls).expect("it runs");
                client.batch_execute(&format!("CREATE SCHEMA {name}")).expect("healthy");
                format!("{info} application_name={name} options='-c search_path={name}'")
            }
        };
        let mut world = Self { kind, place, folder };
        world.db().batch(PLANTED);
        world
    }

    pub(crate) fn db(&mut self) -> Db {
        Db::connect(self.kind, &self.place)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.folder.path().join("orders.keyclaim")
    }

    /// The numbers of the orders that this request has: one, if all is well.
    pub(crate) fn numbers(&mut self, request: &str) -> Vec<String> {
        let sql = format!("SELECT CAST(id AS TEXT) FROM orders WHERE request = '{request}' ORDER BY id");
        self.db().texts(&sql)
    }

    pub(crate) fn order_count(&mut self) -> usize {
        self.db().texts("SELECT CAST(id AS TEXT) FROM orders").len()
    }
}

impl Db {
    pub(crate) fn connect(kind: Kind, place: &str) -> Self {
        match kind {
            Kind::Sqlite => Self::Sqlite(sqlite::open(Path::new(place)).expect("a database")),
            Kind::Postgres => {
                let mut client = ::postgres::Client::connect(place, ::postgres::NoTls).expect("it runs");
                client
                    .batch_execute(&format!("SET client_min_messages = warning; {}", postgres::SCHEMA))
                    .expect("healthy");
                Self::Postgres(Box::new(client))
            }
        }
    }

    pub(crate) fn batch(&mut self, sql: &str) {
        match self {
            Self::Postgres(client) => client.batch_execute(sql).expect("healthy"),
            Self::Sqlite(conn) => conn.execute_batch(sql).expect("healthy"),
        }
    }

    /// The first column of each row, which is text.
    pub(crate) fn texts(&mut self, sql: &str) -> Vec<String> {
        match self {
            Self::Postgres(client) => {
                client.query(sql, &[]).expect("healthy").iter().map(|row| row.get(0)).collect()
            }
            Self::Sqlite(conn) => {
                let mut statement = conn.prepare(sql).expect("valid");
                let rows = statement.query_map((), |row| row.get(0)).expect("healthy");
                rows.collect::<Result<_, _>>().expect("healthy")
            }
        }
    }

    /// `place` of the example, with something that happens between the order's row and the commit.
    pub(crate) fn place(
        &mut self,
        call: &Call,
        token: Token,
        order: &Order,
        inside: impl FnOnce(),
    ) -> Result<StepResult, Failure> {
        self.place_and_say(call, token, order, |number| {
            inside();
            StepResult::Done(number.as_bytes().into())
        })
    }

    /// The order's row is written, and this is said of it.
    pub(crate) fn place_and_say(
        &mut self,
        call: &Call,
        token: Token,
        order: &Order,
        say: impl FnOnce(String) -> StepResult,
    ) -> Result<StepResult, Failure> {
        let insert = insert(order);
        match self {
            Self::Postgres(client) => {
                postgres::once(client, call, token, |txn| Ok(say(txn.query_one(&insert, &[])?.try_get(0)?)))
            }
            Self::Sqlite(conn) => {
                sqlite::once(conn, call, token, |txn| Ok(say(txn.query_row(&insert, (), |row| row.get(0))?)))
            }
        }
    }

    pub(crate) fn ask(&mut self, call: &Call, token: Token) -> Result<StepResult, Failure> {
        match self {
            Self::Postgres(client) => Orders::ask(client.as_mut(), call, token),
            Self::Sqlite(conn) => Orders::ask(conn, call, token),
        }
    }

    /// What a person is told, who saw this token.
    pub(crate) fn close(&mut self, key: &str, seen: Token, limit: Duration) -> Result<StepResult, Failure> {
        match self {
            Self::Postgres(client) => postgres::close(client, key, seen, limit),
            Self::Sqlite(conn) => sqlite::close(conn, key, seen, limit),
        }
    }
}

/// Both databases read it alike.
pub(crate) fn insert(order: &Order) -> String {
    let (request, item) = (order.request(), &order.item);
    format!("INSERT INTO orders (request, item) VALUES ('{request}', '{item}') RETURNING CAST(id AS TEXT)")
}

pub(crate) fn order(request: &str) -> Order {
    let key = Key::new(request).expect("valid");
    Order { id: Id::new(Scope::new("account 7").expect("valid"), key), item: "2 apples".into() }
}
