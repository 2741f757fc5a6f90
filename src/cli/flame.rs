//! `prof flame`.

use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use super::diff::{ScaleArgs, TestArgs, load};
use super::filter::{FilterArgs, answered, failed};
use super::output::Output;
use super::output::replaced::{self, Written};
use super::picture::{self, Picture};
use super::record::LastArgs;
use super::source::{ComparedSources, ProfileSource};
use super::summary::{self, Summary, Verbosity};
use super::symbol_args::SymbolArgs;
use super::target::TargetArgs;
use super::values::ValueArgs;
use super::{examples, usage};
use crate::report::answer::{self, OutputFormat};
use crate::report::colors::Scheme;
use crate::report::diff::{renamed_line, unequal_lengths};
use crate::report::flame::{self, FlameOptions};
use crate::report::{flame_diff, json, summary as view_summary};
use formats::collapsed;
use profile::{Profile, label};
use sys::printed::{self, Stderr};
use view::answer::DiffBoxesAnswer;
use view::query::{Limits, Query, QueryError, Roots, Shown, ShownFlame};
use view::{Answer, Cancel, Cut, Difference, Direction, Granularity, Model, Siblings, Tree, View};

mod sandwich;

/// The heading of options for the drawing in help.
const HEADING: &str = "Drawing";

/// Arguments of `prof flame`.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::short("flame"), after_long_help = examples::long("flame"))]
pub struct Args {
    /// Profiles; several are merged; - is standard input [default: profile.pb.gz]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The target, if one is recorded instead of reading FILEs
    #[command(flatten)]
    target: TargetArgs,

    /// Symbolization of the recording
    #[command(flatten)]
    symbols: SymbolArgs,

    /// Samples and drawing
    #[command(flatten)]
    draw: DrawArgs,

    #[command(flatten)]
    verbosity: Verbosity,
}

/// Arguments for the drawing.
#[derive(Debug, clap::Args)]
pub struct DrawArgs {
    #[command(flatten)]
    filter: FilterArgs,

    #[command(flatten)]
    values: ValueArgs,

    /// Draw roots at the top (an icicle graph): the default
    #[arg(long, visible_alias = "icicle", conflicts_with = "flame", help_heading = HEADING)]
    inverted: bool,

    /// Draw roots at the bottom, as flamegraph.pl does
    #[arg(long, help_heading = HEADING)]
    flame: bool,

    /// Draw the difference to the profile BASE: red grew, blue shrank
    ///
    /// Boxes are as wide as in FILE. What only BASE has is drawn on a box [disappeared]. Given several
    /// times, the BASEs are several recordings before, and the FILEs those after.
    #[arg(long, value_name = "BASE", conflicts_with_all = ["folded", "colors"],
          help_heading = HEADING)]
    pub(super) diff: Vec<PathBuf>,

    /// Draw all callers of FUNCTION above it, and all that it calls below it
    ///
    /// Merged over all places where FUNCTION occurs; with --flame, callers are below it. FUNCTION is
    /// a name, or else a regular expression. In a recursion, the outermost call counts.
    #[arg(long, value_name = "FUNCTION", help_heading = HEADING,
          conflicts_with_all = ["diff", "folded", "reverse", "root"])]
    sandwich: Option<String>,

    /// Unit of comparison of --diff
    #[command(flatten)]
    pub(super) scale: ScaleArgs,

    /// Reverse stacks: leaves at the root, callers above callees
    #[arg(long, help_heading = HEADING)]
    reverse: bool,

    /// Draw the widest boxes first, not by name
    #[arg(long, help_heading = HEADING)]
    left_heavy: bool,

    /// Draw direct recursion as one box
    #[arg(long, help_heading = HEADING)]
    collapse_recursion: bool,

    /// Title above the graph [default: process, sample type and total]
    #[arg(long, value_name = "TEXT", help_heading = HEADING)]
    title: Option<String>,

    /// Width in pixels [default: that of the window]
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(200..=100_000),
          help_heading = HEADING)]
    width: Option<u32>,

    /// Leave out boxes narrower than PERCENT of the whole
    #[arg(long, value_name = "PERCENT", default_value = "0.05", value_parser = super::report::percent,
          allow_negative_numbers = true, help_heading = HEADING)]
    min_width: f64,

    /// Meaning of the colours [default: language, or state for wall time]
    #[arg(long, value_enum, value_name = "SCHEME", help_heading = HEADING)]
    colors: Option<Scheme>,

    /// Labels whose values form the outermost boxes, separated by commas, or none
    ///
    /// For example process, pid, thread, tid, cgroup or state. The default is process if there are
    /// several, else none.
    #[arg(long, value_name = "LABELS", value_delimiter = ',', help_heading = HEADING)]
    root: Vec<String>,

    /// Write to FILE [default: standard output]
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,

    /// Write folded stacks as text instead of a drawing
    ///
    /// Each line is a stack from the root to the leaf and its value: main;foo;bar 123. A ';' in a
    /// name becomes ':'.
    #[arg(long, help_heading = "Output")]
    folded: bool,

    /// Write the boxes as JSON instead of a drawing
    #[arg(long, conflicts_with = "folded", help_heading = "Output")]
    json: bool,
}

