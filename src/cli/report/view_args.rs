//! The options of `prof report` that select a view.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};

use crate::report::views::{self, Registered};

/// The options that select a view.
#[derive(Debug, Default)]
pub(super) struct ViewArgs {
    /// The name of the view.
    pub(super) chosen: Option<&'static str>,
    /// The value of its option.
    pub(super) argument: Option<String>,
}

impl clap::Args for ViewArgs {
    fn augment_args(command: Command) -> Command {
        let options = views::ALL.iter().filter_map(|view| Some((view.name, view.option.as_ref()?)));
        let names: Vec<&'static str> = options.clone().map(|(name, _)| name).collect();
        command.args(options.map(|(name, option)| {
            let action =
                if option.value_name.is_some() { ArgAction::Set } else { ArgAction::SetTrue };
            Arg::new(name)
                .long(name)
                .value_name(option.value_name.unwrap_or(name))
                .help(option.help)
                .long_help(option.long_help)
                .help_heading("View")
                .action(action)
                .conflicts_with_all(names.iter().filter(|other| **other != name))
                .conflicts_with_all(option.conflicts)
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        ViewArgs::augment_args(command)
    }
}

impl FromArgMatches for ViewArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ViewArgs, clap::Error> {
        let with_option = views::ALL.iter().filter(|view| view.option.is_some());
        let given = |name: &&str| matches.value_source(name) == Some(ValueSource::CommandLine);
        let chosen = with_option.clone().map(|view| view.name).find(given);
        let has_value = |view: &&Registered| {
            let option = view.option.as_ref();
            Some(view.name) == chosen && option.is_some_and(|option| option.value_name.is_some())
        };
        let argument = with_option.clone().find(has_value);
        let argument = argument.and_then(|view| matches.get_one::<String>(view.name).cloned());
        Ok(ViewArgs { chosen, argument })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = ViewArgs::from_arg_matches(matches)?;
        Ok(())
    }
}
