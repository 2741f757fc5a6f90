//! Arguments that select what values and percentages are.

use super::usage;
use profile::Profile;
use view::query::{PercentOf, ShownUnit, ValueOptions};

/// What values and percentages are; the names are pprof's.
#[derive(Clone, Debug, clap::Args)]
pub struct ValueArgs {
    /// Print percentages of what passes the filters, not of the whole profile
    #[arg(long, alias = "relative_percentages", help_heading = "View")]
    relative_percentages: bool,

    /// Divide all values by N, such as the number of requests
    ///
    /// Values are rounded towards 0; percentages are those before.
    #[arg(long, alias = "divide_by", value_name = "N", value_parser = divisor,
          allow_negative_numbers = true, help_heading = "View")]
    divide_by: Option<f64>,

    /// Print all values in UNIT, such as ms, s, kB or MB [default: auto]
    ///
    /// Times have ns, us, ms, s, min and h, bytes B, kB, MB, GB, TB and PB, by 1,024. The default,
    /// auto, is the unit that suits each value. JSON has the unit of the file.
    #[arg(long, value_name = "UNIT", help_heading = "View")]
    unit: Option<String>,
}

/// A number larger than 0.
fn divisor(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "not a number larger than 0".to_owned())
}

impl ValueArgs {
    /// The options of a query. The unit may not fit: see [`ValueArgs::check`].
    pub fn options(&self) -> ValueOptions {
        let percent_of = if self.relative_percentages { PercentOf::Kept } else { PercentOf::Total };
        ValueOptions {
            percent_of,
            divide_by: self.divide_by.unwrap_or(1.0),
            unit: self.unit.as_deref().and_then(ShownUnit::parse),
            ..ValueOptions::default()
        }
    }

    /// Fails if values of this sample type do not have the unit.
    pub fn check(&self, profile: &Profile, type_index: usize) -> anyhow::Result<()> {
        let shown = profile.sample_types.get(type_index);
        let (Some(wanted), Some(shown)) = (self.unit.as_deref(), shown) else { return Ok(()) };
        let (kind, unit) = (profile.str(shown.kind), profile.str(shown.unit));
        let fits = ShownUnit::parse(wanted).is_some_and(|shown| shown.convert(0, unit).is_some());
        if fits || wanted == "auto" || wanted == unit {
            return Ok(());
        }
        let fitting = match ShownUnit::fitting(unit).as_slice() {
            [] => unit.to_owned(),
            units => units.join(", ").replace("hrs", "h"),
        };
        Err(usage(format!("--unit {wanted}: {kind} is in {unit}; use {fitting} or auto")))
    }

    /// The first option that is given, with its dashes.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            (self.relative_percentages, "--relative-percentages"),
            (self.divide_by.is_some(), "--divide-by"),
            (self.unit.is_some(), "--unit"),
        ];
        given.into_iter().find(|(is_given, _)| *is_given).map(|(_, name)| name)
    }
}
