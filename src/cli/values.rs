//! Arguments that select what values and percentages are.

use view::query::{PercentOf, ValueOptions};

/// What values and percentages are; the names are pprof's.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ValueArgs {
    /// Print percentages of what passes the filters, not of the whole profile
    #[arg(long, alias = "relative_percentages", help_heading = "View")]
    relative_percentages: bool,
}

impl ValueArgs {
    /// The options of a query.
    pub fn options(&self) -> ValueOptions {
        let percent_of = if self.relative_percentages { PercentOf::Kept } else { PercentOf::Total };
        ValueOptions { percent_of }
    }

    /// The first option that is given, with its dashes.
    pub fn given(&self) -> Option<&'static str> {
        self.relative_percentages.then_some("--relative-percentages")
    }
}
