//! The profile types that are selected, with their options. The options of a type are in its file;
//! here they are one line.

use clap::Args;

use super::heap::HeapOptions;
use super::lock::LockOptions;
use super::threads::ThreadsOptions;
use super::wall::WallOptions;
use super::{ALL, Registered};
use sys::Error;

/// The options of all profile types.
#[derive(Clone, Debug, Default, Args)]
pub struct TypeOptions {
    /// Those of `-T wall`.
    #[command(flatten)]
    pub wall: WallOptions,
    /// Those of `-T lock`.
    #[command(flatten)]
    pub lock: LockOptions,
    /// Those of `-T threads`.
    #[command(flatten)]
    pub threads: ThreadsOptions,
    /// Those of `-T heap` and `-T alloc`.
    #[command(flatten)]
    pub heap: HeapOptions,
}

impl TypeOptions {
    /// The first option that was given, of the types for which `included` is true.
    pub fn given(&self, included: impl Fn(&Registered) -> bool) -> Option<GivenOption> {
        let types = ALL.iter().filter(|known| included(known));
        types.into_iter().find_map(|owner| {
            let option = (owner.options.as_ref()?.given)(self)?;
            Some(GivenOption { owner, option })
        })
    }
}

/// An option that was given.
pub struct GivenOption {
    /// The type that it belongs to.
    pub owner: &'static Registered,
    /// As it is written: `--holders`.
    pub option: &'static str,
}

/// The options of a profile type.
pub struct OptionGroup {
    /// Adds them to a command.
    pub add: fn(clap::Command) -> clap::Command,
    /// The first of them that was given.
    pub given: fn(&TypeOptions) -> Option<&'static str>,
    /// True if a type to which they apply is selected.
    pub applies: fn(&Selection) -> bool,
    /// What selects such a type: `-T lock`.
    pub needs: &'static str,
}

/// The profile types to record, and their options.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The names of the types, see [`Registered::name`].
    pub names: Vec<String>,
    /// The options.
    pub options: TypeOptions,
}

impl Selection {
    /// True if the type of this name is selected by its name.
    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// Checks that each option that was given applies to a selected type.
    ///
    /// # Errors
    ///
    /// One does not.
    pub fn check(&self) -> Result<(), Error> {
        let applies = |known: &Registered| {
            known.options.as_ref().is_some_and(|options| (options.applies)(self))
        };
        let Some(given) = self.options.given(|known| !applies(known)) else { return Ok(()) };
        let needs = given.owner.options.as_ref().map_or("another type", |options| options.needs);
        Err(Error::usage(format!("{} needs {needs}", given.option)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each option of each type, without the type, and with it.
    #[test]
    fn an_option_needs_its_type() {
        for known in &ALL {
            let Some(options) = &known.options else { continue };
            let command = (options.add)(clap::Command::new(known.name).no_binary_name(true));
            for argument in command.get_arguments() {
                let option = format!("--{}", argument.get_long().unwrap());
                let value = argument.get_action().takes_values().then_some("1");
                let pid = clap::Arg::new("pid").long("pid").num_args(1);
                let whole = TypeOptions::augment_args(clap::Command::new("x").no_binary_name(true));
                let line = [Some(option.as_str()), value, Some("--pid"), Some("1")];
                let matches =
                    whole.arg(pid).try_get_matches_from(line.into_iter().flatten()).unwrap();
                let parsed = <TypeOptions as clap::FromArgMatches>::from_arg_matches(&matches);
                let mut selection = Selection { names: Vec::new(), options: parsed.unwrap() };
                assert_eq!((options.given)(&selection.options), Some(option.as_str()));
                if let Err(error) = selection.check() {
                    assert_eq!(error.to_string(), format!("{option} needs {}", options.needs));
                    selection.names.push(known.name.to_owned());
                }
                assert!(selection.check().is_ok(), "{option}");
                assert!((known.new)(&selection).is_some(), "{option}");
            }
        }
    }
}
