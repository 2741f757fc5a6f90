//! Progress on standard error, on a terminal only. All bars are made here, with names cleaned by
//! [`printed`].

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::sampler::Tick;
use sys::printed::{self, Charset, Stderr};

/// A line that is redrawn; does nothing without a terminal.
#[derive(Clone, Debug)]
pub struct Bar {
    bar: ProgressBar,
    shown: bool,
}

impl Bar {
    /// A bar that is drawn with this template when something is set.
    pub fn new(template: &str, shown: bool) -> Bar {
        let shown = shown && printed::stderr_is_terminal();
        let target = if shown {
            ProgressDrawTarget::stderr_with_hz(10)
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = Bar { bar: ProgressBar::with_draw_target(None, target), shown };
        bar.style(template);
        bar
    }

    /// Changes the template.
    pub fn style(&self, template: &str) {
        let style = ProgressStyle::with_template(template);
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        self.bar.set_style(match Charset::for_stderr() {
            Charset::Ascii => style.progress_chars("#-").tick_chars("|/-\\ "),
            Charset::Unicode => style,
        });
    }

    /// Sets the position and the length.
    pub fn set(&self, done: usize, all: usize) {
        self.set_long(done as u64, all as u64);
    }

    /// Sets the position and the length.
    pub fn set_long(&self, done: u64, all: u64) {
        if self.shown {
            self.bar.set_length(all);
            self.bar.set_position(done);
        }
    }

    /// Sets the texts of the bar.
    pub fn set_text(&self, prefix: &str, message: &str) {
        if self.shown {
            let charset = Charset::for_stderr();
            let text = |text: &str| charset.text(&printed::line(text)).into_owned();
            self.bar.set_prefix(text(prefix));
            self.bar.set_message(text(message));
        }
    }

    /// Starts the spinner, also after [`Bar::finish`].
    pub fn move_by_itself(&self) {
        if self.shown && self.bar.is_finished() {
            self.bar.reset();
        }
        if self.shown {
            self.bar.enable_steady_tick(Duration::from_millis(200));
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// The bars of a recording that are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bars {
    /// None, and no lines either.
    Quiet,
    /// That of symbolization: a COMMAND uses the terminal while it is recorded.
    Symbols,
    /// Both.
    All,
}

/// One bar for the recording, then one for symbolization.
pub struct Progress {
    recording: Bar,
    symbols: Bar,
    total: Option<Duration>,
    quiet: bool,
}

impl Progress {
    /// Progress of a recording of this length, if it is known.
    pub fn new(total: Option<Duration>, bars: Bars) -> Progress {
        let template = match total {
            Some(_) => "recording {bar:30} {prefix}  {msg}",
            None => "recording {spinner} {prefix}  {msg}",
        };
        let quiet = bars == Bars::Quiet;
        let recording = Bar::new(template, bars == Bars::All);
        let symbols = Bar::new("symbols   {bar:30} {pos}/{len} addresses", !quiet);
        Progress { recording, symbols, total, quiet }
    }

    /// Shows the progress of the recording.
    pub fn tick(&self, tick: Tick) {
        if !self.recording.shown {
            return;
        }
        let elapsed = tick.elapsed.as_secs_f64();
        let prefix = match self.total {
            Some(total) => format!("{elapsed:.1}/{:.1} s", total.as_secs_f64()),
            None => format!("{elapsed:.1} s"),
        };
        let total = self.total.unwrap_or(tick.elapsed);
        self.recording.set_long(tick.elapsed.as_millis() as u64, total.as_millis() as u64);
        let stats = tick.stats;
        self.recording
            .set_text(&prefix, &format!("{} samples, {} lost", stats.samples, stats.lost));
    }

    /// The recording is over.
    pub fn recorded(&self) {
        self.recording.finish();
    }

    /// The bar of symbolization.
    pub fn symbols(&self) -> Bar {
        self.symbols.clone()
    }

    /// Prints a line, above the bar if there is one.
    pub fn print(&self, line: &str) {
        if !self.quiet {
            self.recording.bar.suspend(|| Stderr::line(&format!("prof: {line}")));
        }
    }

    /// Removes the bars.
    pub fn finish(&self) {
        self.recording.finish();
        self.symbols.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_can_be_used_without_a_terminal() {
        for total in [None, Some(Duration::from_secs(1))] {
            let progress = Progress::new(total, Bars::All);
            progress.recorded();
            progress.symbols().set(1, 2);
            progress.finish();
        }
    }

    #[test]
    fn templates_are_valid() {
        for template in [
            "recording {bar:30} {prefix}  {msg}",
            "recording {spinner} {prefix}  {msg}",
            "symbols   {bar:30} {pos}/{len} addresses",
            super::super::symbol_args::REQUESTING,
            super::super::symbol_args::FETCHING,
            super::super::symbolize::BAR,
        ] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }
}
