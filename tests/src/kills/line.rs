//! What a child says: a line for each answer, and for what may have happened although it was not answered.

use std::fmt;

/// The first line of a child that has opened the store and begins to work.
pub(crate) const READY: &str = "ready";

/// One line. Keys are told by their number.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Line {
    Ready,
    /// It is about to claim with this row; `attempt_name` is what the row will hold.
    Trying {
        key: u64,
        attempt_name: String,
    },
    /// It is about to abandon or release.
    LettingGo {
        key: u64,
        token: u64,
    },
    /// It is about to count.
    Counting {
        counter: u64,
    },
    /// Won. The lease is over at `until_ms`, and store time was at most `now_ms` when it was won.
    Won {
        key: u64,
        token: u64,
        generation: u64,
        attempt: u32,
        kind: String,
        until_ms: u64,
        now_ms: u64,
        point: String,
        steps: String,
        attempt_name: String,
    },
    /// Answered again: the length and checksum of the body.
    Replayed {
        key: u64,
        len: u64,
        sum: u64,
    },
    /// A step was finished.
    Stepped {
        key: u64,
        token: u64,
        name: String,
    },
    /// A recovery point was recorded.
    Pointed {
        key: u64,
        token: u64,
        name: String,
    },
    /// The lease runs until then.
    Renewed {
        key: u64,
        token: u64,
        until_ms: u64,
    },
    /// Completed. `moved` says what moved in the same transaction, if it was one.
    Done {
        key: u64,
        token: u64,
        moved: u64,
    },
    /// Held for a person.
    Held {
        key: u64,
        token: u64,
    },
    /// A counter was set.
    Counted {
        counter: u64,
        version: u64,
        value: u64,
    },
    /// A pass of the reaper.
    Reaped {
        changes: u64,
    },
    /// Something that must not be.
    Wrong(String),
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str(READY),
            Self::Trying { key, attempt_name } => write!(f, "trying {key} {attempt_name}"),
            Self::LettingGo { key, token } => write!(f, "letting-go {key} {token}"),
            Self::Counting { counter } => write!(f, "counting {counter}"),
            Self::Won {
                key,
                token,
                generation,
                attempt,
                kind,
                until_ms,
                now_ms,
                point,
                steps,
                attempt_name,
            } => write!(
                f,
                "won {key} {token} {generation} {attempt} {kind} {until_ms} {now_ms} {point} {steps} {attempt_name}"
            ),
            Self::Replayed { key, len, sum } => write!(f, "replayed {key} {len} {sum}"),
            Self::Stepped { key, token, name } => write!(f, "stepped {key} {token} {name}"),
            Self::Pointed { key, token, name } => write!(f, "pointed {key} {token} {name}"),
            Self::Renewed { key, token, until_ms } => write!(f, "renewed {key} {token} {until_ms}"),
            Self::Done { key, token, moved } => write!(f, "done {key} {token} {moved}"),
            Self::Held { key, token } => write!(f, "held {key} {token}"),
            Self::Counted { counter, version, value } => write!(f, "counted {counter} {version} {value}"),
            Self::Reaped { changes } => write!(f, "reaped {changes}"),
            Self::Wrong(what) => write!(f, "wrong {}", what.replace(char::is_whitespace, "_")),
        }
    }
}

impl Line {
    /// The line behind this text; none if it is no line.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let name = words.next()?;
        let rest: Vec<&str> = words.collect();
        let number = |at: usize| rest.get(at)?.parse::<u64>().ok();
        let word = |at: usize| rest.get(at).map(|word| (*word).to_owned());
        Some(match name {
            READY => Self::Ready,
            "trying" => Self::Trying { key: number(0)?, attempt_name: word(1)? },
            "letting-go" => Self::LettingGo { key: number(0)?, token: number(1)? },
            "counting" => Self::Counting { counter: number(0)? },
            "won" => Self::Won {
                key: number(0)?,
                token: number(1)?,
                generation: number(2)?,
                attempt: number(3)?.try_into().ok()?,
                kind: word(4)?,
                until_ms: number(5)?,
                now_ms: number(6)?,
                point: word(7)?,
                steps: word(8)?,
                attempt_name: word(9)?,
            },
            "replayed" => Self::Replayed { key: number(0)?, len: number(1)?, sum: number(2)? },
            "stepped" => Self::Stepped { key: number(0)?, token: number(1)?, name: word(2)? },
            "pointed" => Self::Pointed { key: number(0)?, token: number(1)?, name: word(2)? },
            "renewed" => Self::Renewed { key: number(0)?, token: number(1)?, until_ms: number(2)? },
            "done" => Self::Done { key: number(0)?, token: number(1)?, moved: number(2)? },
            "held" => Self::Held { key: number(0)?, token: number(1)? },
            "counted" => Self::Counted { counter: number(0)?, version: number(1)?, value: number(2)? },
            "reaped" => Self::Reaped { changes: number(0)? },
            "wrong" => Self::Wrong(word(0)?),
            _ => return None,
        })
    }
}
