//! The options of `prof report` that select a view.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};

use view::Sort;
use view::query::{Column, Order, Shown};

/// The options that select a view.
#[derive(Debug, Default)]
pub(super) struct ViewArgs {
    option: Option<&'static ViewOption>,
    /// The value of the option.
    value: String,
}

impl ViewArgs {
    /// The view in this order, if an option selects one.
    pub(super) fn shown(&self, order: Sort) -> Option<Shown> {
        self.option.map(|option| (option.view)(self.value.clone(), order))
    }

    /// The name of the option that is given.
    pub(super) fn option(&self) -> Option<&'static str> {
        self.option.map(|option| option.name)
    }
}

/// An option that selects a view.
#[derive(Debug)]
struct ViewOption {
    name: &'static str,
    /// One line for `-h`.
    help: &'static str,
    /// More for `--help`.
    long_help: &'static str,
    /// The name of its value, if it has one.
    value_name: Option<&'static str>,
    /// Other options, by their names in clap, that have no meaning for it.
    conflicts: &'static [&'static str],
    /// The view that it selects with its value, in an order.
    view: fn(String, Sort) -> Shown,
}

static OPTIONS: [ViewOption; 7] = [
    ViewOption {
        name: "sandwich",
        help: "Print all callers of FUNCTION, and all that it calls",
        long_help: "Print all callers of FUNCTION, and all that it calls\n\n\
            As two call trees, each merged over all places where FUNCTION occurs. FUNCTION is a \
            name, or else a regular expression. In a recursion, the outermost call counts.",
        value_name: Some("FUNCTION"),
        conflicts: &["call_graph"],
        view: |function, _| Shown::Sandwich(function),
    },
    ViewOption {
        name: "peek",
        help: "Print the direct callers and callees of functions that match",
        long_help: "Print the direct callers and callees of functions that match\n\n\
            As pprof's peek: the calls have the value of the samples that contain them, and its \
            percentage of the function's total.",
        value_name: Some("REGEX"),
        conflicts: &["call_graph"],
        view: |regex, _| Shown::Peek(regex),
    },
    ViewOption {
        name: "traces",
        help: "Print the stacks one by one, with their labels, largest first",
        long_help: "Print the stacks one by one, with their labels, largest first\n\n\
            As pprof's traces, with the times of 'prof record --timestamps'. -n is the number of \
            stacks, --lines adds source lines.",
        value_name: None,
        conflicts: &["call_graph", "percent_limit"],
        view: |_, _| Shown::Traces,
    },
    ViewOption {
        name: "tags",
        help: "Print all labels, each value with its share of the label's total",
        long_help: "Print all labels, each value with its share of the label's total\n\n\
            As pprof's tags. -n and --percent-limit apply to the values of each label. --sort KEY \
            prints a table of one or several labels.",
        value_name: None,
        conflicts: &["call_graph", "lines"],
        view: |_, _| Shown::Tags,
    },
    ViewOption {
        name: "coverage",
        help: "Print the shares with names, lines and whole stacks, by binary",
        long_help: "Print the shares with names, lines and whole stacks, by binary\n\n\
            Includes the reasons why some are missing, and the commands that help.",
        value_name: None,
        conflicts: &[],
        view: |_, _| Shown::Coverage,
    },
    ViewOption {
        name: "quality",
        help: "Print a 95 % confidence interval for each of the top functions",
        long_help: "Print a 95 % confidence interval for each of the top functions\n\n\
            Includes the number of samples, the entropy of the profile, and the number of further \
            samples that halves the intervals.",
        value_name: None,
        conflicts: &["call_graph", "lines"],
        view: |_, order| Shown::Quality(order.into()),
    },
    ViewOption {
        name: "states",
        help: "Print the values of each thread by its state",
        long_help: "Print the values of each thread by its state\n\n\
            States are those of prof record -T wall: running, runnable, sleeping, disk and stopped. \
            Threads are in the order of their totals, or of their names with --sort name.",
        value_name: None,
        conflicts: &["call_graph", "lines"],
        view: |_, order| Shown::States(of_threads(order)),
    },
];

/// Threads have no self values.
fn of_threads(order: Sort) -> Order {
    Order::by(if order == Sort::Name { Column::Name } else { Column::Total })
}

impl clap::Args for ViewArgs {
    fn augment_args(command: Command) -> Command {
        let others = |name| OPTIONS.iter().map(|option| option.name).filter(move |&n| n != name);
        command.args(OPTIONS.iter().map(|option| {
            let action =
                if option.value_name.is_some() { ArgAction::Set } else { ArgAction::SetTrue };
            Arg::new(option.name)
                .long(option.name)
                .value_name(option.value_name.unwrap_or(option.name))
                .help(option.help)
                .long_help(option.long_help)
                .help_heading("View")
                .action(action)
                .conflicts_with_all(others(option.name))
                .conflicts_with_all(["ratio", "columns", "over"])
                .conflicts_with_all(option.conflicts)
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        ViewArgs::augment_args(command)
    }
}

impl FromArgMatches for ViewArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ViewArgs, clap::Error> {
        let is_given = |name: &str| matches.value_source(name) == Some(ValueSource::CommandLine);
        let Some(option) = OPTIONS.iter().find(|option| is_given(option.name)) else {
            return Ok(ViewArgs::default());
        };
        let value = option.value_name.and_then(|_| matches.get_one::<String>(option.name));
        Ok(ViewArgs { option: Some(option), value: value.cloned().unwrap_or_default() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = ViewArgs::from_arg_matches(matches)?;
        Ok(())
    }
}
