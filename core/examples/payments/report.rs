//! What the scene says: one line for each thing done, and the last line, which is computed.

use std::fmt;

/// Prints the lines and counts those that are wrong.
#[derive(Debug, Default)]
pub(crate) struct Report {
    wrong: usize,
}

/// What the last line is made of. Nothing that was not looked at counts as good.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Totals {
    /// How many clients sent the one payment.
    pub(crate) duplicates: usize,
    /// How many charges the ledger holds for it.
    pub(crate) charges: usize,
    /// How many replays were compared to their first answer.
    pub(crate) compared: usize,
    /// How many of them were the same.
    pub(crate) equal: usize,
    /// Whether all was as it must be after kill -9 and a restart.
    pub(crate) restart: bool,
    /// How many charges too many there are for what was under way at a kill -9; none if nobody counted.
    pub(crate) repeated: Option<usize>,
}

impl Report {
    /// One thing done, what came back, and whether that is right; returned as it was given.
    pub(crate) fn line(&mut self, did: &str, got: &str, is_right: bool) -> bool {
        println!("{}", line(did, got, is_right));
        self.wrong += usize::from(!is_right);
        is_right
    }

    /// Whether all lines so far were right.
    pub(crate) fn is_right(&self) -> bool {
        self.wrong == 0
    }
}

impl Totals {
    /// Adds replays that were compared to their first answer, each of which was the same or not.
    pub(crate) fn compare(&mut self, replays: impl IntoIterator<Item = bool>) -> (usize, usize) {
        let (mut equal, mut compared) = (0, 0);
        for is_equal in replays {
            compared += 1;
            equal += usize::from(is_equal);
        }
        self.compared += compared;
        self.equal += equal;
        (equal, compared)
    }

    /// Whether the last line says what it must.
    pub(crate) fn is_right(&self) -> bool {
        self.charges == 1
            && self.duplicates == DUPLICATES
            && self.are_replays_equal()
            && self.restart
            && self.repeated == Some(0)
    }

    fn are_replays_equal(&self) -> bool {
        self.compared > 0 && self.equal == self.compared
    }
}

/// Prints a heading.
pub(crate) fn heading(title: &str) {
    println!("\n{title}");
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "charges: {} of {} duplicates; replays byte-equal: {}; restart: {}; repeated charges after a crash: {}",
            self.charges,
            self.duplicates,
            if self.are_replays_equal() { "yes" } else { "no" },
            if self.restart { "ok" } else { "WRONG" },
            self.repeated.map_or("not counted".into(), |repeated| repeated.to_string()),
        )
    }
}

/// How many clients send one payment at once.
pub(crate) const DUPLICATES: usize = 64;

/// Equal answers counted together, in the order they first came: `1x 201 first, 63x 201 replayed`.
pub(crate) fn tally(answers: impl IntoIterator<Item = String>) -> String {
    let mut groups: Vec<(String, usize)> = Vec::new();
    for answer in answers {
        match groups.iter_mut().find(|(known, _)| *known == answer) {
            Some((_, count)) => *count += 1,
            None => groups.push((answer, 1)),
        }
    }
    groups.sort();
    let groups: Vec<String> = groups.iter().map(|(answer, count)| format!("{count}x {answer}")).collect();
    if groups.is_empty() { "nothing".into() } else { groups.join(", ") }
}

fn line(did: &str, got: &str, is_right: bool) -> String {
    format!("  {} {did} -> {got}", if is_right { "OK   " } else { "WRONG" })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: Totals =
        Totals { duplicates: 64, charges: 1, compared: 63, equal: 63, restart: true, repeated: Some(0) };

    #[test]
    fn the_last_line_is_word_for_word_the_promised_one() {
        assert_eq!(
            RIGHT.to_string(),
            "charges: 1 of 64 duplicates; replays byte-equal: yes; restart: ok; repeated charges after a crash: 0"
        );
        assert!(RIGHT.is_right());
    }

    #[test]
    fn whatever_is_off_shows_in_the_last_line_and_makes_it_wrong() {
        let wrong = [
            (Totals { charges: 0, ..RIGHT }, "charges: 0 of 64"),
            (Totals { charges: 2, ..RIGHT }, "charges: 2 of 64"),
            (Totals { duplicates: 63, ..RIGHT }, "of 63 duplicates"),
            (Totals { equal: 62, ..RIGHT }, "byte-equal: no"),
            (Totals { compared: 0, equal: 0, ..RIGHT }, "byte-equal: no"),
            (Totals { restart: false, ..RIGHT }, "restart: WRONG"),
            (Totals { repeated: Some(1), ..RIGHT }, "after a crash: 1"),
            (Totals { repeated: None, ..RIGHT }, "after a crash: not counted"),
        ];
        for (totals, shown) in wrong {
            assert!(!totals.is_right(), "{totals}");
            assert!(totals.to_string().contains(shown), "{totals}");
        }
        assert!(!Totals::default().is_right());
    }

    #[test]
    fn comparisons_are_counted_whether_they_hold_or_not() {
        let mut totals = Totals::default();
        assert_eq!(totals.compare([true, false, true]), (2, 3));
        assert_eq!(totals.compare([true]), (1, 1));
        assert_eq!((totals.equal, totals.compared), (3, 4));
    }

    #[test]
    fn equal_answers_are_counted_together() {
        let answers = ["201 replayed", "201 first", "201 replayed"].map(str::to_owned);
        assert_eq!(tally(answers), "1x 201 first, 2x 201 replayed");
        assert_eq!(tally([]), "nothing");
    }

    #[test]
    fn one_wrong_line_makes_the_report_wrong() {
        let mut report = Report::default();
        assert!(report.line("this", "that", true) && report.is_right());
        assert!(!report.line("this", "that", false) && !report.is_right());
        assert!(report.line("this", "that", true) && !report.is_right());
        assert_eq!(line("sent", "201", false), "  WRONG sent -> 201");
    }
}
