//! What a recording prints at its end: five lines at most, and the rest with `-v`. All of it is in
//! the profile's comments, too.

use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use super::record::Recorded;
use super::target::{StacksArg, TargetArgs};
use super::trust;
use crate::report::advice;
use crate::sampler::Rate;
use profile::Diagnostics;
use sys::os;
use view::{Filter, Granularity, View};

/// How much is printed on standard error.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Verbosity {
    /// Print errors only
    #[arg(short, long, conflicts_with = "verbose", help_heading = "Output")]
    pub quiet: bool,
    /// Print all notes, what each binary lacks, and what prof itself used
    #[arg(short, long, help_heading = "Output")]
    pub verbose: bool,
}

/// The share of samples from which on a loss is reported. What is missing could move a share in a
/// report by as much, and no report is read to less than one percent: the chance of sampling alone
/// is larger, unless there are 10,000 samples.
const LOSS_PERCENT: u64 = 1;

/// Fewer lost samples are chance.
const FEWEST_LOST: u64 = 3;

/// The share of samples without a name from which on it is reported.
const NAMELESS_PERCENT: u64 = 5;

/// Fewer samples report less than the notes about them.
const FEW_SAMPLES: u64 = 10;

/// Periods in nanoseconds below which a machine may be too slow for its samples.
const SHORT_PERIOD: i64 = 200_000;

/// The end of a recording, in words.
pub struct Summary<'a> {
    recorded: &'a Recorded,
    /// The arguments; none of a snapshot of threads.
    target: Option<&'a TargetArgs>,
    /// The profile that was written, if one was.
    file: Option<String>,
    /// The threads of the snapshot are printed.
    threads: bool,
}

