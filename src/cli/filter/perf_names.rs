//! perf's filters by lists of names: `--comms`, `--dsos`, `--symbols`.

use view::Condition;

/// Lists of exact names, separated by commas.
#[derive(Debug, Default, clap::Args)]
pub struct NameArgs {
    /// Show only samples of the processes with these names, as in perf
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        hide = true,
        conflicts_with = "process"
    )]
    comms: Vec<String>,

    /// Show only samples with a frame in the binaries with these names, as in perf
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        hide = true,
        conflicts_with = "binary"
    )]
    dsos: Vec<String>,

    /// Show only samples with a frame of the functions with these names, as in perf
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        hide = true,
        conflicts_with = "focus"
    )]
    symbols: Vec<String>,
}

impl NameArgs {
    /// The regular expression of a condition, if names are given for it.
    pub fn value(&self, condition: Condition) -> Option<String> {
        let (names, begin) = match condition {
            Condition::Process => (&self.comms, "^"),
            // The path of a binary, or its name.
            Condition::Binary => (&self.dsos, "(^|/)"),
            Condition::Focus => (&self.symbols, "^"),
            _ => return None,
        };
        let names = names.iter().filter(|name| !name.is_empty()).map(|name| regex::escape(name));
        let names: Vec<String> = names.collect();
        (!names.is_empty()).then(|| format!("{begin}({})$", names.join("|")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_exact() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let args = NameArgs {
            comms: names(&["sh", "a.out"]),
            dsos: names(&["libc.so.6"]),
            symbols: names(&[""]),
        };
        assert_eq!(args.value(Condition::Process), Some(r"^(sh|a\.out)$".to_owned()));
        assert_eq!(args.value(Condition::Binary), Some(r"(^|/)(libc\.so\.6)$".to_owned()));
        assert_eq!(args.value(Condition::Focus), None);
        assert_eq!(args.value(Condition::Thread), None);
    }
}
