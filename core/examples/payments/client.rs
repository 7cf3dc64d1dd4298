//! The scene's client: real HTTP over real connections, one connection for each request.

use std::net::SocketAddr;
use std::time::Duration;

use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use crate::Failure;

/// How often a request is sent again under its key before the scene gives up (arbitrary).
const TRIES: usize = 15;
/// Longest wait for one answer (arbitrary; above all the server's own limits).
const PATIENCE: Duration = Duration::from_secs(30);

/// A request for a payment, to be sent as often as needed.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) key: Option<&'static str>,
    pub(crate) token: Option<&'static str>,
    pub(crate) body: String,
    pub(crate) wait_seconds: Option<u32>,
    pub(crate) pause: Option<&'static str>,
}

/// What came back.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A connection; dropped, it is closed at once, whatever is under way.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: AbortHandle,
}

impl Call {
    /// A payment of 12.00 EUR under a key, for a reference of the same name.
    pub(crate) fn new(key: &'static str) -> Self {
        let body = format!(r#"{{"amount":1200,"currency":"EUR","card":"tok_visa","reference":"{key}"}}"#);
        Self { key: Some(key), token: Some("acme-key-2026"), body, wait_seconds: None, pause: None }
    }

    /// Sends it on a connection of its own.
    pub(crate) async fn send(&self, addr: SocketAddr) -> Result<Answer, Failure> {
        Connection::open(addr).await?.send(self).await
    }

    /// Sends it until it is answered with something else than "not now", waiting as long as each
    /// answer says. All answers, the last one last.
    pub(crate) async fn send_until_answered(&self, addr: SocketAddr) -> Result<Vec<Answer>, Failure> {
        let mut answers = Vec::new();
        for _ in 0..TRIES {
            let answer = self.send(addr).await?;
            let retry_after = answer.retry_after();
            answers.push(answer);
            let Some(wait) = retry_after else { break };
            tokio::time::sleep(wait).await;
        }
        Ok(answers)
    }
}

impl Connection {
    pub(crate) async fn open(addr: SocketAddr) -> Result<Self, Failure> {
        let (sender, driver) = handshake(TokioIo::new(TcpStream::connect(addr).await?)).await?;
        let driver = tokio::spawn(async move { drop(driver.await) }).abort_handle();
        Ok(Self { sender, driver })
    }

    pub(crate) async fn send(&mut self, call: &Call) -> Result<Answer, Failure> {
        let mut request = Request::post("/v1/payments").header(CONTENT_TYPE, "application/json");
        if let Some(token) = call.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(key) = call.key {
            request = request.header("idempotency-key", format!("\"{key}\""));
        }
        if let Some(seconds) = call.wait_seconds {
            request = request.header("prefer", format!("wait={seconds}"));
        }
        if let Some(pause) = call.pause {
            request = request.header("demo-pause", pause);
        }
        self.exchange(request.body(Full::from(call.body.clone()))?).await
    }

    async fn exchange(&mut self, mut request: Request<Full<Bytes>>) -> Result<Answer, Failure> {
        request.headers_mut().insert("host", "localhost".parse()?);
        let answered = async {
            let response = self.sender.send_request(request).await?;
            let (parts, body) = response.into_parts();
            let body = body.collect().await?.to_bytes();
            Ok(Answer { status: parts.status, headers: parts.headers, body })
        };
        tokio::time::timeout(PATIENCE, answered).await?
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Answer {
    /// The value of a header, empty if there is none.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The code of a problem document, empty if it is none.
    pub(crate) fn code(&self) -> String {
        let document: serde_json::Value = serde_json::from_slice(&self.body).unwrap_or_default();
        document.get("code").and_then(|code| code.as_str()).unwrap_or_default().to_owned()
    }

    /// Whether it is given again.
    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == "true"
    }

    /// How long to wait before the same request is sent again; none if it is answered for good.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let is_not_now = matches!(self.status, StatusCode::CONFLICT | StatusCode::SERVICE_UNAVAILABLE);
        let seconds = self.header(RETRY_AFTER.as_str()).parse().ok()?;
        is_not_now.then(|| Duration::from_secs(seconds))
    }

    /// Whether it says the same in the same bytes.
    pub(crate) fn is_same_as(&self, first: &Self) -> bool {
        let same = |name| self.headers.get(name) == first.headers.get(name);
        self.status == first.status && self.body == first.body && same("content-type") && same("location")
    }

    /// It in a few words: the status, what kind of answer it is, and when to come back.
    pub(crate) fn words(&self) -> String {
        let mut words = self.status.as_str().to_owned();
        if self.is_replay() {
            words.push_str(" replayed");
        } else if self.status.is_success() {
            words.push_str(" first");
        }
        let code = self.code();
        if !code.is_empty() {
            words = format!("{words} {code}");
        }
        if let Some(wait) = self.retry_after() {
            words = format!("{words} (Retry-After {})", wait.as_secs());
        }
        words
    }
}

/// A number out of the server's statistics.
pub(crate) async fn stat(addr: SocketAddr, name: &str) -> Result<u64, Failure> {
    let request = Request::get("/v1/stats").body(Full::default())?;
    let answer = Connection::open(addr).await?.exchange(request).await?;
    let document: serde_json::Value = serde_json::from_slice(&answer.body)?;
    Ok(document.get(name).and_then(serde_json::Value::as_u64).ok_or("the server counts no such thing")?)
}
