//! `--last` and `--when`: a recording that keeps its last moments until something happens.

use std::time::Duration;

use super::when::{Condition, Watch};
use crate::cli::target::{TargetArgs, parse_duration};
use crate::cli::usage;
use crate::sampler::types;
use crate::sampler::{Interrupts, Target, Window};
use messages::Message;

/// The shortest time that can be kept.
const SHORTEST: Duration = Duration::from_secs(1);

/// Arguments of a flight recorder.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct LastArgs {
    /// Keep only the last TIME; Ctrl-C, a signal or --when writes it
    ///
    /// A flight recorder: samples are kept in memory, at most 64 MiB, and older ones are dropped.
    /// The recording lasts until Ctrl-C, SIGTERM, SIGUSR2, --when, the end of -d or of the target,
    /// and is then written. SIGUSR2 is passed on if there is a COMMAND.
    #[arg(long, value_name = "TIME", value_parser = parse_duration,
          allow_hyphen_values = true, help_heading = "Window")]
    last: Option<Duration>,
    /// With --last, end when a process is busy ('cpu>80%') or a command succeeds
    ///
    /// CONDITION is checked each second. 'cpu>80%' holds when a process of the target has used
    /// more than 80 % of one CPU since the check before; anything else is a command for /bin/sh,
    /// and holds when its exit code is 0.
    #[arg(long, value_name = "CONDITION", value_parser = Condition::parse,
          allow_hyphen_values = true, help_heading = "Window")]
    when: Option<Condition>,
}

impl LastArgs {
    /// Applies the arguments to the window of a recording.
    ///
    /// # Errors
    ///
    /// The time is too short, or a profile type is known at the end of a recording only.
    pub fn apply(&self, target: &TargetArgs, window: &mut Window) -> anyhow::Result<()> {
        let Some(last) = self.last else {
            return match self.when {
                Some(_) => Err(usage("--when needs --last TIME: the time that is kept")),
                None => Ok(()),
            };
        };
        if last < SHORTEST {
            return Err(usage("--last: the shortest is 1s"));
        }
        if let Some(kind) = target.types.iter().find_map(|name| types::known_at_the_end(name)) {
            return Err(usage(format!(
                "--last cannot be combined with -T {}, whose values are those of the whole \
                 recording",
                kind.name
            )));
        }
        window.last = Some(last);
        if !target.has_length()? {
            window.duration = None;
        }
        Ok(())
    }
}

/// The condition of a recording, if it has one.
pub struct Watched(Option<Watch>);

impl Watched {
    /// Checks the condition from [`Watched::begin`] on.
    ///
    /// # Errors
    ///
    /// There can be no further thread or descriptor.
    pub fn new(
        args: &LastArgs,
        target: &Target,
        interrupts: &Interrupts,
    ) -> anyhow::Result<Watched> {
        let Some(condition) = &args.when else { return Ok(Watched(None)) };
        let ender = interrupts.ender()?;
        Ok(Watched(Some(Watch::new(condition.clone(), target.clone(), ender)?)))
    }

    /// Sampling has started.
    pub fn begin(&self) {
        self.0.iter().for_each(Watch::begin);
    }

    /// The recording has ended. Returns a note about the condition.
    ///
    /// # Errors
    ///
    /// The condition is a command that cannot be run.
    pub fn end(self) -> anyhow::Result<Option<Message>> {
        self.0.map(Watch::end).transpose()
    }
}
