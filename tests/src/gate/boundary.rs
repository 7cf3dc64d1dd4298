//! The places at which a worker is killed.

use std::fmt;

/// A phase of an order that reaches outside the store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// Money moves.
    Charge,
    /// The receipt is sent.
    Mail,
}

/// A place between two things that a worker does, in the order in which it comes by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Boundary {
    /// The request is there, nothing is claimed.
    BeforeClaim,
    /// The claim is won, nothing else.
    Claimed,
    /// The order's row is recorded; the charge is not yet intended.
    Ordered,
    /// The intent is recorded, the call not sent.
    Intended(Step),
    /// The provider has the call and has not booked it; it does after the worker's death.
    Waiting(Step),
    /// The provider has booked it and not answered.
    Booked(Step),
    /// The answer is there and not recorded.
    Answered(Step),
    /// The result is recorded; the next step is not yet intended, or the outcome not yet told.
    Finished(Step),
    /// The outcome is recorded and nobody was told.
    Completed,
}

impl Step {
    /// The step's name on the claim.
    pub fn name(self) -> &'static str {
        match self {
            Self::Charge => "charge",
            Self::Mail => "mail",
        }
    }
}

impl Boundary {
    /// All of them, in their order.
    pub const ALL: [Self; 14] = [
        Self::BeforeClaim,
        Self::Claimed,
        Self::Ordered,
        Self::Intended(Step::Charge),
        Self::Waiting(Step::Charge),
        Self::Booked(Step::Charge),
        Self::Answered(Step::Charge),
        Self::Finished(Step::Charge),
        Self::Intended(Step::Mail),
        Self::Waiting(Step::Mail),
        Self::Booked(Step::Mail),
        Self::Answered(Step::Mail),
        Self::Finished(Step::Mail),
        Self::Completed,
    ];

    /// The boundary that is displayed as this.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|boundary| boundary.to_string() == name)
    }

    /// Whether a worker comes by this one before the other.
    pub fn is_before(self, other: Self) -> bool {
        let at = |wanted| Self::ALL.iter().position(|boundary| *boundary == wanted);
        at(self) < at(other)
    }

    /// Whether it is for the provider to stop the worker here.
    pub fn is_the_providers(self) -> bool {
        matches!(self, Self::Waiting(_) | Self::Booked(_))
    }

    /// The step whose call may or may not have happened, for all that the store knows here.
    pub fn in_doubt(self) -> Option<Step> {
        match self {
            Self::Intended(step) | Self::Waiting(step) | Self::Booked(step) | Self::Answered(step) => {
                Some(step)
            }
            Self::BeforeClaim | Self::Claimed | Self::Ordered | Self::Finished(_) | Self::Completed => None,
        }
    }
}

impl fmt::Display for Boundary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (place, step) = match self {
            Self::BeforeClaim => return f.write_str("before-claim"),
            Self::Claimed => return f.write_str("claimed"),
            Self::Ordered => return f.write_str("ordered"),
            Self::Completed => return f.write_str("completed"),
            Self::Intended(step) => ("intended", step),
            Self::Waiting(step) => ("waiting", step),
            Self::Booked(step) => ("booked", step),
            Self::Answered(step) => ("answered", step),
            Self::Finished(step) => ("finished", step),
        };
        write!(f, "{}-{place}", step.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_boundary_is_found_by_its_name() {
        for boundary in Boundary::ALL {
            assert_eq!(Boundary::named(&boundary.to_string()), Some(boundary));
        }
        assert_eq!(Boundary::named("elsewhere"), None);
    }
}
