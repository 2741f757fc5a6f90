//! Arguments that select samples and frames, and the style of names.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use regex::Regex;

use super::usage;
use crate::report::style::{Style, restyle};
use profile::Profile;
use symbols::refused;
use sys::printed::Stderr;
use view::Filter;

/// The heading of the filters in help.
const HEADING: &str = "Filters";

/// The samples and frames that a view shows; the names are pprof's.
#[derive(Debug, clap::Args)]
pub struct FilterArgs {
    /// Sample type to show, such as cpu, samples or inuse_space
    ///
    /// The default is the profile's default type, or its last type if it has none. pprof's name of
    /// this option, --sample_index, works too.
    #[arg(
        long = "type",
        value_name = "SAMPLE_TYPE",
        alias = "sample_index",
        help_heading = "View"
    )]
    pub sample_type: Option<String>,

    /// Show only samples with a frame that matches
    ///
    /// A frame matches if its function, source file or binary contains a match of REGEX.
    #[arg(long, value_name = "REGEX", help_heading = HEADING)]
    pub focus: Option<String>,

    /// Leave out samples with a frame that matches
    #[arg(long, value_name = "REGEX", help_heading = HEADING)]
    pub ignore: Option<String>,

    /// Show only frames that match; values of others go to their callers
    #[arg(long, value_name = "REGEX", help_heading = HEADING)]
    pub show: Option<String>,

    /// Leave out frames that match; their values go to their callers
    #[arg(long, value_name = "REGEX", help_heading = HEADING)]
    pub hide: Option<String>,

    /// Style of C++ and Rust names [default: as in the profile]
    #[arg(long, value_name = "STYLE", value_parser = style(), help_heading = "Symbols")]
    pub demangle: Option<Style>,
}

fn style() -> impl TypedValueParser<Value = Style> {
    let value = |name, help| PossibleValue::new(name).help(help);
    let values = PossibleValuesParser::new([
        value("none", "Mangled, as in the binary"),
        value("short", "Without template arguments and parameters"),
        value("templates", "With template arguments"),
        value("full", "With template arguments and parameters"),
    ]);
    values.map(|name| match name.as_str() {
        "none" => Style::None,
        "short" => Style::Short,
        "templates" => Style::Templates,
        _ => Style::Full,
    })
}

impl FilterArgs {
    /// The filter. Fails if a value is not a regular expression.
    pub fn filter(&self) -> anyhow::Result<Filter> {
        Ok(Filter {
            focus: regex("--focus", self.focus.as_deref())?,
            ignore: regex("--ignore", self.ignore.as_deref())?,
            show: regex("--show", self.show.as_deref())?,
            hide: regex("--hide", self.hide.as_deref())?,
        })
    }

    /// Writes the names in the style of `--demangle`.
    pub fn restyle(&self, profile: &mut Profile) {
        let Some(style) = self.demangle else { return };
        let left = if style == Style::None { 0 } else { refused(profile) };
        restyle(profile, style);
        if left > 0 {
            let s = if left == 1 { " is" } else { "s are" };
            let text = "left mangled: demangled, they would be too long";
            Stderr::line(&format!("prof: {left} name{s} {text}"));
        }
    }

    /// Index of the sample type to show. Fails when the profile has no such type.
    pub fn type_index(&self, profile: &Profile) -> anyhow::Result<usize> {
        let Some(wanted) = &self.sample_type else { return Ok(profile.default_type_index()) };
        profile.type_index(wanted).ok_or_else(|| {
            let kinds: Vec<_> = profile.sample_types.iter().map(|t| profile.str(t.kind)).collect();
            let there = if kinds.is_empty() { "none".to_string() } else { kinds.join(", ") };
            usage(format!("--type: the profile has no sample type {wanted:?}; it has: {there}"))
        })
    }
}

/// Parses a regular expression; the error is one line.
fn regex(option: &str, text: Option<&str>) -> anyhow::Result<Option<Regex>> {
    let Some(text) = text else { return Ok(None) };
    Regex::new(text).map(Some).map_err(|error| {
        let message = error.to_string();
        let last = message.lines().last().unwrap_or_default().trim_start_matches("error: ");
        usage(format!("{option}: {text:?} is not a regular expression: {last}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_expressions_are_refused() {
        let error = regex("--focus", Some("(")).unwrap_err().to_string();
        assert_eq!(error, "--focus: \"(\" is not a regular expression: unclosed group");
        assert!(
            regex("--focus", Some("(a{1000}){1000}")).is_err_and(|e| !e.to_string().contains('\n'))
        );
    }
}
