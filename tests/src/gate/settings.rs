//! How a worker is started.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::{Failure, Plant};

/// What is done about a step in doubt, and so what the provider has to be able to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Doubt {
    /// Called again: the provider collapses calls with one downstream key.
    Repeat,
    /// Asked about: the provider can be asked by downstream key, and books every call.
    Reconcile,
    /// Held: the provider can do neither.
    Hold,
}

/// How a worker is started.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Settings {
    /// The store's file.
    pub store: PathBuf,
    /// Where charges are booked.
    pub charges: SocketAddr,
    /// Where mails are sent.
    pub mails: SocketAddr,
    /// What is done about a step in doubt.
    pub doubt: Doubt,
    /// The claims' lease.
    pub lease: Duration,
    /// The longest call.
    pub limit: Duration,
    /// How long after its limit a call may still be booked.
    pub settle: Duration,
    /// When a call is given up; by the rules no later than its limit.
    pub patience: Duration,
    /// Whether leases are renewed.
    pub renews: bool,
    /// Whether this worker finishes what is abandoned.
    pub completes: bool,
    /// The mistake it makes.
    pub plant: Option<Plant>,
}

impl Doubt {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Repeat, Self::Reconcile, Self::Hold];

    fn name(self) -> &'static str {
        match self {
            Self::Repeat => "repeat",
            Self::Reconcile => "reconcile",
            Self::Hold => "hold",
        }
    }
}

impl Settings {
    /// These settings as a worker's arguments.
    pub fn arguments(&self) -> Vec<String> {
        let millis = |span: Duration| span.as_millis().to_string();
        let words = [
            self.store.to_string_lossy().into_owned(),
            self.charges.to_string(),
            self.mails.to_string(),
            self.doubt.name().into(),
            millis(self.lease),
            millis(self.limit),
            millis(self.settle),
            millis(self.patience),
            self.renews.to_string(),
            self.completes.to_string(),
            self.plant.map_or("none", Plant::name).into(),
        ];
        words.into()
    }

    pub(super) fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let [store, charges, mails, doubt, lease, limit, settle, patience, renews, completes, plant] =
            arguments
        else {
            return Err("a worker takes eleven arguments, see gate::Settings".into());
        };
        let millis = |text: &str| text.parse().map(Duration::from_millis);
        Ok(Self {
            store: store.into(),
            charges: charges.parse()?,
            mails: mails.parse()?,
            doubt: Doubt::ALL.into_iter().find(|known| known.name() == doubt).ok_or("no such doubt")?,
            lease: millis(lease)?,
            limit: millis(limit)?,
            settle: millis(settle)?,
            patience: millis(patience)?,
            renews: renews.parse()?,
            completes: completes.parse()?,
            plant: Plant::named(plant),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_understands_the_settings_it_is_given() {
        let addr = SocketAddr::from(([127, 0, 0, 1], 80));
        for doubt in Doubt::ALL {
            let settings = Settings {
                store: "a file".into(),
                charges: addr,
                mails: addr,
                doubt,
                lease: Duration::from_millis(1),
                limit: Duration::from_millis(2),
                settle: Duration::from_millis(3),
                patience: Duration::from_millis(4),
                renews: true,
                completes: false,
                plant: Some(Plant::NoSettling),
            };
            assert_eq!(Settings::parse(&settings.arguments()).expect("understood"), settings);
        }
    }
}
