//! Progress on standard error, on a terminal only.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::recorder::Tick;

/// One bar for the recording, then one for symbolization.
pub struct Progress {
    recording: ProgressBar,
    symbols: ProgressBar,
    total: Option<Duration>,
    quiet: bool,
}

impl Progress {
    /// A bar for a recording of this length, if it is known.
    pub fn new(total: Option<Duration>, quiet: bool) -> Progress {
        let shown = !quiet && std::io::stderr().is_terminal();
        let target = || match shown {
            true => ProgressDrawTarget::stderr_with_hz(10),
            false => ProgressDrawTarget::hidden(),
        };
        let length = total.map(|t| t.as_millis() as u64);
        let template = match total {
            Some(_) => "recording {bar:30} {prefix}  {msg}",
            None => "recording {spinner} {prefix}  {msg}",
        };
        let recording = ProgressBar::with_draw_target(length, target());
        recording.set_style(style(template));
        let symbols = ProgressBar::with_draw_target(None, target());
        symbols.set_style(style("symbols   {bar:30} {pos}/{len} addresses"));
        Progress { recording, symbols, total, quiet }
    }

    /// Shows how far the recording is.
    pub fn tick(&self, tick: Tick) {
        if self.recording.is_hidden() {
            return;
        }
        let elapsed = tick.elapsed.as_secs_f64();
        self.recording.set_position(tick.elapsed.as_millis() as u64);
        self.recording.set_prefix(match self.total {
            Some(total) => format!("{elapsed:.1}/{:.1} s", total.as_secs_f64()),
            None => format!("{elapsed:.1} s"),
        });
        let stats = tick.stats;
        self.recording.set_message(format!("{} samples, {} lost", stats.samples, stats.lost));
    }

    /// The recording is over.
    pub fn recorded(&self) {
        self.recording.finish_and_clear();
    }

    /// Shows how far symbolization is.
    pub fn symbols(&self, done: usize, all: usize) {
        self.symbols.set_length(all as u64);
        self.symbols.set_position(done as u64);
    }

    /// Prints a sentence, above the bar if there is one.
    pub fn say(&self, line: &str) {
        if !self.quiet {
            self.recording.suspend(|| eprintln!("prof: {line}"));
        }
    }

    /// Takes the bars away.
    pub fn finish(&self) {
        self.recording.finish_and_clear();
        self.symbols.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates are constants, and tested")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_templates_are_valid() {
        for total in [None, Some(Duration::from_secs(1))] {
            let progress = Progress::new(total, false);
            progress.recorded();
            progress.symbols(1, 2);
            progress.finish();
        }
    }
}
