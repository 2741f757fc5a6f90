//! Names for profiles of other tools that have addresses in their place
//! ([`Format::frames_are_addresses`](formats::Format::frames_are_addresses)): they are looked up
//! once, after the file was read, as those of a recording.

use std::path::PathBuf;
use std::sync::Arc;

use formats::Opened;
use profile::{Profile, set_unsymbolized};
use symbols::SymbolOptions;

use super::naming::LookupResult;
use super::progress::Bar;
use super::symbol_args::{SymbolArgs, debuginfod_client};
use super::symbolize;

/// Places of binaries and debug files, for commands that read profiles only.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct BinaryArgs {
    /// Also look for binaries of perf.data files in DIR (repeatable)
    ///
    /// For files whose frames are addresses, such as perf's. As in prof symbolize.
    #[arg(long, value_name = "DIR", help_heading = "Symbols")]
    pub symbol_path: Vec<PathBuf>,
}

/// Where names are looked up, and whether that is shown.
#[derive(Clone, Debug, Default)]
pub struct AddressNames {
    symbols: SymbolArgs,
    is_quiet: bool,
}

impl From<SymbolArgs> for AddressNames {
    fn from(symbols: SymbolArgs) -> AddressNames {
        AddressNames { symbols, is_quiet: false }
    }
}

impl From<&BinaryArgs> for AddressNames {
    fn from(binaries: &BinaryArgs) -> AddressNames {
        SymbolArgs::with_places(binaries.symbol_path.clone(), Vec::new()).into()
    }
}

impl AddressNames {
    /// The same without progress, because something else has the screen.
    pub fn quiet(&self) -> AddressNames {
        AddressNames { is_quiet: true, ..self.clone() }
    }

    /// The profile of a file, with names. Notes about missing ones are added.
    ///
    /// # Errors
    ///
    /// Those of the options, if they are needed.
    pub fn named(&self, opened: Opened, notes: &mut Vec<String>) -> anyhow::Result<Profile> {
        let Opened { mut profile, format } = opened;
        if !format.frames_are_addresses() {
            return Ok(profile);
        }
        let mut options = SymbolOptions { at_any_time: true, ..self.symbols.options()? };
        if self.is_quiet {
            let servers = self.symbols.servers();
            options.debuginfod = debuginfod_client(servers, |_| {})?.map(Arc::new);
        }
        let bar = Bar::new(symbolize::BAR, !self.is_quiet);
        let progress = |done, total| bar.set(done, total);
        let found = LookupResult::look_up(&mut profile, &options, &progress);
        bar.finish();
        let shares = symbols::unsymbolized(&profile);
        set_unsymbolized(&mut profile, &shares, &found.outcome.reasons());
        notes.extend(found.outcome.errors);
        Ok(profile)
    }
}
