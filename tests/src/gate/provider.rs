//! A provider that lives in a process of its own: it books what it is asked to, whatever the worker knows.
//!
//! Its ledger is a file of lines, one for each booking, that anyone can count. By itself it knows no
//! idempotency; its manners say what it can.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use super::{Failure, say};
use crate::seeded::Draws;

/// What a provider can do for whoever has lost an answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manners {
    /// A repeated downstream key is answered with what was booked the first time.
    pub collapses: bool,
    /// Once it has seen a token for a reference, an older one is refused.
    pub fences: bool,
    /// Up to this long, in milliseconds, passes before a call is booked, and again before it is answered.
    pub dawdles_ms: u64,
}

/// One booking.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Row {
    /// The provider's name of it.
    pub name: String,
    /// What it is for.
    pub reference: String,
    /// The key it came with.
    pub downstream_key: String,
    /// The token of the attempt that asked for it.
    pub token: u64,
}

struct Provider {
    manners: Manners,
    book: Mutex<Book>,
}

/// Everything in here is decided under one lock, as a provider's database would.
struct Book {
    file: File,
    rows: Vec<Row>,
    newest: HashMap<String, u64>,
    halts: HashMap<String, Halt>,
    draws: Draws,
}

/// The next call for a reference goes no further than this.
#[derive(Clone)]
enum Halt {
    /// Not booked until it is let go.
    Unbooked(Arc<Notify>),
    /// Booked, and never answered.
    Unanswered,
}

impl Manners {
    /// These manners as a provider's arguments, after the path of its ledger; the seed is of its dawdling.
    pub fn arguments(self, seed: u64) -> [String; 4] {
        let Self { collapses, fences, dawdles_ms } = self;
        [collapses.to_string(), fences.to_string(), dawdles_ms.to_string(), seed.to_string()]
    }
}

/// The bookings in a ledger, oldest first.
///
/// # Errors
/// If it cannot be read.
pub fn rows(ledger: &Path) -> io::Result<Vec<Row>> {
    let text = std::fs::read_to_string(ledger)?;
    Ok(text.lines().filter_map(Row::parse).collect())
}

/// Serves until stdin ends. Its lines: `halt <reference> unbooked|unanswered`, and `let-go`, which books what
/// waits and forgets all halts; each is answered with `ok`. It says `waits <reference>` or `halted <reference>` when a
/// call has got that far, and `landed <reference>` when what waited is booked or refused.
pub(super) fn serve(runtime: &Runtime, arguments: &[String]) -> Result<(), Failure> {
    let [ledger, collapses, fences, dawdles_ms, seed] = arguments else {
        return Err("a provider takes a ledger and its manners, see gate::Manners".into());
    };
    let manners =
        Manners { collapses: collapses.parse()?, fences: fences.parse()?, dawdles_ms: dawdles_ms.parse()? };
    let book = Book {
        file: OpenOptions::new().append(true).create(true).open(ledger)?,
        rows: Vec::new(),
        newest: HashMap::new(),
        halts: HashMap::new(),
        draws: Draws::new(seed.parse()?),
    };
    let provider = Arc::new(Provider { manners, book: Mutex::new(book) });
    let routes =
        Router::new().route("/book", post(booked)).route("/ask", post(asked)).with_state(provider.clone());
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    say(&format!("listening {}", listener.local_addr()?));
    runtime.spawn(axum::serve(listener, routes).into_future());
    let mut waiting: Vec<Arc<Notify>> = Vec::new();
    for line in io::stdin().lines() {
        match line?.split(' ').collect::<Vec<_>>()[..] {
            ["halt", reference, "unbooked"] => {
                let let_go = Arc::new(Notify::new());
                waiting.push(let_go.clone());
                provider.book().halts.insert(reference.into(), Halt::Unbooked(let_go));
            }
            ["halt", reference, _] => {
                provider.book().halts.insert(reference.into(), Halt::Unanswered);
            }
            ["let-go"] => {
                provider.book().halts.clear();
                waiting.drain(..).for_each(|let_go| let_go.notify_one());
            }
            _ => return Err("no such line".into()),
        }
        say("ok");
    }
    Ok(())
}

