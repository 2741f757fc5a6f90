//! Arguments that select samples and frames, and the style of names.

use regex::Regex;

use super::usage;
use crate::report::style::{Style, restyle};
use profile::Profile;
use symbols::refused;
use sys::printed::Stderr;
use view::Filter;

/// Which samples and frames a view shows; the names are pprof's.
#[derive(Debug, clap::Args)]
pub struct FilterArgs {
    /// Sample type to show, such as cpu, samples or inuse_space [default: what the profile says,
    /// else its last]
    #[arg(long = "type", value_name = "TYPE", visible_alias = "sample_index")]
    pub sample_type: Option<String>,

    /// Only samples with a frame whose function, source file or binary matches
    #[arg(long, value_name = "REGEX")]
    pub focus: Option<String>,

    /// No samples with a frame that matches
    #[arg(long, value_name = "REGEX")]
    pub ignore: Option<String>,

    /// Only frames that match; their callees' values become theirs
    #[arg(long, value_name = "REGEX")]
    pub show: Option<String>,

    /// No frames that match; their values become their callers'
    #[arg(long, value_name = "REGEX")]
    pub hide: Option<String>,

    /// Write C++ and Rust names as in the binary (none), without template arguments (short), with
    /// them (templates), or with parameters, too (full) [default: as the file has them]
    #[arg(long, value_name = "STYLE", value_parser = style)]
    pub demangle: Option<Style>,
}

fn style(word: &str) -> Result<Style, String> {
    Ok(match word {
        "none" => Style::None,
        "short" => Style::Short,
        "templates" => Style::Templates,
        "full" => Style::Full,
        _ => return Err("use none, short, templates or full".to_string()),
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
