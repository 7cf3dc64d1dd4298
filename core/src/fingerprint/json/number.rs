//! Numbers by their exact decimal value, as text: no float and no big integer is ever made of one.

use crate::limits::JSON_EXPONENT_MAX;

/// Writes the one form of a number that is valid JSON. None if its power of ten is out of bounds.
///
/// The bound is on the form, not on the spelling: `10e5` and `1e6` are taken or refused together.
pub(super) fn push(out: &mut Vec<u8>, text: &str) -> Option<()> {
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [whole, fraction].concat();
    let digits = digits.trim_start_matches('0');
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        out.push(b'0');
        return Some(());
    }
    let zeros = i64::try_from(digits.len() - significant.len()).ok()?;
    let shift = zeros - i64::try_from(fraction.len()).ok()?;
    let exponent = parse_exponent(exponent)?.checked_add(shift)?;
    if exponent.unsigned_abs() > JSON_EXPONENT_MAX {
        return None;
    }
    if negative {
        out.push(b'-');
    }
    out.extend_from_slice(significant.as_bytes());
    if exponent != 0 {
        out.extend_from_slice(format!("e{exponent}").as_bytes());
    }
    Some(())
}

/// None beyond 18 digits: no payload has the digits that would bring such a number back into bounds.
fn parse_exponent(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = digits.trim_start_matches('0');
    match digits.len() {
        0 => Some(0),
        1..=18 => digits.parse::<i64>().ok().map(|value| sign * value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(text: &str) -> Option<String> {
        let mut out = Vec::new();
        push(&mut out, text)?;
        Some(String::from_utf8(out).expect("digits"))
    }

    #[test]
    fn every_spelling_of_a_value_has_one_form() {
        let forms: [(&str, &[&str]); 7] = [
            ("0", &["0", "-0", "0.000", "-0.0e-7", "0e99999999999999999999"]),
            ("1", &["1", "1.0", "1e0", "1E+0", "0.1e1", "10e-1", "1.000e-0", "100e-0002"]),
            ("1e2", &["100", "1E+2", "100.00", "0.001e5"]),
            ("-125e-2", &["-1.25", "-1.250", "-125e-2", "-0.0125e2"]),
            ("9007199254740993", &["9007199254740993", "9007199254740993.0", "9.007199254740993e15"]),
            ("1e-400", &["1e-400", "0.1e-399", "10e-401"]),
            (
                "1e100000000000000000",
                &["1e100000000000000000", "10e99999999999999999", "0.1e100000000000000001"],
            ),
        ];
        for (expected, texts) in forms {
            for text in texts {
                assert_eq!(form(text).as_deref(), Some(expected), "{text}");
            }
        }
        assert_ne!(form("9007199254740992"), form("9007199254740993"));
    }

    #[test]
    fn a_power_of_ten_out_of_bounds_is_refused_in_every_spelling() {
        for text in [
            "1e100000000000000001",
            "10e100000000000000000",
            "1e-100000000000000001",
            "0.1e-100000000000000000",
            "1e9223372036854775807",
            "1e-9223372036854775808",
            "1e99999999999999999999999999999999",
        ] {
            assert_eq!(form(text), None, "{text}");
        }
    }
}
