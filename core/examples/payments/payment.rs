//! What a client asks for.

use serde::{Deserialize, Serialize};

/// A payment as it comes in. Unknown members are refused: a misspelled one must not be ignored where
/// money moves.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Payment {
    /// In the currency's smallest unit.
    pub(crate) amount: u64,
    /// Three capital letters of ISO 4217.
    pub(crate) currency: String,
    /// A token of the card, never its number.
    pub(crate) card: String,
    /// The merchant's own name of what is paid for.
    pub(crate) reference: String,
}

/// Largest amount of one payment in the currency's smallest unit (arbitrary).
const AMOUNT_MAX: u64 = 100_000_000;
/// Longest card token or reference in bytes (arbitrary).
const NAME_LEN_MAX: usize = 64;

impl Payment {
    /// The payment in a request's body, or what is wrong with it. Repeats nothing of what it was given.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, &'static str> {
        let payment: Self = serde_json::from_slice(body)
            .map_err(|_| "The body is no JSON object with exactly amount, currency, card and reference.")?;
        if payment.amount == 0 || payment.amount > AMOUNT_MAX {
            return Err("The amount is a whole number from 1 to 100000000 in the smallest unit.");
        }
        if payment.currency.len() != 3 || !payment.currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return Err("The currency is three capital letters, such as EUR.");
        }
        let is_name = |text: &str| {
            (1..=NAME_LEN_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if !is_name(&payment.card) || !is_name(&payment.reference) {
            return Err("The card and the reference are 1 to 64 visible ASCII characters each.");
        }
        Ok(payment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_and_sane_payment_is_taken() {
        let body = |amount: &str, currency: &str, rest: &str| {
            format!(r#"{{"amount":{amount},"currency":"{currency}","card":"tok","reference":"r"{rest}}}"#)
        };
        assert!(Payment::parse(body("1", "EUR", "").as_bytes()).is_ok());
        for (amount, currency, rest) in [
            ("0", "EUR", ""),
            ("-1", "EUR", ""),
            ("1.5", "EUR", ""),
            ("100000001", "EUR", ""),
            ("1", "eur", ""),
            ("1", "EURO", ""),
            ("1", "EUR", r#","tip":1"#),
            ("1", "EUR", r#","amount":2"#),
        ] {
            let body = body(amount, currency, rest);
            assert!(Payment::parse(body.as_bytes()).is_err(), "{body}");
        }
        assert!(Payment::parse(b"").is_err() && Payment::parse(b"[]").is_err());
    }
}
