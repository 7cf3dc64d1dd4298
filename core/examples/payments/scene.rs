//! The script: what goes wrong with payments, done to a real server, and what came back.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use tokio::sync::Barrier;
use tokio::task::{JoinHandle, JoinSet};

use crate::client::{Answer, Call, Connection, stat};
use crate::ledger::Ledger;
use crate::mailer::Mailer;
use crate::process::ServerProcess;
use crate::report::{DUPLICATES, Report, Totals, heading, tally};
use crate::{Failure, asked_to_end};

/// How long the scene waits for the server to reach a state (arbitrary; a loaded machine is slow).
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it looks.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The payments that are under way when a server is killed.
const KILLED: [&str; 4] = [
    "order-killed-before-charge",
    "order-killed-after-charge",
    "order-killed-before-mail",
    "order-killed-after-mail",
];

/// Everything the script works with.
struct Scene {
    server: ServerProcess,
    ledger: Ledger,
    mailer: Mailer,
    report: Report,
    totals: Totals,
}

/// Plays the script. Then serves until Ctrl-C; or, as a check, ends with what the lines add up to.
pub(crate) async fn run(is_check: bool) -> Result<ExitCode, Failure> {
    let dir = tempfile::Builder::new().prefix("keyclaim-payments-").tempdir()?;
    let server = ServerProcess::start(dir.path()).await?;
    println!("a payments API on {} (process {})", server.addr, server.pid());
    println!("its store, the card network's ledger and the sent mails are in {}", dir.path().display());
    let (ledger, mailer) = (Ledger::new(dir.path()), Mailer::new(dir.path()));
    let mut scene = Scene { server, ledger, mailer, report: Report::default(), totals: Totals::default() };
    let played = tokio::select! {
        played = scene.all(dir.path()) => played,
        asked = asked_to_end() => asked.map_err(Failure::from).and(Err("asked to end".into())),
    };
    let is_played = played.is_ok();
    if let Err(failure) = played {
        scene.report.line("played the script to its end", &failure.to_string(), false);
    }
    if !is_check {
        println!("\n{}", scene.totals);
        if is_played {
            scene.serve().await?;
        }
    }
    let ended = scene.server.end().await?;
    scene.report.line("asked the server to end", &ended.to_string(), ended.success());
    let is_right = scene.report.is_right() && scene.totals.is_right();
    if is_check {
        println!("{}", scene.totals);
    }
    Ok(if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A request that was answered, for comparing later answers to.
struct Answered {
    call: Call,
    first: Answer,
}

impl Scene {
    async fn all(&mut self, dir: &Path) -> Result<(), Failure> {
        let duplicate = self.duplicates().await?;
        self.other_requests(&duplicate).await?;
        self.retry_in_flight().await?;
        let lost = self.answer_lost().await?;
        self.kill_and_restart(dir, &[duplicate, lost]).await?;
        self.kill_between_steps(dir).await
    }

    /// One payment from 64 clients at once, as after a double click, a retrying proxy or a stuck queue.
    async fn duplicates(&mut self) -> Result<Answered, Failure> {
        heading("1. one payment, sent by 64 clients at once");
        // The winner dawdles, so that the others meet it at work; half of them are willing to wait.
        let call = Call { pause: Some("before-charge=500"), ..Call::new("order-64") };
        let barrier = Arc::new(Barrier::new(DUPLICATES));
        let mut clients = JoinSet::new();
        for number in 0..DUPLICATES {
            let wait_seconds = (number % 2 == 1).then_some(10);
            clients.spawn(duplicate(self.addr(), Call { wait_seconds, ..call.clone() }, barrier.clone()));
        }
        let mut all = Vec::new();
        while let Some(answers) = clients.join_next().await {
            all.push(answers??);
        }
        self.totals.duplicates = all.len();
        let told: Vec<&Answer> = all.iter().filter_map(|answers| answers.first()).collect();
        let firsts: Vec<&Answer> = told.iter().copied().filter(|answer| is_first(answer)).collect();
        let is_right = firsts.len() == 1
            && told.iter().all(|answer| is_first(answer) || is_paid_again(answer) || is_told_to_wait(answer));
        self.report.line("64 clients sent it", &tally(told.iter().map(|answer| answer.words())), is_right);
        let again: Vec<&Answer> =
            all.iter().filter(|answers| answers.len() > 1).filter_map(|answers| answers.last()).collect();
        let is_right = again.iter().all(|answer| is_paid_again(answer));
        let did = "those told to come back sent it again with the same key";
        self.report.line(did, &tally(again.iter().map(|answer| answer.words())), is_right);
        let first = firsts.first().copied().cloned().ok_or("no client was told that its payment is made")?;
        let last = all.iter().filter_map(|answers| answers.last());
        let replays: Vec<bool> =
            last.filter(|last| last.is_replay()).map(|last| last.is_same_as(&first)).collect();
        let is_all = replays.len() == DUPLICATES - 1;
        self.compared("compared all replays to the first answer", replays, is_all);
        self.totals.charges = self.charged("order-64", 1)?;
        Ok(Answered { call: Call { pause: None, ..call }, first })
    }

    /// What looks like the same request and is none, or the other way round.
    async fn other_requests(&mut self, paid: &Answered) -> Result<(), Failure> {
        heading("2. other requests with the same key, and no proper key");
        let changed = Call { body: paid.call.body.replace("1200", "9900"), ..paid.call.clone() };
        let answer = changed.send(self.addr()).await?;
        let is_right = is_problem(&answer, StatusCode::CONFLICT, "invalid_idempotent_request");
        self.report.line("sent another amount with the same key", &answer.words(), is_right);
        let reordered =
            r#"{ "reference": "order-64", "card": "tok_visa", "currency": "EUR", "amount": 1200 }"#;
        self.replays("sent the same JSON, written in another way", paid, |call| call.body = reordered.into())
            .await?;
        self.replays("sent it with the account's older token", paid, |call| {
            call.token = Some("acme-key-2025");
        })
        .await?;
        let other = Call { token: Some("globex-key-2026"), ..Call::new("order-64") };
        let other = Call { body: other.body.replace("order-64", "globex-64"), ..other };
        let answer = other.send(self.addr()).await?;
        self.report.line("another account used the same key", &answer.words(), is_first(&answer));
        self.charged("globex-64", 1)?;
        for (did, call, status, code) in [
            (
                "sent no key",
                Call { key: None, ..Call::new("none") },
                StatusCode::BAD_REQUEST,
                "missing_idempotency_key",
            ),
            (
                "sent an empty key",
                Call { key: Some(""), ..Call::new("none") },
                StatusCode::BAD_REQUEST,
                "invalid_idempotency_key",
            ),
            (
                "sent no account",
                Call { token: None, ..Call::new("none") },
                StatusCode::UNAUTHORIZED,
                "unknown_account",
            ),
        ] {
            let answer = call.send(self.addr()).await?;
            self.report.line(did, &answer.words(), is_problem(&answer, status, code));
        }
        self.charged("none", 0)?;
        self.declined().await
    }

    /// A failure is an outcome: it is answered again too.
    async fn declined(&mut self) -> Result<(), Failure> {
        let call = Call::new("order-declined");
        let call = Call { body: call.body.replace("tok_visa", "tok_declined"), ..call };
        let first = call.send(self.addr()).await?;
        let is_right =
            is_problem(&first, StatusCode::PAYMENT_REQUIRED, "card_declined") && !first.is_replay();
        self.report.line("paid with a card that is declined", &first.words(), is_right);
        self.replays("sent it again", &Answered { call, first }, |_| {}).await?;
        self.charged("order-declined", 0).map(drop)
    }

    async fn retry_in_flight(&mut self) -> Result<(), Failure> {
        heading("3. a retry while the first request is under way");
        let slow = Call { pause: Some("before-charge=1500"), ..Call::new("order-slow") };
        let first = self.begin(&slow);
        self.until_live_claims(1).await?;
        let call = Call { pause: None, ..slow };
        let answer = call.send(self.addr()).await?;
        self.report.line("sent it again", &answer.words(), is_told_to_wait(&answer));
        let first = first.await??;
        self.report.line("the first request ended", &first.words(), is_first(&first));
        self.replays("sent it again", &Answered { call, first }, |_| {}).await?;
        self.charged("order-slow", 1).map(drop)
    }

    async fn answer_lost(&mut self) -> Result<Answered, Failure> {
        heading("4. the client is gone before its answer comes");
        let slow = Call { pause: Some("before-charge=300"), ..Call::new("order-lost") };
        let completed = self.stat("completed").await?;
        let request = self.begin(&slow);
        self.until_live_claims(1).await?;
        // Dropping the task drops its connection: the socket is closed while the server works.
        request.abort();
        let is_gone = request.await.is_err_and(|error| error.is_cancelled());
        let is_charged = self.count("order-lost")? > 0;
        self.report.line(
            "sent it and closed the connection",
            "no answer, no charge yet",
            is_gone && !is_charged,
        );
        self.until(|scene| async move { Ok(scene.stat("completed").await? > completed) }).await?;
        let call = Call { pause: None, ..slow };
        let first = call.send(self.addr()).await?;
        let is_right = is_paid_again(&first);
        self.report.line("sent it again when the server was done", &first.words(), is_right);
        let answered = Answered { call, first };
        self.replays("and once more", &answered, |_| {}).await?;
        self.charged("order-lost", 1)?;
        Ok(answered)
    }

    async fn kill_and_restart(&mut self, dir: &Path, answered: &[Answered]) -> Result<(), Failure> {
        heading("5. kill -9 with two payments under way, and a restart on the same files");
        let before = Call { pause: Some("before-charge=60000"), ..Call::new("order-killed-before-charge") };
        let after = Call { pause: Some("after-charge=60000"), ..Call::new("order-killed-after-charge") };
        let under_way = [self.begin(&before), self.begin(&after)];
        self.until_live_claims(2).await?;
        self.until(|scene| async move { Ok(scene.count("order-killed-after-charge")? > 0) }).await?;
        let mut is_ok = self.kill(under_way).await?;
        is_ok &= self.charged("order-killed-before-charge", 0)? == 0;
        is_ok &= self.charged("order-killed-after-charge", 1)? == 1;
        self.restart(dir).await?;
        for answered in answered {
            let did = format!("sent {} again", answered.call.key.unwrap_or_default());
            is_ok &= self.replays(&did, answered, |_| {}).await?;
        }
        for (call, attempt) in [(before, "2; network=new"), (after, "2; network=repeated")] {
            is_ok &= self.taken_over(Call { pause: None, ..call }, attempt).await?;
        }
        is_ok &= self.charged("order-64", 1)? == 1;
        is_ok &= self.charged("order-lost", 1)? == 1;
        self.totals.restart = is_ok;
        Ok(())
    }

    /// One charge is on record and its receipt not begun, the other's receipt is mailed and that not on
    /// record: the next attempts charge nobody, and mail one.
    async fn kill_between_steps(&mut self, dir: &Path) -> Result<(), Failure> {
        heading(
            "6. kill -9 after the charge, before its receipt is mailed and after; the retries go on there",
        );
        let before = Call { pause: Some("before-receipt=60000"), ..Call::new("order-killed-before-mail") };
        let after = Call { pause: Some("after-receipt=60000"), ..Call::new("order-killed-after-mail") };
        let under_way = [self.begin(&before), self.begin(&after)];
        self.until(|scene| async move { Ok(scene.stat("dawdling").await? == 2) }).await?;
        let mut is_ok = self.charged("order-killed-before-mail", 1)? == 1;
        is_ok &= self.mailed("order-killed-before-mail", 0)?;
        is_ok &= self.mailed("order-killed-after-mail", 1)?;
        is_ok &= self.kill(under_way).await?;
        self.restart(dir).await?;
        for call in [before, after] {
            is_ok &= self.taken_over(Call { pause: None, ..call }, "2; network=not asked").await?;
        }
        self.totals.restart &= is_ok;
        self.totals.repeated = Some(self.repeated_after_kill()?);
        Ok(())
    }

    /// Kills the server with these requests under way.
    async fn kill(&mut self, under_way: [JoinHandle<Result<Answer, Failure>>; 2]) -> Result<bool, Failure> {
        let pid = self.server.pid();
        let status = self.server.kill().await?;
        let mut is_ok = self.report.line(&format!("kill -9 {pid}"), &status.to_string(), !status.success());
        for request in under_way {
            let is_cut_off = request.await?.is_err();
            is_ok &=
                self.report.line("its client", if is_cut_off { "cut off" } else { "answered" }, is_cut_off);
        }
        Ok(is_ok)
    }

    async fn restart(&mut self, dir: &Path) -> Result<(), Failure> {
        self.server = ServerProcess::start(dir).await?;
        println!("        a new server on {} (process {})", self.addr(), self.server.pid());
        Ok(())
    }

    /// Sends a payment of the dead server's until a second attempt has made it.
    async fn taken_over(&mut self, call: Call, attempt: &str) -> Result<bool, Failure> {
        let key = call.key.unwrap_or_default();
        let answers = call.send_until_answered(self.addr()).await?;
        let words = tally(answers.iter().map(Answer::words));
        let first = answers.last().cloned().ok_or("there was no answer")?;
        let is_right = is_first(&first) && first.header("payments-attempt") == attempt;
        let got = format!("{words}; attempt {}", first.header("payments-attempt"));
        let mut is_ok = self.report.line(&format!("sent {key} until it was taken over"), &got, is_right);
        is_ok &= self.replays("sent it again", &Answered { call, first }, |_| {}).await?;
        Ok(is_ok & (self.charged(key, 1)? == 1) & self.mailed(key, 1)?)
    }

    /// Serves until it is asked to end.
    async fn serve(&mut self) -> Result<(), Failure> {
        let addr = self.addr();
        println!("\nthe server goes on until Ctrl-C; try");
        let send = format!(
            "curl -i http://{addr}/v1/payments -H 'Authorization: Bearer acme-key-2026' \\\n       \
             -H 'Content-Type: application/json' -H 'Idempotency-Key: \"order-1\"' \\\n       -d"
        );
        let body = |amount: u32| {
            format!(r#"'{{"amount":{amount},"currency":"EUR","card":"tok_visa","reference":"order-1"}}'"#)
        };
        println!("\n  a payment; and, sent once more, its replay\n  {send} {}", body(1200));
        println!("\n  another amount under the same key\n  {send} {}", body(9900));
        println!("\n  how many charges there are, and what the store decided");
        println!("  curl http://{addr}/v1/payments/count\n  curl http://{addr}/v1/stats");
        tokio::select! {
            asked = asked_to_end() => Ok(asked?),
            ended = self.server.ended() => Err(format!("the server ended by itself: {}", ended?).into()),
        }
    }

    /// Sends a request that was answered before, changed in a way that means nothing, and compares.
    async fn replays(
        &mut self,
        did: &str,
        answered: &Answered,
        change: impl FnOnce(&mut Call),
    ) -> Result<bool, Failure> {
        let mut call = answered.call.clone();
        change(&mut call);
        let answer = call.send(self.addr()).await?;
        let is_equal = answer.is_replay() && answer.is_same_as(&answered.first);
        self.totals.compare([is_equal]);
        let got = format!("{}, {}", answer.words(), if is_equal { "byte-equal" } else { "NOT byte-equal" });
        Ok(self.report.line(did, &got, is_equal))
    }

    fn compared(&mut self, did: &str, replays: Vec<bool>, is_all: bool) {
        let (equal, compared) = self.totals.compare(replays);
        let got = format!("{equal} of {compared} byte-equal in status, type, location and body");
        self.report.line(did, &got, is_all && equal == compared);
    }

    /// Counts the charges of a payment where they happen: in the ledger, not in what the server says.
    fn charged(&mut self, reference: &str, expected: usize) -> Result<usize, Failure> {
        let count = self.count(reference)?;
        let did = format!("counted the ledger's rows for {reference}");
        self.report.line(&did, &count.to_string(), count == expected);
        Ok(count)
    }

    /// Counts the receipts that were mailed for a payment, where they are sent.
    fn mailed(&mut self, reference: &str, expected: usize) -> Result<bool, Failure> {
        let count = self.mailer.mails()?.iter().filter(|mail| mail.reference == reference).count();
        let did = format!("counted the receipts mailed for {reference}");
        Ok(self.report.line(&did, &count.to_string(), count == expected))
    }

    /// How many charges too many there are for all that was under way when a server was killed.
    fn repeated_after_kill(&self) -> Result<usize, Failure> {
        let mut repeated = 0;
        for reference in KILLED {
            repeated += self.count(reference)?.saturating_sub(1);
        }
        Ok(repeated)
    }

    fn count(&self, reference: &str) -> Result<usize, Failure> {
        Ok(self.ledger.charges()?.iter().filter(|charge| charge.reference == reference).count())
    }

    fn begin(&self, call: &Call) -> JoinHandle<Result<Answer, Failure>> {
        let (addr, call) = (self.addr(), call.clone());
        tokio::spawn(async move { call.send(addr).await })
    }

    /// Waits until the server works on this many payments.
    async fn until_live_claims(&self, count: u64) -> Result<(), Failure> {
        self.until(|scene| async move { Ok(scene.stat("live_claims").await? == count) }).await
    }

    async fn until<'a, F>(&'a self, mut is_so: impl FnMut(&'a Self) -> F) -> Result<(), Failure>
    where
        F: Future<Output = Result<bool, Failure>>,
    {
        let looking = async {
            while !is_so(self).await? {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            Ok(())
        };
        let told = tokio::time::timeout(PATIENCE, looking).await;
        told.map_err(|_| "the server did not get as far as the scene needs in time")?
    }

    async fn stat(&self, name: &str) -> Result<u64, Failure> {
        stat(self.addr(), name).await
    }

    fn addr(&self) -> SocketAddr {
        self.server.addr
    }
}

/// One of the clients that send the same: all connect, then all send.
async fn duplicate(addr: SocketAddr, call: Call, barrier: Arc<Barrier>) -> Result<Vec<Answer>, Failure> {
    let mut connection = Connection::open(addr).await?;
    barrier.wait().await;
    let mut answers = vec![connection.send(&call).await?];
    if let Some(wait) = answers.first().and_then(Answer::retry_after) {
        tokio::time::sleep(wait).await;
        answers.extend(call.send_until_answered(addr).await?);
    }
    Ok(answers)
}

fn is_first(answer: &Answer) -> bool {
    answer.status == StatusCode::CREATED && !answer.is_replay()
}

fn is_paid_again(answer: &Answer) -> bool {
    answer.status == StatusCode::CREATED && answer.is_replay()
}

fn is_told_to_wait(answer: &Answer) -> bool {
    is_problem(answer, StatusCode::CONFLICT, "concurrent_idempotent_requests")
        && answer.retry_after().is_some()
}

fn is_problem(answer: &Answer, status: StatusCode, code: &str) -> bool {
    let is_document = answer.header("content-type") == "application/problem+json";
    is_document && answer.status == status && answer.code() == code
}
