//! The options that select samples, frames and labels.

use std::path::Path;

use regex::Regex;

use super::super::output::Output;
use super::super::time::TimeArgs;
use super::super::{summary, usage};
use crate::report::text::quoted;
use profile::Profile;
use sys::printed::Stderr;
use view::query::regex_reason;
use view::{Condition, Filter, Selector, TagError, TagMatch};

/// The heading of the filters in help.
const HEADING: &str = "Filters";

/// The samples, frames and labels that remain; the names are pprof's.
#[derive(Debug, Default, clap::Args)]
pub struct SampleArgs {
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

    /// Leave out the callers of the outermost frame that matches
    ///
    /// Samples without such a frame are left out.
    #[arg(long, value_name = "REGEX", alias = "show_from", help_heading = HEADING)]
    pub show_from: Option<String>,

    /// Leave out the callees of the innermost function that matches
    #[arg(long, value_name = "REGEX", alias = "prune_from", help_heading = HEADING)]
    pub prune_from: Option<String>,

    /// Show only samples with labels that match
    ///
    /// [KEY=]REGEX,REGEX or a range of numbers with a unit: [KEY=]1kb:2mb, :10ms, 5s: or 32kb. With
    /// KEY, one of the expressions has to match its value. Without, each of them has to match one
    /// of the labels, written as KEY:VALUE.
    #[arg(long, value_name = "LABELS", help_heading = HEADING)]
    pub tagfocus: Option<String>,

    /// Leave out samples with labels that match
    #[arg(long, value_name = "LABELS", help_heading = HEADING)]
    pub tagignore: Option<String>,

    /// Keep only labels whose key matches
    #[arg(long, value_name = "REGEX", help_heading = HEADING)]
    pub tagshow: Option<String>,

    /// Remove labels whose key matches
    #[arg(long, value_name = "REGEX", help_heading = HEADING)]
    pub taghide: Option<String>,

    /// Add the values of labels as outermost frames
    #[arg(long, value_name = "KEYS", value_delimiter = ',', help_heading = HEADING)]
    pub tagroot: Vec<String>,

    /// Add the values of labels as innermost frames
    #[arg(long, value_name = "KEYS", value_delimiter = ',', help_heading = HEADING)]
    pub tagleaf: Vec<String>,

    /// Show only samples of a thread, by name, TID or REGEX
    ///
    /// REGEX is matched with names if no thread has this name or TID.
    #[arg(long, value_name = "THREAD", help_heading = HEADING)]
    pub thread: Option<String>,

    /// Show only samples of a process, by name, PID or REGEX
    #[arg(long, value_name = "PROCESS", help_heading = HEADING)]
    pub process: Option<String>,

    /// Show only samples with a frame in a binary, by name, path, build ID or REGEX
    #[arg(long, value_name = "BINARY", help_heading = HEADING)]
    pub binary: Option<String>,

    /// The part of the recording
    #[command(flatten)]
    pub time: TimeArgs,
}

impl SampleArgs {
    /// The filter. Fails if a value is not a regular expression.
    pub fn filter(&self) -> anyhow::Result<Filter> {
        let keys = |keys: &[String]| keys.iter().filter(|key| !key.is_empty()).cloned().collect();
        let selector = |text: &Option<String>| text.as_deref().map(Selector::new);
        Ok(Filter {
            focus: regex("--focus", self.focus.as_deref())?,
            ignore: regex("--ignore", self.ignore.as_deref())?,
            show: regex("--show", self.show.as_deref())?,
            hide: regex("--hide", self.hide.as_deref())?,
            show_from: regex("--show-from", self.show_from.as_deref())?,
            prune_from: regex("--prune-from", self.prune_from.as_deref())?,
            tag_focus: tag_match("--tagfocus", self.tagfocus.as_deref())?,
            tag_ignore: tag_match("--tagignore", self.tagignore.as_deref())?,
            tag_show: regex("--tagshow", self.tagshow.as_deref())?,
            tag_hide: regex("--taghide", self.taghide.as_deref())?,
            tag_root: keys(&self.tagroot),
            tag_leaf: keys(&self.tagleaf),
            thread: selector(&self.thread),
            process: selector(&self.process),
            binary: selector(&self.binary),
            // Selected before: the beginning of the part is needed, too.
            time: None,
        })
    }

    /// The profile through the filter. Conditions that nothing meets are printed.
    /// Returns also the beginning of the selected time in microseconds since that of the recording.
    pub fn apply(&self, filter: &Filter, profile: Profile) -> anyhow::Result<(Profile, u64)> {
        let (profile, from) = self.time.select(profile)?;
        let filtered = filter.apply(profile);
        for condition in filtered.unmatched {
            Stderr::line(&format!("prof: {}", self.unmatched(condition)));
        }
        Ok((filtered.profile, from))
    }

