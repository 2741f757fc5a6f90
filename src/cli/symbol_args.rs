//! Arguments of symbolization, shared by `record`, `flame`, `threads` and `symbolize`.

use std::path::PathBuf;
use std::sync::Arc;

use super::progress::Bar;
use formats::ReadOptions;
use symbols::debuginfod::{self, Debuginfod, Download, Environment};
use symbols::{Cache, SymbolOptions};

/// The heading of these options in help.
const HEADING: &str = "Symbols";

/// Sources and style of names.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct SymbolArgs {
    /// Also look for binaries and debug files in DIR (repeatable)
    ///
    /// In DIR, a file is found by the whole path of the binary, by its name, and by its build ID in
    /// the subdirectory .build-id.
    #[arg(long, value_name = "DIR", help_heading = HEADING)]
    symbol_path: Vec<PathBuf>,

    /// Fetch missing debug files from a debuginfod server (repeatable)
    ///
    /// Without URL, the servers are those in the environment variable DEBUGINFOD_URLS.
    #[arg(long, value_name = "URL", num_args = 0..=1, default_missing_value = "",
          help_heading = HEADING)]
    debuginfod: Vec<String>,

    /// Do not look up inlined functions
    #[arg(long, help_heading = HEADING)]
    no_inlines: bool,

    /// Do not demangle C++ and Rust names
    #[arg(long, help_heading = HEADING)]
    no_demangle: bool,

    /// Neither read nor write the cache of names
    ///
    /// The cache is $XDG_CACHE_HOME/prof or ~/.cache/prof, with at most 512 MiB. The environment
    /// variable PROF_CACHE_SIZE sets another limit, such as 2G; 0 disables the cache.
    #[arg(long, help_heading = HEADING)]
    no_cache: bool,
}

impl SymbolArgs {
    /// The default, with directories of `--symbol-path` and values of `--debuginfod`.
    pub fn with_places(symbol_path: Vec<PathBuf>, debuginfod: Vec<String>) -> SymbolArgs {
        SymbolArgs { symbol_path, debuginfod, ..SymbolArgs::default() }
    }

    /// The values of `--debuginfod`.
    pub fn servers(&self) -> &[String] {
        &self.debuginfod
    }

    /// True if inlined functions are not to be shown.
    pub fn no_inlines(&self) -> bool {
        self.no_inlines
    }

    /// The first of these options that was given, of those that have no meaning for a profile.
    pub fn given(&self) -> Option<&'static str> {
        let given = [("--no-demangle", self.no_demangle), ("--no-cache", self.no_cache)];
        given.into_iter().find_map(|(name, given)| given.then_some(name))
    }

    /// The options of symbolization.
    ///
    /// # Errors
    ///
    /// A value is not a directory, not a URL, or not a size.
    pub fn options(&self) -> anyhow::Result<SymbolOptions> {
        for dir in &self.symbol_path {
            if !dir.is_dir() {
                return Err(super::usage(format!(
                    "--symbol-path: {} is not a directory",
                    dir.display()
                )));
            }
        }
        Ok(SymbolOptions {
            symbol_path: self.symbol_path.clone(),
            debuginfod: self.debuginfod()?.map(Arc::new),
            inlines: !self.no_inlines,
            demangle: !self.no_demangle,
            separate_process: true,
            cache: self.cache()?.map(Arc::new),
            ..SymbolOptions::default()
        })
    }

    /// What a reader uses: the binaries of recordings of other machines.
    pub fn read_options(&self) -> ReadOptions {
        let directories = self.symbol_path.clone();
        let paths = move |name: &str| symbols::binary_paths(name, &directories).collect();
        ReadOptions { binaries: Some(Arc::new(paths)) }
    }

    fn cache(&self) -> anyhow::Result<Option<Cache>> {
        if self.no_cache { Ok(None) } else { Cache::for_user().map_err(super::usage) }
    }

    fn debuginfod(&self) -> anyhow::Result<Option<Debuginfod>> {
        debuginfod_client(&self.debuginfod, progress())
    }
}

/// A client of the servers of `--debuginfod`, whose values are `given`; an empty one is for those in
/// the environment. `None` without the option.
///
/// # Errors
///
/// A value is not a URL, or there is no server.
pub fn debuginfod_client(
    given: &[String],
    progress: impl Fn(Download<'_>) + Send + Sync + 'static,
) -> anyhow::Result<Option<Debuginfod>> {
    if given.is_empty() {
        return Ok(None);
    }
    let mut environment = Environment::read();
    let given: Vec<&String> = given.iter().filter(|u| !u.is_empty()).collect();
    if !given.is_empty() {
        environment.urls.clear();
    }
    for text in given {
        let urls = debuginfod::urls(text);
        if urls.is_empty() {
            return Err(super::usage(format!(
                "--debuginfod: {text:?} is not a URL; without a URL, put --debuginfod last"
            )));
        }
        environment.urls.extend(urls);
    }
    if environment.urls.is_empty() {
        return Err(super::usage(
            "--debuginfod: DEBUGINFOD_URLS has no server; give one: --debuginfod=https://SERVER",
        ));
    }
    Ok(Some(Debuginfod::new(&environment, progress)))
}

/// The bar until a server answers.
pub const REQUESTING: &str = "requesting {msg} {spinner} {elapsed} (Ctrl-C: continue without)";

/// The bar while it sends a file.
pub const FETCHING: &str = "fetching {msg} {bytes}/{total_bytes} {wide_bar}";

/// Shows the progress of a download on a terminal.
fn progress() -> impl Fn(Download<'_>) + Send + Sync + 'static {
    let bar = Bar::new(REQUESTING, true);
    move |download: Download<'_>| {
        if download.done {
            bar.finish();
            return;
        }
        bar.style(if download.bytes == 0 { REQUESTING } else { FETCHING });
        bar.move_by_itself();
        bar.set_text("", download.url);
        bar.set_long(download.bytes, download.total.unwrap_or(download.bytes));
    }
}
