//! Who asks: the account behind a request's credentials, which is the scope of its key.

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use keyclaim::Scope;

/// The accounts by their bearer tokens. A real service looks them up where it keeps its credentials.
///
/// The scope is the account and never the token: tokens are rotated and an account has several, and
/// a retry under a new one is still the same intent.
const ACCOUNTS: [(&str, &str); 3] =
    [("acme-key-2025", "acct_acme"), ("acme-key-2026", "acct_acme"), ("globex-key-2026", "acct_globex")];

/// The account that a request is from; none if it cannot be said.
///
/// Without a scope the request is refused. A shared or empty one would answer one account with
/// another's payment as soon as two of them choose the same key.
pub(crate) fn scope(headers: &HeaderMap) -> Option<(&'static str, Scope)> {
    let mut lines = headers.get_all(AUTHORIZATION).iter();
    let line = lines.next()?;
    if lines.next().is_some() {
        return None;
    }
    let (kind, token) = line.to_str().ok()?.split_once(' ')?;
    if !kind.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let (_, account) = ACCOUNTS.iter().find(|(known, _)| *known == token.trim())?;
    Some((account, Scope::new(account).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn account(lines: &[&'static str]) -> Option<&'static str> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(AUTHORIZATION, HeaderValue::from_static(line));
        }
        scope(&headers).map(|(account, _)| account)
    }

    #[test]
    fn both_tokens_of_an_account_are_one_scope() {
        assert_eq!(account(&["Bearer acme-key-2025"]), Some("acct_acme"));
        assert_eq!(account(&["bearer acme-key-2026"]), Some("acct_acme"));
    }

    #[test]
    fn without_one_known_token_there_is_no_scope() {
        for lines in [
            &[][..],
            &["Bearer"],
            &["Bearer "],
            &["Bearer other"],
            &["Basic acme-key-2025"],
            &["Bearer a", "Bearer b"],
        ] {
            assert_eq!(account(lines), None, "{lines:?}");
        }
    }
}
