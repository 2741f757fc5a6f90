//! A page of the interactive views as a command line.

use clap::Parser;

use super::super::shell_word;
use super::super::source::ProfileSource;
use super::Args;
use super::interactive::page_query;
use profile::{Profile, label};
use view::query::{
    AddedFilter, Column, Order, PercentOf, Query, Rows, Shown, ShownFlame, Statistic, Table,
    ValueOptions,
};
use view::{Condition, Direction, Granularity, TimeRange};

/// The options that all pages of a run have in common.
#[derive(Clone, Debug)]
pub(super) struct CommandOptions {
    /// The files.
    pub(super) files: Vec<String>,
    /// Options that no key changes.
    pub(super) options: Vec<String>,
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

/// What a command line cannot have of a page.
const NOTES: [&str; 2] = [
    "(a call tree: prof report prints no boxes)",
    "(in the usual order: no option selects this one)",
];

impl CommandOptions {
    /// The options of a run on these files.
    pub(super) fn new(source: &ProfileSource, options: Vec<String>) -> CommandOptions {
        CommandOptions { files: source.names(), options }
    }

    /// The lines about a page: its command, and what differs. Fails with one line, if there is no
    /// command that shows the same numbers.
    pub(super) fn lines(&self, profile: &Profile, query: &Query) -> Result<Vec<String>, String> {
        if self.files.iter().any(|file| is_pipe(file)) {
            return Err("the profile was read from a pipe: no command reads it again".to_owned());
        }
        if self.files.iter().chain(&self.options).any(|word| word.contains('\u{fffd}')) {
            return Err("the name of a file is not UTF-8, so it cannot be shown".to_owned());
        }
        let (is_flame, is_ordered) =
            (matches!(query.shown, Shown::Flame(_)), query.shown == plain_order(&query.shown));
        let wanted = Query { shown: plain_order(&as_tree(&query.shown)), ..query.clone() };
        let wanted = Query { filters: in_order_of_options(&query.filters)?, ..wanted };
        let mut words = self.options.clone();
        words.extend(view_words(&wanted.shown, &Rows::usual(profile, query.type_index))?);
        if query.type_index != profile.default_type_index() {
            let names = profile.type_names();
            words.extend(names.get(query.type_index).map(|name| format!("--type={name}")));
        }
        if query.collapses_recursion {
            words.push("--collapse-recursion".to_owned());
        }
        if !query.folds_leaf_frames {
            words.push("--all-frames".to_owned());
        }
        if !query.hides_interpreters {
            words.push("--native".to_owned());
        }
        if query.folds_inlined {
            words.push("--no-inlines".to_owned());
        }
        words.extend(value_words(&query.value_options));
        for AddedFilter { condition, value } in &wanted.filters {
            words.push(format!("--{}={value}", condition.name()));
        }
        words.extend(self.files.iter().map(|file| match file.strip_prefix('-') {
            Some(_) => format!("./{file}"),
            None => file.clone(),
        }));
        if parsed(&words, profile).as_ref() != Some(&wanted) {
            return Err("no command of prof report shows this page".to_owned());
        }
        let words = words.iter().map(|word| quoted(word));
        let command = ["prof report".to_owned()].into_iter().chain(words).collect::<Vec<_>>();
        let differs = [is_flame, !is_ordered];
        let notes = NOTES.into_iter().zip(differs).filter(|(_, differs)| *differs);
        let notes = notes.map(|(note, _)| note.to_owned());
        Ok([command.join(" ")].into_iter().chain(notes).collect())
    }
}

/// True if another process cannot read this file again.
fn is_pipe(file: &str) -> bool {
    let begins = ["/dev/fd/", "/dev/stdin", "/proc/self/fd/", "/proc/thread-self/"];
    file == "-" || begins.iter().any(|begin| file.starts_with(begin))
}

/// The options of values and percentages.
fn value_words(options: &ValueOptions) -> Vec<String> {
    let ValueOptions { percent_of, statistic, divide_by, unit } = options;
    let words = [
        (*percent_of == PercentOf::Kept).then(|| "--relative-percentages".to_owned()),
        (*statistic == Statistic::Mean).then(|| "--mean".to_owned()),
        (*divide_by != 1.0).then(|| format!("--divide-by={divide_by}")),
        unit.map(|unit| format!("--unit={}", unit.name())),
    ];
    words.into_iter().flatten().collect()
}

/// The page that the words of a command line show; `None`: they are wrong, or print text.
fn parsed(words: &[String], profile: &Profile) -> Option<Query> {
    let words = ["report"].into_iter().chain(words.iter().map(String::as_str));
    let args = Line::try_parse_from(words).ok()?.args;
    page_query(&args, &args.plan().ok()?, profile).ok()?
}

/// An option with its value in quotes, if that needs some.
fn quoted(word: &str) -> String {
    match word.split_once('=') {
        Some((option, value)) if option.starts_with("--") => {
            format!("{option}={}", shell_word(value))
        }
        _ => shell_word(word).into_owned(),
    }
}

/// A flame graph as its tree.
fn as_tree(shown: &Shown) -> Shown {
    match shown {
        Shown::Flame(ShownFlame { direction, .. }) => Shown::Tree(*direction),
        shown => shown.clone(),
    }
}

/// The same view in the nearest order that options select.
fn plain_order(shown: &Shown) -> Shown {
    match shown {
        Shown::States(Order { column: Column::State(_), .. }) => {
            shown.ordered(Order::by(Column::Total))
        }
        Shown::Table(Table { order, .. }) | Shown::States(order) => {
            shown.ordered(Order::by(order.column))
        }
        Shown::Quality(order) => Shown::Quality(Order::by(order.column)),
        shown => shown.clone(),
    }
}

/// The options of a view; a table without any has the `usual` rows.
fn view_words(shown: &Shown, usual: &Rows) -> Result<Vec<String>, String> {
    let mut keys = match shown {
        Shown::Table(Table { rows, .. }) if rows == usual => Vec::new(),
        Shown::Table(table) => row_keys(&table.rows)?,
        _ => Vec::new(),
    };
    match shown.order().map(|order| order.column) {
        Some(Column::Total) if !matches!(shown, Shown::States(_)) => keys.push("total".to_owned()),
        Some(Column::Name) => keys.push("name".to_owned()),
        _ => {}
    }
    let mut words = match shown {
        Shown::Table(table) if table.has_types() || table.over.is_some() => {
            return Err(
                "the columns of this page are those of the command that opened it".to_owned()
            );
        }
        Shown::Table(_) => Vec::new(),
        Shown::Tree(Direction::Callees) => vec!["--call-graph=caller".to_owned()],
        Shown::Tree(Direction::Callers) => vec!["--call-graph=callee".to_owned()],
        Shown::Sandwich(name) => vec![format!("--sandwich={name}")],
        Shown::Peek(regex) => vec![format!("--peek={regex}")],
        Shown::Traces => vec!["--traces".to_owned()],
        Shown::Tags => vec!["--tags".to_owned()],
        Shown::Coverage => vec!["--coverage".to_owned()],
        Shown::Quality(_) => vec!["--quality".to_owned()],
        Shown::States(_) => vec!["--states".to_owned()],
        other => return Err(other_command(other)),
    };
    if !keys.is_empty() {
        words.push(format!("--sort={}", keys.join(",")));
    }
    Ok(words)
}

/// The command of a page that `prof report` does not have.
fn other_command(shown: &Shown) -> String {
    let command = match shown {
        Shown::Source(_) => "prof annotate",
        Shown::Diff { .. } | Shown::DiffFlame(_) => "prof diff",
        Shown::Threads => "prof threads",
        Shown::Graph(_) => "prof graph",
        Shown::Header => "prof report --header-only",
        _ => "prof flame",
    };
    format!("this page is that of {command}")
}

/// The words of `--sort` for these rows.
fn row_keys(rows: &Rows) -> Result<Vec<String>, String> {
    let Granularity { function, binary, line, file, package, address, .. } = rows.granularity();
    if address {
        return Err("this page is that of prof report --granularity addresses".to_owned());
    }
    let labels = rows.labels().iter().map(|key| match &**key {
        label::PROCESS => key.clone(),
        key => format!("label:{key}"),
    });
    let mut keys: Vec<String> = labels.collect();
    let parts = [
        (package, "package"),
        (function && !line && !package, "symbol"),
        (line, "line"),
        (file, "file"),
        (binary, "binary"),
    ];
    keys.extend(parts.iter().filter(|(is, _)| *is).map(|(_, key)| (*key).to_owned()));
    Ok(keys)
}

/// The filters in the order in which options apply.
///
/// # Errors
///
/// There are two of one condition, or another order has another result.
fn in_order_of_options(filters: &[AddedFilter]) -> Result<Vec<AddedFilter>, String> {
    let place = |added: &AddedFilter| Condition::ALL.iter().position(|&c| c == added.condition);
    for (number, second) in filters.iter().enumerate() {
        for first in &filters[..number] {
            if first.condition == second.condition {
                let name = first.condition.name();
                return Err(format!("a command has one filter {name}, and this page has several"));
            }
            let is_either_time = first.is_time() || second.is_time();
            let are_selecting = [first, second].iter().all(|added| selects(added.condition));
            if place(first) > place(second) && !is_either_time && !are_selecting {
                let (first, second) = (first.condition.name(), second.condition.name());
                return Err(format!(
                    "a command applies {second} before {first}, and this page after it"
                ));
            }
        }
    }
    let mut sorted = filters.to_vec();
    sorted.sort_by_key(place);
    for added in sorted.iter_mut().filter(|added| added.is_time()) {
        if let Ok(range) = TimeRange::parse(&added.value) {
            added.value = range.to_string();
        }
    }
    Ok(sorted)
}

/// True if a condition selects samples, and leaves their frames and labels as they are.
fn selects(condition: Condition) -> bool {
    matches!(
        condition,
        Condition::Focus
            | Condition::Ignore
            | Condition::TagFocus
            | Condition::TagIgnore
            | Condition::Thread
            | Condition::Process
            | Condition::Binary
            | Condition::Time
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::terminal::test_queries::{Random, profiles, random_query};

    /// The words of a command line, as a shell splits it.
    fn split(text: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let (mut is_quoted, mut chars) = (false, text.chars());
        while let Some(c) = chars.next() {
            let word = words.last_mut().unwrap();
            match c {
                '\'' => is_quoted = !is_quoted,
                '\\' if !is_quoted => word.extend(chars.next()),
                ' ' if !is_quoted => words.push(String::new()),
                c => word.push(c),
            }
        }
        words
    }

    fn options(options: &[&str]) -> CommandOptions {
        let options = options.iter().map(|&option| option.to_owned()).collect();
        CommandOptions { files: vec!["it's a file".to_owned()], options }
    }

    #[test]
    fn a_command_shows_the_page_that_it_was_made_of() {
        let (mut random, mut made) = (Random(7), 0);
        for profile in profiles() {
            for _ in 0..50 {
                let query = random_query(&mut random, &profile);
                let Ok(lines) = options(&[]).lines(&profile, &query) else { continue };
                made += 1;
                let words = split(&lines[0]);
                assert_eq!(words[..2], ["prof", "report"]);
                assert_eq!(words.last().unwrap(), "it's a file");
                let found = parsed(&words[2..], &profile).unwrap();
                let mut wanted = query.clone();
                if lines.len() > 1 {
                    wanted.shown = plain_order(&as_tree(&query.shown));
                }
                wanted.filters = in_order_of_options(&query.filters).unwrap();
                assert_eq!(found, wanted, "{lines:?}");
            }
        }
        assert!(made > 100, "{made}");
    }

    #[test]
    fn the_usual_pages_have_commands() {
        let profile = view::testing::states();
        let command = |query: &Query| options(&[]).lines(&profile, query).unwrap().remove(0);
        let values = ValueOptions {
            percent_of: PercentOf::Kept,
            statistic: Statistic::Mean,
            divide_by: 2.5,
            unit: view::query::ShownUnit::parse("us"),
        };
        let usual = Query::new(Shown::table(Rows::usual(&profile, 0)));
        assert_eq!(command(&usual), r"prof report 'it'\''s a file'");
        let functions = Query::new(Shown::functions());
        assert!(command(&functions).contains(" --sort=symbol,binary "), "{}", command(&functions));
        let whole = Query {
            folds_leaf_frames: false,
            hides_interpreters: false,
            value_options: values,
            ..usual
        };
        let words = "--all-frames --native";
        assert!(command(&whole).contains(words), "{}", command(&whole));
        let words = "--relative-percentages --mean --divide-by=2.5 --unit=us";
        assert!(command(&whole).contains(words), "{}", command(&whole));
    }

    #[test]
    fn a_page_without_a_command_has_its_reason() {
        let profile = view::testing::answers();
        let reason = |query: &Query| options(&[]).lines(&profile, query).unwrap_err();
        let added = |condition, value: &str| AddedFilter { condition, value: value.to_owned() };
        let filters = vec![added(Condition::Hide, "a"), added(Condition::Focus, "b")];
        let hidden = Query { filters, ..Query::default() };
        assert!(reason(&hidden).contains("applies focus before hide"), "{}", reason(&hidden));
        let filters = vec![added(Condition::Focus, "a"), added(Condition::Focus, "b")];
        let twice = Query { filters, ..Query::default() };
        assert!(reason(&twice).contains("one filter focus"), "{}", reason(&twice));
        let header = Query::new(Shown::Header);
        assert_eq!(reason(&header), "this page is that of prof report --header-only");
        for (file, reason) in
            [("-", "from a pipe"), ("/dev/fd/63", "from a pipe"), ("caf\u{fffd}.pb", "not UTF-8")]
        {
            let other = CommandOptions { files: vec![file.to_owned()], options: Vec::new() };
            let found = other.lines(&profile, &Query::default()).unwrap_err();
            assert!(found.contains(reason), "{file}: {found}");
        }
        let flame = Query { type_index: 1, ..Query::new(Shown::flame(Direction::Callers)) };
        let lines = options(&["--demangle=short"]).lines(&profile, &flame).unwrap();
        let command = r"prof report --demangle=short --call-graph=callee 'it'\''s a file'";
        assert_eq!(lines, [command, NOTES[0]]);
    }
}