impl<'a> Summary<'a> {
    /// Of the recording of a target, or of a snapshot, that was written into `file`.
    pub fn of(
        recorded: &'a Recorded,
        target: Option<&'a TargetArgs>,
        file: Option<&Path>,
    ) -> Summary<'a> {
        let file = file.map(|file| file.to_string_lossy().into_owned());
        Summary { recorded, target, file, threads: false }
    }

    /// The same without what the printed threads show.
    pub fn of_printed_threads(self) -> Summary<'a> {
        Summary { threads: true, ..self }
    }

    /// Prints it, and how the COMMAND ended.
    pub fn write(&self, err: &mut impl Write, verbose: bool) -> io::Result<()> {
        let figures = (!self.threads).then(|| self.figures());
        let lines = match verbose {
            true => vec![figures],
            false => vec![figures, self.losses(), self.names(), self.notes()],
        };
        lines.iter().flatten().try_for_each(|line| writeln!(err, "prof: {line}"))?;
        if verbose {
            self.details(err)?;
        }
        command_end(err, self.recorded)
    }

    fn seconds(&self) -> f64 {
        self.recorded.profile.duration_nanos as f64 / 1e9
    }

    fn figures(&self) -> String {
        let Recorded { profile, diagnostics: d, .. } = self.recorded;
        match self.target {
            Some(_) => format!(
                "{} in {:.1} s, {}",
                plural(d.samples, "sample"),
                self.seconds(),
                plural(d.distinct, "distinct stack")
            ),
            None => {
                let view = View::new(profile, 0, Granularity::NONE, &Filter::default());
                let threads = u64::try_from(view.kept_total).unwrap_or_default();
                let stacks = plural(profile.samples.len() as u64, "distinct stack");
                format!("{}, {stacks}", plural(threads, "thread"))
            }
        }
    }

    /// What is missing or cut, if it matters to the figures, and what helps against the first of it.
    fn losses(&self) -> Option<String> {
        let d = &self.recorded.diagnostics;
        let (mut lost, mut remedies) = (Vec::new(), Vec::new());
        if matters(d.lost, d.lost.saturating_add(d.samples)) {
            let all = d.lost.saturating_add(d.samples);
            lost.push(format!("{} of {all} samples were lost", percent(d.lost, all)));
            remedies.push(self.fewer_losses().map(str::to_owned));
        } else if let Some(covered) = self.covered() {
            lost.push(format!(
                "the samples cover {covered:.0} % of the CPU time that the target used"
            ));
            remedies.push(Some(match self.recorded.profile.period < SHORT_PERIOD {
                true => "lower -F or raise -c".to_owned(),
                false => format!("why: {}", self.place_of_notes()),
            }));
        }
        if matters(d.throttled, d.throttled.saturating_add(d.samples)) {
            lost.push(format!("events were throttled {} times", d.throttled));
            remedies.push(Some("lower -F or raise -c".to_owned()));
        }
        if matters(d.truncated_total(), d.user_stacks) {
            let share = percent(d.truncated_total(), d.user_stacks);
            let most = d.truncated.iter().max_by_key(|(_, n)| n).map(|(why, _)| *why);
            let why = most.map_or(String::new(), |why| format!(" ({})", why.code()));
            lost.push(format!("{share} of the stacks are truncated{why}"));
            remedies
                .push(most.filter(|why| advice::can_be_whole(*why)).and_then(advice::whole_stacks));
        }
        if matters(d.folded, d.samples) {
            let share = percent(d.folded, d.samples);
            lost.push(format!("{share} of the stacks were cut: too many distinct ones"));
        }
        let how = remedies.into_iter().flatten().next();
        let how = how.map_or(String::new(), |how| format!("; {how}"));
        (!lost.is_empty()).then(|| format!("{}{how}", lost.join(", ")))
    }

    /// The percentage of the target's CPU time that the samples cover, if it is too low for chance.
    fn covered(&self) -> Option<f64> {
        let profile = &self.recorded.profile;
        let (sampled, used) = self.recorded.diagnostics.covered?;
        let period = u64::try_from(profile.period).ok().filter(|&period| period > 0)?;
        if profile.str(profile.period_type.unit) != "nanoseconds" {
            return None;
        }
        let (due, missing) =
            ((used / period) as f64, (used.saturating_sub(sampled) / period) as f64);
        let share = 100.0 * sampled as f64 / used.max(1) as f64;
        // Four times the standard deviation of a number that varies by chance.
        (share < 80.0 && missing > 4.0 * due.sqrt()).then_some(share)
    }

    /// What helps most against the loss of samples.
    fn fewer_losses(&self) -> Option<&'static str> {
        let target = self.target?;
        let copies = !matches!(target.call_graph, Some(StacksArg::FramePointer | StacksArg::None));
        Some(match target.freq {
            _ if self.recorded.each_time => {
                "what lasts is recorded each time: record fewer processes"
            }
            _ if target.count.is_some() => "raise -c",
            Some(Rate::Frequency(..=99)) | None
                if !target.event.is_empty() && self.recorded.profile.period <= 1 =>
            {
                "sample every Nth event only with -c N"
            }
            Some(Rate::Frequency(100..) | Rate::Max | Rate::Period(_)) => "lower -F",
            _ if copies => "use -g fp or a smaller -g dwarf,BYTES",
            _ if os::uid() != 0 => "run prof as root, which lets it go before other processes",
            _ => return None,
        })
    }

    /// The share of samples without a name, if it is large, and the command that helps most.
    fn names(&self) -> Option<String> {
        let Recorded { profile, diagnostics: d, .. } = self.recorded;
        let (nameless, all) = (d.unsymbolized_total(), symbols::counted(profile));
        let many = nameless.saturating_mul(100) > all.saturating_mul(NAMELESS_PERCENT);
        let missed = self.recorded.names_missed.as_ref();
        if let Some(why) = missed.filter(|_| many || !self.recorded.names) {
            return Some(why.clone());
        }
        if !self.recorded.names {
            return None;
        }
        let worst = d.unsymbolized.first().filter(|_| many);
        if let Some(hint) = &self.recorded.run_time_code
            && worst.is_none_or(|b| advice::is_memory(&b.binary))
        {
            return Some(hint.clone());
        }
        let worst = worst?;
        let word = self.file.as_ref().map(|file| super::shell_word(file).into_owned());
        let how = advice::binaries::for_names(profile, word, &worst.binary);
        let how = how.map_or(String::new(), |how| format!("; for names: {how}"));
        let name = match advice::is_memory(&worst.binary) {
            true => &worst.binary,
            false => worst.binary.rsplit('/').next().unwrap_or_default(),
        };
        let (share, of_it) = (percent(nameless, all), percent(worst.samples, all));
        Some(format!("{share} of the samples have no function name ({name} {of_it}){how}"))
    }

    /// The first of the other notes where there are hardly any samples, and the number of the rest.
    fn notes(&self) -> Option<String> {
        let Recorded { diagnostics: d, names_missed, run_time_code, first_notes, .. } =
            self.recorded;
        let printed = [names_missed, run_time_code];
        let rest = d.notes.iter().skip(*first_notes);
        let mut rest = rest.filter(|note| !printed.iter().any(|p| p.as_ref() == Some(note)));
        let first = if d.samples < FEW_SAMPLES || self.threads { rest.next() } else { None };
        let more = match (rest.count(), first) {
            (0, _) => None,
            (1, None) => Some("1 note".to_owned()),
            (n, None) => Some(format!("{n} notes")),
            (n, Some(_)) => Some(format!("{n} more")),
        };
        let more = more.map(|more| format!("{more}: {}", self.place_of_notes()));
        let words: Vec<&str> =
            first.into_iter().map(String::as_str).chain(more.as_deref()).collect();
        (!words.is_empty()).then(|| words.join("; "))
    }

    /// Where all notes are.
    fn place_of_notes(&self) -> String {
        match &self.file {
            Some(file) => format!("prof report --header{}", super::file_arg(file)),
            None => "-v prints them".to_owned(),
        }
    }

    /// What `-v` adds.
    fn details(&self, err: &mut impl Write) -> io::Result<()> {
        let Recorded { profile, diagnostics: d, names, printed_notes, .. } = self.recorded;
        if self.target.is_some() {
            writeln!(err, "prof: {} lost, {} throttled", d.lost, d.throttled)?;
        }
        let whole = truncated(err, d)?;
        if d.folded > 0 {
            writeln!(err, "prof: {} stacks were cut: too many distinct ones", d.folded)?;
        }
        if *names {
            unsymbolized(err, d, symbols::counted(profile))?;
            trust::summary(err, profile, self.file.as_deref(), whole)?;
        }
        let mut notes = d.notes.iter().skip(*printed_notes);
        notes.try_for_each(|note| writeln!(err, "prof: {note}"))?;
        // Attaching costs the same however short the window is.
        let seconds = self.seconds();
        let share = match seconds >= 1.0 {
            true => format!(", {:.1} % of a core", 100.0 * d.recording_cpu_seconds / seconds),
            false => String::new(),
        };
        writeln!(
            err,
            "prof: own CPU time {:.2} s ({:.2} s of it while recording{share}), peak memory {} MiB",
            d.own_cpu_seconds,
            d.recording_cpu_seconds,
            d.own_peak_bytes >> 20
        )
    }
}

