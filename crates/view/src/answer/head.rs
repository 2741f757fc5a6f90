//! What all answers about one profile begin with.

use serde::Serialize;

use super::{Members, known, known_text};
use crate::mean::divide;
use crate::query::{PercentOf, ShownUnit};
use crate::{ByState, LeafFrames, States, View};
use profile::{Mapping, Profile, StrId, ThreadState, ValueType};

/// Version of the answers. It increases when a member is removed, renamed or changes its meaning.
pub const VERSION: u32 = 1;

/// A sample type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TypeAnswer<'a> {
    /// For example `cpu`.
    pub kind: &'a str,
    /// For example `nanoseconds`.
    pub unit: &'a str,
}

impl<'a> TypeAnswer<'a> {
    fn new(profile: &'a Profile, value_type: &ValueType) -> TypeAnswer<'a> {
        TypeAnswer { kind: profile.str(value_type.kind), unit: profile.str(value_type.unit) }
    }
}

/// The members of all answers about one profile.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Head<'a> {
    /// The version of the answers.
    pub version: u32,
    /// The sample type that is shown.
    #[serde(rename = "type")]
    pub shown_type: Option<TypeAnswer<'a>>,
    /// All sample types.
    pub types: Vec<TypeAnswer<'a>>,
    /// Sum of the magnitudes of all values before the filter, or their mean, divided as the members
    /// below say.
    pub total: i64,
    /// The same after it.
    pub kept: i64,
    /// The number by which all values are divided, rounded towards 0.
    pub divided_by: f64,
    /// Kind of the first sample type, by whose values those of `type` are divided before that, if
    /// values are means.
    pub mean_per: Option<&'a str>,
    /// The unit in which text has values; here, they are in that of `type`.
    pub shown_unit: Option<&'static str>,
    /// The one of both that is the 100 % of percentages.
    pub percent_of: PercentOf,
    /// The values that are not 0, by the state of threads; `None` if no sample has a state.
    pub states: Option<Members<i64>>,
    /// The leaf frames that are left out, whose values are those of their callers: `scheduler`,
    /// `locks`, `block layer` or `allocator`; `None` if all are there.
    pub leaf_frames_left_out: Option<&'static str>,
    /// An interpreter's own frames are left out of stacks that have functions of its programs.
    pub interpreter_frames_left_out: bool,
    /// The value of idle kernel threads that are left out, which is in `total`, but not in `kept`;
    /// `None` if none are, or if values are means.
    pub idle_left_out: Option<i64>,
    /// Path of the main binary.
    pub main: Option<&'a str>,
    /// Begin of the recording, in nanoseconds since 1970.
    pub time_nanos: Option<i64>,
    /// Length of the recording.
    pub duration_nanos: Option<i64>,
    /// Sampling period.
    pub period: Option<i64>,
    /// What the period counts.
    pub period_type: Option<TypeAnswer<'a>>,
    /// Comments of the file.
    pub comments: Vec<&'a str>,
    /// Number of the comments beyond the limit of text.
    pub comments_left_out: usize,
    /// Number of inlined frames beyond the limits of the view, on the stacks of all samples.
    pub frames_left_out: u64,
}

impl<'a> Head<'a> {
    /// The members of this view.
    pub fn new(view: &View<'a>) -> Head<'a> {
        let profile = view.profile;
        let comments = comments(profile);
        let main = profile.mappings.first().map_or("", |mapping| profile.str(mapping.file));
        let period_type = Some(&profile.period_type).filter(|&t| *t != ValueType::default());
        Head {
            version: VERSION,
            shown_type: profile
                .sample_types
                .get(view.type_index)
                .map(|shown| TypeAnswer::new(profile, shown)),
            types: profile.sample_types.iter().map(|t| TypeAnswer::new(profile, t)).collect(),
            total: view.shown(view.total),
            kept: view.shown(view.kept_total),
            divided_by: view.value_options.divide_by,
            mean_per: view.counted_kind(),
            shown_unit: view.value_options.unit.map(ShownUnit::name),
            percent_of: view.value_options.percent_of,
            states: States::new(view).map(|states| by_state(view, mean_values(view, &states))),
            leaf_frames_left_out: view.folded.map(LeafFrames::name),
            interpreter_frames_left_out: view.hides_interpreters,
            idle_left_out: known(view.idle)
                .filter(|_| !view.has_means())
                .map(|value| view.shown(value)),
            main: known_text(main),
            time_nanos: known(profile.time_nanos),
            duration_nanos: known(profile.duration_nanos),
            period: known(profile.period),
            period_type: period_type.map(|t| TypeAnswer::new(profile, t)),
            comments: comments.items.iter().map(|&comment| profile.str(comment)).collect(),
            comments_left_out: comments.left_out,
            frames_left_out: view.frames.expansion.left_out,
        }
    }
}

/// The values by state.
fn mean_values(view: &View, states: &States) -> ByState {
    let mut values = states.values(view);
    if let Some(counts) = view.counts() {
        divide(&mut values, &states.values(&counts));
    }
    values
}

/// The values that are not 0, by the names of the states.
pub(super) fn by_state(view: &View, values: ByState) -> Members<i64> {
    let names = ThreadState::ALL.map(ThreadState::name).into_iter().chain(["other"]);
    let values = names.zip(values).filter(|(_, value)| *value != 0);
    Members(values.map(|(name, value)| (name.to_owned(), view.shown(value))).collect())
}

/// Bytes of the texts of a list that is always shown whole otherwise.
const MOST_TEXT: usize = 4 << 20;

/// The items of a list that are shown: many items may share one long text.
#[derive(Clone, Copy, Debug)]
pub struct Bounded<'a, T> {
    /// The first ones.
    pub items: &'a [T],
    /// Number of the others.
    pub left_out: usize,
}

impl<'a, T> Bounded<'a, T> {
    /// The first items with at most 4 MiB of text together.
    pub fn new(items: &'a [T], bytes: impl Fn(&T) -> usize) -> Bounded<'a, T> {
        let mut left = MOST_TEXT;
        let fits = |item: &T| {
            let rest = left.checked_sub(bytes(item));
            left = rest.unwrap_or(0);
            rest.is_some()
        };
        let shown = items.iter().map(fits).take_while(|&fits| fits).count();
        Bounded { items: &items[..shown], left_out: items.len() - shown }
    }
}

/// The comments of a profile that are shown.
pub fn comments(profile: &Profile) -> Bounded<'_, StrId> {
    Bounded::new(&profile.comments, |&comment| profile.str(comment).len())
}

/// The mappings of a profile that are shown.
pub fn mappings(profile: &Profile) -> Bounded<'_, Mapping> {
    let bytes = |m: &Mapping| profile.str(m.file).len() + profile.str(m.build_id).len();
    Bounded::new(&profile.mappings, bytes)
}