/// Runs `prof flame`.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut args = args;
    args.draw.filter.no_inlines |= args.symbols.no_inlines();
    args.draw.filter.names = args.symbols.clone().into();
    args.draw.check()?;
    args.target.find_and_show(args.verbosity)?;
    args.check()?;
    let source = ProfileSource::Files(args.files.clone());
    if !args.draw.diff.is_empty() {
        return args.draw.difference(source);
    }
    if let Some(option) = args.draw.scale.given() {
        return Err(usage(format!("{option} belongs to a comparison: add --diff BASE")));
    }
    let output = args.draw.output()?;
    if args.target.is_given() {
        return record_and_draw(&args, output);
    } else {
        draw(&args, args.draw.filter.load(&source)?, output)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn record_and_draw(args: &Args, mut output: Output) -> anyhow::Result<ExitCode> {
    let names = Some(args.symbols.options()?);
    let whole = LastArgs::default();
    let mut recorded =
        super::record::record(&args.target, &whole, names, args.verbosity, &mut output)?;
    recorded.profile.strings.replace(printed::line);
    let some = recorded.diagnostics.samples > 0;
    if let Some(note) = args.draw.filter.restyled(&mut recorded.profile) {
        Stderr::line(&format!("prof: {note}"));
    }
    let to_stdout = output.is_stdout();
    let bytes = if some { draw(args, Arc::new(recorded.profile.clone()), output)? } else { 0 };
    if !args.verbosity.quiet {
        let summary = Summary::for_recording(&recorded, None);
        summary.write(&mut Stderr, args.verbosity.verbose)?;
        if let Some(path) = args.draw.output.as_ref().filter(|_| some && !to_stdout) {
            summary::written(&mut Stderr, path, bytes, None)?;
        }
        summary.advice(&mut Stderr, args.verbosity.verbose)?;
    }
    anyhow::ensure!(some, "no samples, so there is nothing to draw");
    Ok(recorded.exit_code())
}

impl Args {
    /// Fails if the arguments contradict each other.
    fn check(&self) -> anyhow::Result<()> {
        if self.target.is_given() {
            if !self.draw.diff.is_empty() {
                return Err(usage("--diff compares FILEs: record the target with prof record"));
            }
            if !self.files.is_empty() {
                return Err(usage(
                    "give FILEs to draw or a target to record, not both; a COMMAND comes after '--'",
                ));
            }
            if self.draw.filter.samples.time.is_given() && !self.target.timestamps {
                return Err(usage("--time of a recording needs --timestamps"));
            }
            if let Some(kind) = &self.draw.filter.sample_type
                && !kind.bytes().all(|b| b.is_ascii_digit())
                && !self.target.can_have_type(kind.split('/').next().unwrap_or(kind))?
            {
                return Err(usage(format!(
                    "--type: this recording has no sample type {kind:?}; give the -T or -e that \
                     records it"
                )));
            }
        } else if let Some(option) = self.target.recording_option().or(self.symbols.given()) {
            return Err(usage(if self.files.is_empty() {
                format!(
                    "{option} needs a target to record: give -p PID, -t TID, -G CGROUP, -a or \
                     -- COMMAND"
                )
            } else {
                format!("{option} applies to recordings, not to FILEs")
            }));
        }
        Ok(())
    }
}

impl DrawArgs {
    /// Fails if the drawing would go to a terminal or a filter is invalid. Called before the
    /// recording.
    pub fn check(&self) -> anyhow::Result<()> {
        self.filter.check()?;
        if let Some(path) = self.output.as_deref().filter(|_| !self.folded && !self.json) {
            picture::check_name(path, Picture::Boxes)?;
        }
        let terminal = self.output.is_none() && printed::stdout_is_terminal();
        if terminal && !self.folded && !self.json {
            return Err(usage(
                "will not write an SVG to the terminal; add > out.svg or -o out.svg",
            ));
        }
        Ok(())
    }

    /// The labels of `--root`.
    fn roots(&self) -> Roots {
        if self.root.iter().any(|name| name == "none") {
            return Roots::default();
        }
        if self.root.is_empty() {
            return Roots::Usual;
        }
        let key =
            |name: &String| if name == "comm" { label::PROCESS.to_owned() } else { name.clone() };
        Roots::Required(self.root.iter().map(key).collect())
    }

    fn order(&self) -> Siblings {
        if self.left_heavy { Siblings::LeftHeavy } else { Siblings::Name }
    }

    fn direction(&self) -> Direction {
        if self.reverse { Direction::Callers } else { Direction::Callees }
    }

    /// The drawing of a profile whose samples have values of this kind.
    fn query(&self, kind: &str) -> Query {
        let by_state = match self.colors {
            Some(scheme) => scheme == Scheme::State,
            None => kind == "wall",
        };
        let (direction, siblings) = (self.direction(), self.order());
        let flame = ShownFlame { siblings, by_state, ..ShownFlame::new(direction) };
        let (shown, cut) = match &self.sandwich {
            Some(name) => {
                let name = name.clone();
                (Shown::SandwichFlame { name, siblings }, Cut::Width(self.min_width))
            }
            None if self.folded => (Shown::Tree(direction), Cut::Nothing),
            None => (Shown::Flame(flame), Cut::Width(self.min_width)),
        };
        let roots = if self.sandwich.is_some() { Roots::default() } else { self.roots() };
        let query = self.filter.query(shown);
        Query {
            granularity: Some(self.granularity()),
            roots,
            collapses_recursion: self.collapse_recursion,
            limits: Limits { cut, ..Limits::NONE },
            // Folded stacks are data for other programs.
            folds_leaf_frames: query.folds_leaf_frames && !self.folded,
            value_options: self.values.options(),
            ..query
        }
    }

    fn options(&self, title: String, subtitle: String, scheme: Scheme) -> FlameOptions {
        FlameOptions {
            title: self.title.clone().unwrap_or(title),
            subtitle,
            inverted: !self.flame,
            width: self.width.map(|w| w as usize),
            min_width: self.min_width,
            order: self.order(),
            scheme,
        }
    }

    /// The file, or standard output.
    fn output(&self) -> anyhow::Result<Output> {
        let path = self.output.as_deref().unwrap_or(Path::new("-"));
        let written = match (self.folded, self.json) {
            (true, _) => Written::Profile(&formats::collapsed::Collapsed),
            (false, true) => Written::Json,
            (false, false) => Written::Svg,
        };
        replaced::check(path, written)?;
        Output::create_any(path)
    }

    /// Draws the difference of the profiles `after` to the bases.
    fn difference(&self, after: ProfileSource) -> anyhow::Result<ExitCode> {
        if let Some(option) = self.values.given() {
            return Err(usage(format!("{option} cannot be combined with --diff")));
        }
        let output = self.output()?;
        let before = ProfileSource::Files(self.diff.clone());
        let sources = ComparedSources { before, after };
        let shown = ShownFlame { siblings: self.order(), ..ShownFlame::new(self.direction()) };
        let query = Query {
            roots: self.roots(),
            collapses_recursion: self.collapse_recursion,
            comparison: self.scale.comparison(TestArgs::default()),
            limits: Limits { cut: Cut::Width(self.min_width), ..Limits::NONE },
            ..self.filter.query(Shown::DiffFlame(shown))
        };
        let compared = load(&sources, &self.filter, &query)?;
        if !compared.has_values() {
            anyhow::bail!("nothing to draw: no sample has a value");
        }
        if let Some(renamed) = &compared.renamed {
            Stderr::line(&format!("prof: {}", renamed_line(renamed)));
        }
        let difference = view::compare(&compared, &query, &Cancel::default());
        let Difference { diff, boxes, .. } = difference.map_err(|error| failed(&error))?;
        if boxes.left_out > 0 {
            Stderr::line(&format!("prof: {}", negative(boxes.left_out)));
        }
        let files = sources.names();
        let bases = match files[0].as_slice() {
            [base] => format!("difference to {base}"),
            bases => format!("difference to {} recordings", bases.len()),
        };
        let lengths = unequal_lengths(&diff);
        if let Some(lengths) = &lengths {
            Stderr::line(&format!("prof: {lengths}; --per-second compares rates"));
        }
        let subtitle = lengths.into_iter().fold(bases, |line, more| format!("{line} · {more}"));
        let options = self.options(flame_diff::title(&diff), subtitle, Scheme::default());
        output.write_text(|out| {
            if self.json {
                let (direction, granularity) = (shown.direction, query.granularity());
                let answer = DiffBoxesAnswer::new(&diff, &boxes, direction, &files, granularity);
                json::write(out, &answer)
            } else {
                flame_diff::write(out, &diff, &boxes, &options)
            }
        })?;
        Ok(ExitCode::SUCCESS)
    }

    fn granularity(&self) -> Granularity {
        match (self.filter.granularity(), self.folded, self.colors) {
            (Some(granularity), false, Some(Scheme::Kernel)) => {
                Granularity { inlined: true, ..granularity }
            }
            (Some(granularity), ..) => granularity,
            (None, true, _) => Granularity::SYMBOL,
            (None, false, Some(Scheme::Kernel)) => {
                Granularity { inlined: true, ..Granularity::FUNCTION }
            }
            _ => Granularity::FUNCTION,
        }
    }

    /// Draws a flame graph. The number of bytes written.
    fn draw_tree(
        &self,
        answer: &Answer,
        tree: &Tree,
        query: &Query,
        output: Output,
    ) -> anyhow::Result<u64> {
        let view = &answer.view();
        let has_states = !tree.states.is_empty();
        anyhow::ensure!(
            self.folded || self.colors != Some(Scheme::State) || has_states,
            "--colors state: no sample has a label \"state\"; record with prof record -T wall"
        );
        anyhow::ensure!(
            tree.nodes.len() > 1,
            "nothing to draw: every box is narrower than --min-width {}; lower it",
            self.min_width
        );
        let scheme = self.colors.unwrap_or(match view.value_type().0 {
            "wall" => Scheme::State,
            _ => Scheme::default(),
        });
        let (title, subtitle) = (view_summary::title(view), view_summary::subtitle(view));
        let options = self.options(title, subtitle, scheme);
        output.write_text(|out| {
            if self.folded {
                collapsed::write_tree(out, view, tree)
            } else if self.json {
                answer::write(out, answer, query, OutputFormat::Json, None)
            } else {
                flame::write(out, view, tree, &options)
            }
        })
    }
}

/// Draws a profile. The number of bytes written.
fn draw(args: &Args, profile: Arc<Profile>, output: Output) -> anyhow::Result<u64> {
    let (args, quiet) = (&args.draw, args.verbosity.quiet);
    let type_index = args.filter.type_index(&profile)?;
    args.values.check(&profile, type_index)?;
    let kind = profile.sample_types.get(type_index).map_or("", |t| profile.str(t.kind)).to_owned();
    let query = Query { type_index, ..args.query(&kind) };
    let part = args.filter.part(profile, &query)?;
    if !part.has_values(type_index) {
        let view = query.view(&part.profile, &Cancel::default());
        let reason = super::report::nothing_to_show(&view, &args.filter.samples.time);
        anyhow::bail!("nothing to draw: {reason}");
    }
    // Freeing a large profile piece by piece takes longer than the system needs for all.
    let answer = ManuallyDrop::new(answered(part, &query)?);
    note_negative(&answer.view(), quiet)?;
    match &answer.model {
        Model::Tree(tree) => args.draw_tree(&answer, tree, &query, output),
        Model::Sandwich(found) => args.draw_sandwich(&answer, found, &query, output),
        _ => Err(failed(&QueryError::NotAnswered)),
    }
}

/// The sentence about samples without a width.
fn negative(count: usize) -> String {
    match count {
        1 => "1 sample with a negative value is left out".to_owned(),
        _ => format!("{count} samples with negative values are left out"),
    }
}

/// Prints how many samples with negative values, which have no width, are left out.
fn note_negative(view: &View, quiet: bool) -> anyhow::Result<()> {
    let (kind, _) = view.value_type();
    let count = view.left_out;
    if view.kept_total == 0 {
        let all = view.profile.sample_types.iter().map(|t| view.profile.str(t.kind));
        let others: Vec<&str> = all.filter(|&k| k != kind).collect();
        let or = if others.is_empty() {
            String::new()
        } else {
            format!("other types for --type: {}; ", others.join(", "))
        };
        anyhow::bail!(
            "nothing to draw: all values of type {kind} are negative or zero; {or}prof report \
             shows them"
        );
    }
    if count > 0 && !quiet {
        let them = if count == 1 { "it" } else { "them" };
        Stderr::line(&format!("prof: {}; prof report shows {them}", negative(count)));
    }
    Ok(())
}