    /// The text of a condition, if it is given.
    pub fn value(&self, condition: Condition) -> Option<String> {
        let keys = |keys: &[String]| (!keys.is_empty()).then(|| keys.join(","));
        match condition {
            Condition::Focus => self.focus.clone(),
            Condition::Ignore => self.ignore.clone(),
            Condition::Show => self.show.clone(),
            Condition::Hide => self.hide.clone(),
            Condition::ShowFrom => self.show_from.clone(),
            Condition::PruneFrom => self.prune_from.clone(),
            Condition::TagFocus => self.tagfocus.clone(),
            Condition::TagIgnore => self.tagignore.clone(),
            Condition::TagShow => self.tagshow.clone(),
            Condition::TagHide => self.taghide.clone(),
            Condition::TagRoot => keys(&self.tagroot),
            Condition::TagLeaf => keys(&self.tagleaf),
            Condition::Thread => self.thread.clone(),
            Condition::Process => self.process.clone(),
            Condition::Binary => self.binary.clone(),
            Condition::Time => self.time.text(),
        }
    }

    /// The sentence about a condition that nothing meets.
    fn unmatched(&self, condition: Condition) -> String {
        let value = self.value(condition).unwrap_or_default();
        let value = super::super::shell_word(&value);
        format!("--{} {value}: {}", condition.name(), condition.nothing_found())
    }
}

/// A file for a filtered or merged profile. Fails if there is another file than a profile.
pub fn output(path: &Path) -> anyhow::Result<Output> {
    let has_content = path.is_file() && path.metadata().is_ok_and(|m| m.len() > 0);
    if path != Path::new("-")
        && has_content
        && let Err(error) = formats::read_file(path)
    {
        anyhow::bail!("will not replace a file that is not a profile; choose another: {error}");
    }
    Output::create(path)
}

/// Writes what remains of a profile, and prints its size.
pub fn write(profile: &Profile, output: Output) -> anyhow::Result<()> {
    let path = output.path().to_owned();
    let to_stdout = output.is_stdout();
    let bytes = output.write(&profile::compact(profile))?;
    if !to_stdout {
        summary::written(&mut Stderr, &path, bytes, None)?;
    }
    Ok(())
}

/// Parses a regular expression; the error is one line.
fn regex(option: &str, text: Option<&str>) -> anyhow::Result<Option<Regex>> {
    let compile = |text: &str| Regex::new(text).map_err(|error| not_a_regex(option, text, &error));
    // As in pprof, an empty expression is none.
    text.filter(|text| !text.is_empty()).map(compile).transpose()
}

fn tag_match(option: &str, text: Option<&str>) -> anyhow::Result<Option<TagMatch>> {
    let parse = |text: &str| {
        TagMatch::parse(text).map_err(|error| match error {
            TagError::Regex(part, error) => not_a_regex(option, &part, &error),
            error @ TagError::TooLarge(_) => usage(format!("{option}: {error}")),
        })
    };
    text.filter(|text| !text.is_empty()).map(parse).transpose()
}

fn not_a_regex(option: &str, text: &str, error: &regex::Error) -> anyhow::Error {
    let reason = regex_reason(error);
    usage(format!("{option}: {} is not a regular expression: {reason}", quoted(text)))
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
        let error = regex("--focus", Some("\\pX\"\\x1b")).unwrap_err().to_string();
        let start = "--focus: \"\\pX\"\\x1b\" is not a regular expression: ";
        assert!(error.starts_with(start), "{error}");
        let error = tag_match("--tagfocus", Some("key=a,[")).unwrap_err().to_string();
        assert_eq!(
            error,
            "--tagfocus: \"[\" is not a regular expression: unclosed character class"
        );
        let error = tag_match("--tagignore", Some("1:99999999999999999999kb")).unwrap_err();
        assert_eq!(error.to_string(), "--tagignore: 99999999999999999999 is beyond 64 bits");
    }

    #[test]
    fn classes_of_characters_are_those_of_go() {
        for (class, has, has_not) in [
            (r"\pN", "7", "x"),
            (r"\p{Lu}", "Ä", "ä"),
            (r"\PL", "7", "x"),
            (r"[^\pL]", "_", "é"),
            (r"\p{Greek}", "λ", "l"),
            (r"\p{Han}", "漢", "a"),
            (r"\P{Greek}", "l", "λ"),
            (r"(?i)É", "é", "e"),
        ] {
            let expression = regex("--focus", Some(&format!("^{class}$"))).unwrap().unwrap();
            assert!(expression.is_match(has) && !expression.is_match(has_not), "{class}");
        }
    }

    #[test]
    fn conditions_without_a_match_are_named() {
        let args = SampleArgs {
            focus: Some("a b".into()),
            tagroot: vec!["x".into(), "y".into()],
            ..SampleArgs::default()
        };
        assert_eq!(args.unmatched(Condition::Focus), "--focus 'a b': no frame matches");
        let root = args.unmatched(Condition::TagRoot);
        assert_eq!(root, "--tagroot x,y: no sample has such a label");
    }
}