async fn booked(State(provider): State<Arc<Provider>>, words: String) -> (StatusCode, String) {
    // A task of its own: a provider goes on with what it was sent when the caller is gone.
    let booking = tokio::spawn(async move {
        let Some(wanted) = Row::parse(&format!("? {words}")) else {
            return (StatusCode::BAD_REQUEST, "three words".to_owned());
        };
        provider.booked(wanted).await
    });
    booking.await.unwrap_or((StatusCode::INTERNAL_SERVER_ERROR, "panicked".into()))
}

async fn asked(State(provider): State<Arc<Provider>>, words: String) -> (StatusCode, String) {
    let Some(wanted) = Row::parse(&format!("? {words}")) else {
        return (StatusCode::BAD_REQUEST, "three words".into());
    };
    let mut book = provider.book();
    if provider.manners.fences && book.is_fenced(&wanted) {
        return (StatusCode::PRECONDITION_FAILED, "an older token".into());
    }
    match book.rows.iter().find(|row| row.downstream_key == wanted.downstream_key) {
        Some(row) => (StatusCode::OK, row.name.clone()),
        None => (StatusCode::NOT_FOUND, String::new()),
    }
}

impl Provider {
    async fn booked(&self, wanted: Row) -> (StatusCode, String) {
        let (halt, dawdles) = {
            let mut book = self.book();
            let halt = book.halts.remove(&wanted.reference);
            let mut dawdle = || Duration::from_millis(book.draws.below(self.manners.dawdles_ms + 1));
            (halt, [dawdle(), dawdle()])
        };
        tokio::time::sleep(dawdles[0]).await;
        if let Some(Halt::Unbooked(let_go)) = &halt {
            say(&format!("waits {}", wanted.reference));
            let_go.notified().await;
        }
        let reference = wanted.reference.clone();
        let answer = self.book().enter(wanted, self.manners);
        match halt {
            None => {}
            Some(Halt::Unbooked(_)) => say(&format!("landed {reference}")),
            Some(Halt::Unanswered) => {
                say(&format!("halted {reference}"));
                std::future::pending::<()>().await;
            }
        }
        tokio::time::sleep(dawdles[1]).await;
        answer
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    fn enter(&mut self, wanted: Row, manners: Manners) -> (StatusCode, String) {
        if manners.fences && self.is_fenced(&wanted) {
            return (StatusCode::PRECONDITION_FAILED, "an older token".into());
        }
        if manners.collapses
            && let Some(row) = self.rows.iter().find(|row| row.downstream_key == wanted.downstream_key)
        {
            return (StatusCode::OK, row.name.clone());
        }
        let row = Row { name: format!("b{}", self.rows.len() + 1), ..wanted };
        let Row { name, reference, downstream_key, token } = &row;
        let line = format!("{name} {reference} {downstream_key} {token}\n");
        if self.file.write_all(line.as_bytes()).is_err() {
            return (StatusCode::INTERNAL_SERVER_ERROR, "the ledger cannot be written".into());
        }
        let name = name.clone();
        self.rows.push(row);
        (StatusCode::OK, name)
    }

    /// Whether a newer token was seen; from now on this one was.
    fn is_fenced(&mut self, wanted: &Row) -> bool {
        let newest = self.newest.entry(wanted.reference.clone()).or_default();
        let is_fenced = wanted.token < *newest;
        *newest = wanted.token.max(*newest);
        is_fenced
    }
}

impl Row {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ').map(str::to_owned);
        let mut word = || words.next();
        let (name, reference, downstream_key) = (word()?, word()?, word()?);
        Some(Self { name, reference, downstream_key, token: word()?.parse().ok()? })
    }
}
