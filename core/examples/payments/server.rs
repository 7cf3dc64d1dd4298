//! The server: opens the store, listens, and ends without dropping what it has begun.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use keyclaim::fingerprint::Scheme;
use keyclaim::http::{Endings, Keep, Mapping, Preset};
use keyclaim::key::header::HeaderRule;
use keyclaim::limits::LEASE_MS_DEFAULT;
use keyclaim::store::Cancel;
use keyclaim::{Abandoned, AfterWindow, Options, Policy, Store};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use crate::ledger::Ledger;
use crate::mailer::Mailer;
use crate::wire::Answer;
use crate::{Failure, asked_to_end, handler};

/// Longest body of a request in bytes: many times a payment (arbitrary).
const BODY_LEN_MAX: usize = 16 * 1024;
/// Most payments worked on or waited for at once (arbitrary); the next one is told to come back.
const PLACES: u32 = 1_024;
/// How long a server that ends waits for what it has begun (arbitrary; above the steps' limits). What
/// is left then is taken over once its lease is over, like after a crash.
const GRACE: Duration = Duration::from_secs(25);

/// How the server is started.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Settings {
    addr: String,
    dir: PathBuf,
    lease: Duration,
    step_limit: Duration,
    is_demo: bool,
    ends_with_stdin: bool,
}

/// Everything a request needs.
pub(crate) struct Api {
    pub(crate) store: Store,
    pub(crate) policy: Policy,
    pub(crate) scheme: Scheme,
    pub(crate) key_rule: HeaderRule,
    pub(crate) mapping: Mapping,
    pub(crate) endings: Endings,
    pub(crate) keep: Keep,
    pub(crate) ledger: Ledger,
    pub(crate) mailer: Mailer,
    pub(crate) step_limit: Duration,
    pub(crate) places: Arc<Semaphore>,
    pub(crate) closing: Cancel,
    pub(crate) is_demo: bool,
    /// How many attempts dawdle for the scene.
    pub(crate) dawdling: AtomicU64,
}

impl Settings {
    /// The settings in these arguments; none if they are not understood.
    pub(crate) fn parse(arguments: &[String]) -> Option<Self> {
        let (mut addr, mut dir) = (None, None);
        let (mut lease, mut step_limit) = (Duration::from_millis(LEASE_MS_DEFAULT), Duration::from_secs(10));
        let (mut is_demo, mut ends_with_stdin) = (false, false);
        let mut rest = arguments.iter();
        while let Some(name) = rest.next() {
            let mut millis = || rest.next()?.parse().ok().map(Duration::from_millis);
            match name.as_str() {
                "--lease-ms" => lease = millis()?,
                "--step-limit-ms" => step_limit = millis()?,
                "--addr" => addr = Some(rest.next()?.clone()),
                "--dir" => dir = Some(PathBuf::from(rest.next()?)),
                "--demo" => is_demo = true,
                "--until-stdin-ends" => ends_with_stdin = true,
                _ => return None,
            }
        }
        Some(Self { addr: addr?, dir: dir?, lease, step_limit, is_demo, ends_with_stdin })
    }
}

/// Serves until it is asked to end. Prints the address it listens on as its first line.
pub(crate) async fn serve(settings: &Settings) -> Result<(), Failure> {
    let api = Arc::new(open(settings)?);
    let listener = TcpListener::bind(&settings.addr).await?;
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "listening on {}", listener.local_addr()?)?;
    stdout.flush()?;
    drop(stdout);

    let mut ending = listen_for_end(settings.ends_with_stdin)?;
    let (mut asked, closing) = (ending.clone(), api.closing.clone());
    let shutdown = async move {
        // An error means that nobody is left who could ask: then it ends too.
        drop(asked.wait_for(|is_asked| *is_asked).await);
        // Whoever waits for another's attempt is told 409 now, and asks the next server.
        closing.cancel();
    };
    let served = tokio::spawn(
        axum::serve(listener, routes(api.clone())).with_graceful_shutdown(shutdown).into_future(),
    );
    // Connections first, then what goes on without one.
    let drained = async {
        served.await??;
        api.places.acquire_many(PLACES).await?.forget();
        Ok::<(), Failure>(())
    };
    let late = async {
        drop(ending.wait_for(|is_asked| *is_asked).await);
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        drained = drained => drained?,
        () = late => eprintln!("payments: ended with requests under way; their keys are in flight until their leases end"),
    }
    api.store.clone().close()?;
    Ok(())
}

