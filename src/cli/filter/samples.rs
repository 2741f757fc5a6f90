//! The options that select samples, frames and labels.

use std::path::Path;
use std::sync::Arc;

use super::super::output::Output;
use super::super::output::replaced::{self, Written};
use super::super::time::TimeArgs;
use super::super::{summary, usage};
use super::perf_names::NameArgs;
use crate::report::answer;
use formats::Format;
use profile::Profile;
use sys::printed::Stderr;
use view::query::AddedFilter;
use view::{Cancel, Condition, Part, length_micros};

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

    /// Names of processes, binaries and functions, as in perf
    #[command(flatten)]
    pub names: NameArgs,

    /// The part of the recording
    #[command(flatten)]
    pub time: TimeArgs,
}

impl SampleArgs {
    /// The filters, in the order in which they apply.
    pub fn added(&self) -> Vec<AddedFilter> {
        let given = Condition::ALL.into_iter().filter_map(|condition| {
            let value = self.value(condition).filter(|value| !value.is_empty())?;
            Some(AddedFilter { condition, value })
        });
        given.collect()
    }

    /// Fails if a value is no filter. Called before profiles are read or recorded.
    pub fn check(&self) -> anyhow::Result<()> {
        self.added().iter().try_for_each(|added| match added.filter() {
            Ok(_) => Ok(()),
            Err(error) => Err(usage(answer::wrong_filter(added, &error))),
        })
    }

    /// The part of a profile that passes the filters. Prints those that nothing meets.
    pub fn part(&self, profile: Arc<Profile>) -> anyhow::Result<Part> {
        let length = self.time.is_given().then(|| length_micros(&profile));
        let part = Part::whole(profile).filtered(&self.added(), &Cancel::default());
        let part = part.map_err(|error| anyhow::anyhow!(answer::reason(&error)))?;
        if let Some(length) = length {
            self.time.note(&part, length);
        }
        for added in part.unmatched.iter().filter(|added| !added.is_time()) {
            Stderr::line(&format!("prof: {}", unmatched(added)));
        }
        Ok(part)
    }

    /// The text of a condition, if it is given.
    pub fn value(&self, condition: Condition) -> Option<String> {
        let keys = |keys: &[String]| (!keys.is_empty()).then(|| keys.join(","));
        self.names.value(condition).or_else(|| match condition {
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
        })
    }
}

/// The sentence about a filter that nothing meets.
fn unmatched(added: &AddedFilter) -> String {
    let value = super::super::shell_word(&added.value);
    format!("--{} {value}: {}", added.condition.name(), added.condition.nothing_found())
}

/// A file for a filtered or merged profile. Fails if there is another file than one of pprof.
pub fn output(path: &Path) -> anyhow::Result<Output> {
    output_as(path, &formats::pprof::Pprof)
}

/// A file for a profile in this format. Fails if there is another file than one of it, such as a
/// recording or a source file.
pub fn output_as(path: &Path, format: &'static dyn Format) -> anyhow::Result<Output> {
    replaced::check(path, Written::Profile(format))?;
    if format.is_text() { Output::create_any(path) } else { Output::create(path) }
}

/// Writes what remains of a profile, and prints its size.
pub fn write(profile: Profile, output: Output) -> anyhow::Result<()> {
    let path = output.path().to_owned();
    let to_stdout = output.is_stdout();
    let bytes = output.write(&profile::into_compact(profile))?;
    if !to_stdout {
        summary::written(&mut Stderr, &path, bytes, None)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(condition: Condition, value: &str) -> String {
        let value = Some(value.to_owned());
        let args = match condition {
            Condition::Focus => SampleArgs { focus: value, ..SampleArgs::default() },
            Condition::ShowFrom => SampleArgs { show_from: value, ..SampleArgs::default() },
            Condition::TagFocus => SampleArgs { tagfocus: value, ..SampleArgs::default() },
            _ => SampleArgs { tagignore: value, ..SampleArgs::default() },
        };
        args.check().unwrap_err().to_string()
    }

    #[test]
    fn bad_expressions_are_refused() {
        assert_eq!(
            error(Condition::Focus, "("),
            "--focus: \"(\" is not a regular expression: unclosed group"
        );
        assert!(!error(Condition::Focus, "(a{1000}){1000}").contains('\n'));
        let start = "--show-from: \"\\pX\"\\x1b\" is not a regular expression: ";
        let found = error(Condition::ShowFrom, "\\pX\"\\x1b");
        assert!(found.starts_with(start), "{found}");
        assert_eq!(
            error(Condition::TagFocus, "key=a,["),
            "--tagfocus: \"[\" is not a regular expression: unclosed character class"
        );
        assert_eq!(
            error(Condition::TagIgnore, "1:99999999999999999999kb"),
            "--tagignore: 99999999999999999999 is beyond 64 bits"
        );
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
            let added = AddedFilter { condition: Condition::Focus, value: format!("^{class}$") };
            let expression = added.filter().unwrap().focus.unwrap();
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
        let text = |condition| {
            let value = args.value(condition).unwrap();
            unmatched(&AddedFilter { condition, value })
        };
        assert_eq!(text(Condition::Focus), "--focus 'a b': no frame matches");
        assert_eq!(text(Condition::TagRoot), "--tagroot x,y: no sample has such a label");
    }
}
