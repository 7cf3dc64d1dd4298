//! The worker's calls to a provider.

use std::net::SocketAddr;

use axum::http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::Failure;

/// What a provider was asked, in words: `<reference> <downstream key> <token>`.
pub(super) struct Asked<'a> {
    pub(super) reference: &'a str,
    pub(super) downstream_key: String,
    pub(super) token: u64,
}

/// Has something booked; returns the provider's name of it.
pub(super) async fn book(provider: SocketAddr, asked: Asked<'_>) -> Result<String, Failure> {
    match post(provider, "/book", asked).await? {
        (StatusCode::OK, name) => Ok(name),
        (status, text) => Err(format!("the provider answered {status}: {text}").into()),
    }
}

/// What was booked under the downstream key, if anything was.
pub(super) async fn ask(provider: SocketAddr, asked: Asked<'_>) -> Result<Option<String>, Failure> {
    match post(provider, "/ask", asked).await? {
        (StatusCode::OK, name) => Ok(Some(name)),
        (StatusCode::NOT_FOUND, _) => Ok(None),
        (status, text) => Err(format!("the provider answered {status}: {text}").into()),
    }
}

async fn post(provider: SocketAddr, path: &str, asked: Asked<'_>) -> Result<(StatusCode, String), Failure> {
    let (mut sender, connection) = handshake(TokioIo::new(TcpStream::connect(provider).await?)).await?;
    let driver = tokio::spawn(connection);
    let words = format!("{} {} {}", asked.reference, asked.downstream_key, asked.token);
    let body = Full::new(Bytes::from(words));
    let request = Request::post(path).header("host", "provider").body(body)?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body: Bytes = response.into_body().collect().await?.to_bytes();
    driver.abort();
    Ok((status, String::from_utf8(body.to_vec())?))
}