/// Which profile was written, with how many bytes, and what can be done `next` with one that has
/// names, or has not.
pub fn written(
    err: &mut impl Write,
    path: &Path,
    bytes: u64,
    next: Option<bool>,
) -> io::Result<()> {
    let (name, size) = (path.to_string_lossy(), bytes.div_ceil(1024));
    let arg = super::file_arg(&name);
    let (without, next) = match next {
        None => ("", String::new()),
        Some(false) => {
            (", without names", format!("; next: prof symbolize {}", super::shell_word(&name)))
        }
        Some(true) => ("", format!("; next: prof report{arg}, or prof flame{arg} > out.svg")),
    };
    writeln!(err, "prof: wrote {name} ({size} KiB){without}{next}")
}

/// How many stacks are truncated, and why; returns what would help most of them.
fn truncated(err: &mut impl Write, d: &Diagnostics) -> io::Result<Option<String>> {
    if d.truncated_total() == 0 {
        return Ok(None);
    }
    let why: Vec<String> =
        d.truncated.iter().map(|(why, n)| format!("{} {n}", why.code())).collect();
    writeln!(
        err,
        "prof: {} of {} user stacks truncated ({}): {}",
        d.truncated_total(),
        d.user_stacks,
        percent(d.truncated_total(), d.user_stacks),
        why.join(", ")
    )?;
    let most = d.truncated.iter().max_by_key(|(_, n)| n);
    let whole = most.and_then(|(why, _)| advice::whole_stacks(*why));
    whole.iter().try_for_each(|how| writeln!(err, "prof: {how}"))?;
    Ok(whole)
}

