//! Differences.

use serde::Serialize;

use super::{List, Members, TypeAnswer, VERSION, known, known_text};
use crate::{
    Change, Diff, DiffBox, DiffBoxes, DiffContent, DiffFrame, DiffName, DiffRow, Direction,
    Granularity, LeafFrames, Scale, Side,
};

/// What differences are about.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiffHead<'a> {
    /// The version of the answers.
    pub version: u32,
    /// The sample type.
    #[serde(rename = "type")]
    pub shown_type: TypeAnswer<'a>,
    /// The unit of comparison.
    pub scale: &'static str,
    /// The recordings before.
    pub before: SideAnswer<'a>,
    /// Those after.
    pub after: SideAnswer<'a>,
    /// The main binaries that are compared as one.
    pub renamed: Option<RenamedAnswer<'a>>,
    /// As of [`Head::leaf_frames_left_out`](super::Head::leaf_frames_left_out).
    pub leaf_frames_left_out: Option<&'static str>,
    /// As of [`Head::interpreter_frames_left_out`](super::Head::interpreter_frames_left_out).
    pub interpreter_frames_left_out: bool,
}

/// A side of a difference.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SideAnswer<'a> {
    /// The files.
    pub files: &'a [String],
    /// Number of recordings.
    pub recordings: usize,
    /// Sum of all values, as recorded.
    pub recorded: i64,
    /// The same in the unit of comparison.
    pub total: f64,
    /// Unit of comparison in a recorded unit.
    pub factor: f64,
    /// Sum of the lengths of the recordings.
    pub duration_nanos: Option<i64>,
    /// Number of samples.
    pub samples: i64,
    /// Number of samples of equal weight with the same confidence; `None` if it is infinite.
    pub effective_samples: Option<f64>,
}

/// Names of a main binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RenamedAnswer<'a> {
    /// In the recordings before.
    pub before: &'a str,
    /// In those after.
    pub after: &'a str,
}

impl<'a> DiffHead<'a> {
    fn new(diff: &'a Diff, files: &'a [Vec<String>; 2]) -> DiffHead<'a> {
        let side = |side: &Side, files: &'a [String]| SideAnswer {
            files,
            recordings: side.recordings,
            recorded: side.recorded,
            total: side.total,
            factor: side.factor,
            duration_nanos: Some(side.duration_nanos).filter(|&nanos| nanos > 0),
            samples: side.samples.round() as i64,
            effective_samples: Some(side.effective).filter(|number| number.is_finite()),
        };
        let renamed = diff.renamed.as_ref();
        DiffHead {
            version: VERSION,
            shown_type: TypeAnswer { kind: &diff.kind, unit: &diff.unit },
            scale: match diff.scale {
                Scale::AsRecorded => "as recorded",
                Scale::PerSecond => "per second",
                Scale::Total => "total",
            },
            before: side(&diff.before, &files[0]),
            after: side(&diff.after, &files[1]),
            renamed: renamed.map(|n| RenamedAnswer { before: &n.before, after: &n.after }),
            leaf_frames_left_out: diff.folded.map(LeafFrames::name),
            interpreter_frames_left_out: diff.hides_interpreters,
        }
    }
}

/// A difference.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiffAnswer<'a> {
    /// What it is about.
    #[serde(flatten)]
    pub head: DiffHead<'a>,
    /// Ratio of after to before, as recorded, of what did not change.
    pub common_ratio: f64,
    /// Variance of what did not change, in units of the sampling variance.
    pub dispersion: f64,
    /// True if it was measured among the recordings of a side.
    pub replicated: bool,
    /// Number of tests.
    pub tests: usize,
    /// Largest probability of listing anything as changed if nothing has.
    pub family_error: f64,
    /// Number of rows that changed.
    pub changed: usize,
    /// Number of rows before limits.
    pub row_count: usize,
    /// The rows, those that changed first.
    pub rows: List<'a, DiffRowAnswer<'a>>,
}

/// A row of a difference.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiffRowAnswer<'a> {
    /// Its frame.
    #[serde(flatten)]
    pub frame: DiffFrameAnswer<'a>,
    /// Its labels, if rows are distinguished by some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<Members<Option<&'a str>>>,
    /// The change of its self value.
    #[serde(rename = "self")]
    pub self_value: ChangeAnswer,
    /// The change of its total.
    pub total: ChangeAnswer,
}

/// A frame of a difference; an outer `None` is a member that is missing, an inner one a null.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiffFrameAnswer<'a> {
    /// Name of the function, or value of a label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<Option<&'a str>>,
    /// The kind of the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_kind: Option<&'static str>,
    /// Name of the binary, without directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binary: Option<Option<&'a str>>,
    /// Source file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<Option<&'a str>>,
    /// Address in the binary's file, hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Source line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<Option<i64>>,
}