fn open(settings: &Settings) -> Result<Api, Failure> {
    std::fs::create_dir_all(&settings.dir)?;
    // Rerun: whatever is done outside the store is a step, so an attempt that died having recorded
    // nothing has called nobody and may simply run again. If that is not so for yours, say Hold.
    // Refuse: a retry after the replay window gets 410. A key that is new again would charge again.
    let policy = Policy::new(Abandoned::Rerun).lease(settings.lease)?.after_window(AfterWindow::Refuse);
    // While a deploy hands over, the file is the old process's for a moment.
    let options = Options::with_policy(policy).open_wait(Duration::from_secs(10));
    let store = Store::open(settings.dir.join("payments.keyclaim"), options)?;
    Ok(Api {
        mapping: Mapping::new(Preset::Default).telling_store(store.id()).telling_window(),
        store,
        policy,
        scheme: Scheme::json([""; 0])?,
        key_rule: HeaderRule::default(),
        endings: Endings::new(),
        keep: Keep::new(),
        ledger: Ledger::new(&settings.dir),
        mailer: Mailer::new(&settings.dir),
        step_limit: settings.step_limit,
        places: Arc::new(Semaphore::new(PLACES as usize)),
        closing: Cancel::new(),
        is_demo: settings.is_demo,
        dawdling: AtomicU64::new(0),
    })
}

fn routes(api: Arc<Api>) -> Router {
    Router::new()
        .route("/v1/payments", post(handler::create))
        .route("/v1/payments/count", get(count))
        .route("/v1/stats", get(stats))
        .layer(DefaultBodyLimit::max(BODY_LEN_MAX))
        .with_state(api)
}

/// How many charges the card network has made.
async fn count(State(api): State<Arc<Api>>) -> Response {
    let ledger = api.ledger.clone();
    let answer = match tokio::task::spawn_blocking(move || ledger.charges()).await {
        Ok(Ok(charges)) => Answer::json(StatusCode::OK, &json!({ "charges": charges.len() })),
        _ => Answer::problem(StatusCode::BAD_GATEWAY, "network_failed", "The ledger cannot be read."),
    };
    answer.send(&[])
}

/// What the store has decided since it was opened.
async fn stats(State(api): State<Arc<Api>>) -> Response {
    let answer = match api.store.stats() {
        Ok(stats) => Answer::json(
            StatusCode::OK,
            &json!({
                "won": stats.won,
                "replayed": stats.replayed,
                "in_flight": stats.in_flight,
                "mismatched": stats.mismatched,
                "taken_over": stats.taken_over,
                "fenced": stats.fenced,
                "held": stats.held,
                "expired": stats.expired,
                "completed": stats.completed,
                "live_claims": stats.live_claims,
                "waiters": stats.waiters,
                "dawdling": api.dawdling.load(Ordering::Relaxed),
            }),
        ),
        Err(error) => {
            Answer::problem(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", error.kind().name())
        }
    };
    answer.send(&[])
}

/// Becomes true when the server is asked to end: by a signal, or by the end of its stdin.
fn listen_for_end(ends_with_stdin: bool) -> std::io::Result<watch::Receiver<bool>> {
    let (by_signal, ending) = watch::channel(false);
    let by_stdin = by_signal.clone();
    tokio::spawn(async move {
        if let Err(error) = asked_to_end().await {
            eprintln!("payments: signals cannot be received: {error}");
        }
        by_signal.send_replace(true);
    });
    if ends_with_stdin {
        // A read of stdin cannot be cancelled, so it gets a thread that the process does not wait for.
        std::thread::Builder::new().name("payments-stdin".into()).spawn(move || {
            let mut stdin = std::io::stdin().lock();
            let mut bytes = [0; 64];
            while !matches!(stdin.read(&mut bytes), Ok(0) | Err(_)) {}
            by_stdin.send_replace(true);
        })?;
    }
    Ok(ending)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<Settings> {
        Settings::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_server_is_told_where_to_listen_and_where_to_store() {
        let settings = parse("--addr 127.0.0.1:0 --dir d --lease-ms 2000").expect("understood");
        assert_eq!(settings.lease, Duration::from_secs(2));
        assert!(!settings.is_demo && !settings.ends_with_stdin);
        for line in [
            "",
            "--addr a",
            "--dir d",
            "--addr a --dir",
            "--addr a --dir d --leas 1",
            "--addr a --dir d --lease-ms x",
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