/// The share of `all` samples that have no name, and where most of them are.
fn unsymbolized(err: &mut impl Write, d: &Diagnostics, all: u64) -> io::Result<()> {
    const SHOWN: usize = 3;
    if d.unsymbolized.is_empty() {
        return Ok(());
    }
    let share = |n| percent(n, all);
    let mut binaries: Vec<String> = d.unsymbolized[..d.unsymbolized.len().min(SHOWN)]
        .iter()
        .map(|b| format!("{} {}", b.binary, share(b.samples)))
        .collect();
    if d.unsymbolized.len() > SHOWN {
        binaries.push(format!("{} more", d.unsymbolized.len() - SHOWN));
    }
    let nameless = share(d.unsymbolized_total());
    writeln!(err, "prof: {nameless} of the samples have no function name: {}", binaries.join(", "))
}

/// How the COMMAND ended, in words.
fn command_end(err: &mut impl Write, recorded: &Recorded) -> io::Result<()> {
    if let Some(status) = recorded.exit.filter(|s| !s.success()) {
        match (status.code(), status.signal()) {
            (Some(code), _) => writeln!(err, "prof: the command exited with {code}")?,
            (None, Some(signal)) => {
                writeln!(err, "prof: the command was killed by signal {signal}")?;
            }
            (None, None) => {}
        }
    }
    if let Some(pid) = recorded.running.filter(|&pid| is_running(pid)) {
        writeln!(err, "prof: the command still runs as process {pid}; stop it with: kill {pid}")?;
    }
    Ok(())
}

fn is_running(pid: i32) -> bool {
    sys::procfs::stat(pid).is_some_and(|s| s.state != 'Z')
}

/// Whether so much of the whole is more than chance, and moves what a report shows.
fn matters(part: u64, whole: u64) -> bool {
    part >= FEWEST_LOST && part.saturating_mul(100) > whole.saturating_mul(LOSS_PERCENT)
}

/// A share, as it is printed.
pub fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64)
}