impl<'a> DiffFrameAnswer<'a> {
    fn new(frame: &'a DiffFrame, granularity: Granularity) -> DiffFrameAnswer<'a> {
        let kind = match frame.kind {
            DiffName::Function => "function",
            DiffName::Unnamed => "unnamed",
            DiffName::Label => "label",
            DiffName::NoStack => "no stack",
            DiffName::BeyondLimit => "beyond limit",
            DiffName::Any => "any",
        };
        // Code without a name is distinguished by its binary in any case.
        let has_binary = granularity.binary || frame.kind == DiffName::Unnamed;
        let has_file = granularity.file || granularity.line;
        DiffFrameAnswer {
            function: granularity.function.then(|| known_text(&frame.name)),
            name_kind: granularity.function.then_some(kind),
            binary: has_binary.then(|| known_text(&frame.binary)),
            file: has_file.then(|| known_text(&frame.file)),
            address: granularity.address.then(|| format!("{:#x}", frame.address)),
            line: granularity.line.then(|| known(frame.line)),
        }
    }
}

/// The change of a value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChangeAnswer {
    /// Before, in the unit of comparison.
    pub before: f64,
    /// After.
    pub after: f64,
    /// After minus before.
    pub change: f64,
    /// After divided by before; `None` if that is no number.
    pub ratio: Option<f64>,
    /// Probability that sampling alone makes such a difference; `None` if it was not tested.
    pub p: Option<f64>,
    /// The same over all tests.
    pub adjusted_p: Option<f64>,
    /// True if `adjusted_p` is at most the largest error.
    pub significant: bool,
}

impl From<&Change> for ChangeAnswer {
    fn from(change: &Change) -> ChangeAnswer {
        ChangeAnswer {
            before: change.before,
            after: change.after,
            change: change.difference(),
            ratio: change.ratio(),
            p: change.p,
            adjusted_p: change.adjusted_p,
            significant: change.is_significant(),
        }
    }
}

impl<'a> DiffAnswer<'a> {
    /// The first `limit` rows (0: all) of a difference of these files, whose rows are distinguished
    /// by the labels with these keys.
    pub fn new(
        diff: &'a Diff,
        files: &'a [Vec<String>; 2],
        granularity: Granularity,
        keys: &'a [String],
        limit: usize,
    ) -> DiffAnswer<'a> {
        let most = if limit == 0 { diff.rows.len() } else { limit };
        let row = move |row: &'a DiffRow| {
            let values = diff.groups[row.group as usize].iter().map(Option::as_deref);
            let labels =
                (!keys.is_empty()).then(|| Members(keys.iter().cloned().zip(values).collect()));
            DiffRowAnswer {
                frame: DiffFrameAnswer::new(&diff.frames[row.frame as usize], granularity),
                labels,
                self_value: (&row.itself).into(),
                total: (&row.total).into(),
            }
        };
        DiffAnswer {
            head: DiffHead::new(diff, files),
            common_ratio: diff.common,
            dispersion: diff.dispersion,
            replicated: diff.replicated,
            tests: diff.tests,
            family_error: Change::FAMILY_ERROR,
            changed: diff.changed(),
            row_count: diff.rows.len(),
            rows: List::new(move || diff.rows.iter().take(most).map(row)),
        }
    }
}

/// A differential flame graph.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiffBoxesAnswer<'a> {
    /// What it is about.
    #[serde(flatten)]
    pub head: DiffHead<'a>,
    /// Of the tree.
    pub direction: Direction,
    /// Total before, in recorded units of the side after.
    pub value_before: f64,
    /// Total after.
    pub value_after: f64,
    /// Width of the whole.
    pub width: i64,
    /// Number of boxes above each other.
    pub levels: u32,
    /// The boxes, each before those on it, siblings from left to right.
    pub boxes: List<'a, DiffBoxAnswer<'a>>,
}

/// A box of a differential flame graph.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiffBoxAnswer<'a> {
    /// Its frame; missing in the box of what disappeared.
    #[serde(flatten)]
    pub frame: DiffFrameAnswer<'a>,
    /// Its number.
    pub id: usize,
    /// Number of the box below it.
    pub parent: Option<u32>,
    /// What it is: `context`, `disappeared` or `gone`.
    pub content: &'static str,
    /// Number of boxes below it.
    pub depth: u32,
    /// Left end.
    pub left: i64,
    /// Width.
    pub width: i64,
    /// Value before, in recorded units of the side after.
    pub value_before: f64,
    /// Value after.
    pub value_after: f64,
    /// After minus before.
    pub change: f64,
}

impl<'a> DiffBoxesAnswer<'a> {
    /// The boxes of a difference of these files.
    pub fn new(
        diff: &'a Diff,
        boxes: &'a DiffBoxes,
        direction: Direction,
        files: &'a [Vec<String>; 2],
        granularity: Granularity,
    ) -> DiffBoxesAnswer<'a> {
        let answer = move |(id, b): (usize, &'a DiffBox)| {
            let frame = b.frame.map(|frame| &boxes.frames[frame as usize]);
            DiffBoxAnswer {
                frame: frame.map_or_else(DiffFrameAnswer::default, |f| {
                    DiffFrameAnswer::new(f, granularity)
                }),
                id,
                parent: b.below,
                content: match b.content {
                    DiffContent::Context => "context",
                    DiffContent::Disappeared => "disappeared",
                    DiffContent::Gone => "gone",
                },
                depth: b.depth,
                left: b.left,
                width: b.width,
                value_before: b.before,
                value_after: b.after,
                change: b.change(),
            }
        };
        DiffBoxesAnswer {
            head: DiffHead::new(diff, files),
            direction,
            value_before: boxes.before,
            value_after: boxes.after,
            width: boxes.width,
            levels: boxes.levels,
            boxes: List::new(move || boxes.boxes.iter().enumerate().map(answer)),
        }
    }
}