/// `1 sample`, `2 samples`.
fn plural(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::{BinaryShare, Builder, Truncation};

    fn recorded(diagnostics: Diagnostics) -> Recorded {
        let mut profile = Builder::new(&[("samples", "count")]).finish(None);
        profile.duration_nanos = 1_500_000_000;
        profile.period = 10_000_000;
        Recorded {
            profile,
            diagnostics,
            names: true,
            names_missed: None,
            run_time_code: None,
            first_notes: 0,
            printed_notes: 0,
            each_time: false,
            exit: None,
            running: None,
        }
    }

    fn lines(recorded: &Recorded, file: Option<&str>) -> Vec<String> {
        let target = TargetArgs { freq: Some(Rate::Frequency(999)), ..TargetArgs::default() };
        let mut out = Vec::new();
        let summary = Summary::of(recorded, Some(&target), file.map(Path::new));
        summary.write(&mut out, false).unwrap();
        String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
    }

    /// One percent is of no account, nor are two samples.
    #[test]
    fn losses_are_reported_from_one_percent_on() {
        let of = |samples, lost, (truncated, user_stacks)| Diagnostics {
            samples,
            lost,
            distinct: 5,
            truncated: vec![(Truncation::SmallDump, truncated)],
            user_stacks,
            ..Diagnostics::default()
        };
        for small in [of(1000, 10, (10, 1000)), of(20, 2, (2, 20))] {
            assert_eq!(lines(&recorded(small), None).len(), 1);
        }
        let all = lines(&recorded(of(900, 100, (450, 900))), None);
        assert_eq!(all[0], "prof: 900 samples in 1.5 s, 5 distinct stacks");
        assert_eq!(
            all[1],
            "prof: 10.0 % of 1000 samples were lost, 50.0 % of the stacks are truncated (dump \
             smaller than 65528 bytes); lower -F"
        );
        let cut = lines(&recorded(of(900, 0, (450, 900))), None);
        assert!(
            cut[1].ends_with(
                "; for whole stacks: prof record -g dwarf,65528 (up to -F 999, the default)"
            ),
            "{cut:?}"
        );
    }

    /// Nothing can be done about some ends, and nothing is advised then.
    #[test]
    fn stacks_that_cannot_be_whole_come_without_advice() {
        let truncated = vec![(Truncation::NoCaller, 50)];
        let d = Diagnostics { samples: 100, user_stacks: 100, truncated, ..Diagnostics::default() };
        let all = lines(&recorded(d), None);
        assert_eq!(all[1], "prof: 50.0 % of the stacks are truncated (no caller on this stack)");
    }

    #[test]
    fn time_that_samples_do_not_cover_is_reported() {
        let with = |sampled, unit| {
            let covered = Some((sampled, 1_000_000_000));
            let samples = 50;
            let mut recorded = recorded(Diagnostics { samples, covered, ..Diagnostics::default() });
            recorded.profile.period_type.unit = recorded.profile.strings.intern(unit);
            lines(&recorded, Some("x.pb.gz"))
        };
        let said = "prof: the samples cover 50 % of the CPU time that the target used; why: prof \
                    report --header x.pb.gz";
        assert_eq!(with(500_000_000, "nanoseconds")[1], said);
        assert_eq!(with(900_000_000, "nanoseconds").len(), 1);
        assert_eq!(with(500_000_000, "count").len(), 1);
    }

    #[test]
    fn notes_are_counted_and_few_samples_explained() {
        let note = |n: u32| format!("note {n}");
        let d = Diagnostics {
            samples: 100,
            notes: (0..4).map(note).collect(),
            ..Diagnostics::default()
        };
        let mut many = Recorded { first_notes: 1, ..recorded(d) };
        assert_eq!(lines(&many, Some("profile.pb.gz"))[1], "prof: 3 notes: prof report --header");
        many.run_time_code = Some("note 3".to_owned());
        assert_eq!(lines(&many, None)[1..], ["prof: note 3", "prof: 2 notes: -v prints them"]);
        many.diagnostics.samples = 2;
        assert_eq!(lines(&many, None)[2], "prof: note 1; 1 more: -v prints them");
        many.diagnostics.notes.truncate(1);
        many.run_time_code = None;
        assert_eq!(lines(&many, None).len(), 1);
    }

    /// Whatever happened: with the line about the file there are five.
    #[test]
    fn there_are_four_lines_before_the_file_at_most() {
        let unsymbolized = vec![BinaryShare { binary: "/no/such".to_owned(), samples: 500 }];
        let d = Diagnostics {
            samples: 500,
            lost: 500,
            throttled: 100,
            folded: 100,
            covered: Some((1, 1_000_000_000)),
            truncated: vec![(Truncation::RunTimeCode, 50), (Truncation::DumpTooSmall, 300)],
            user_stacks: 500,
            unsymbolized,
            notes: vec!["a".to_owned(), "b".to_owned()],
            ..Diagnostics::default()
        };
        let all = lines(&recorded(d.clone()), None);
        assert_eq!(all.len(), 4, "{all:?}");
        assert!(all[2].contains(" of the samples have no function name (such "), "{all:?}");
        let d = Diagnostics { unsymbolized: Vec::new(), ..d };
        let names_missed = Some("interrupted: names are missing".to_owned());
        let all = lines(&Recorded { names: false, names_missed, ..recorded(d) }, None);
        assert_eq!((all.len(), &*all[2]), (4, "prof: interrupted: names are missing"));
    }
}
