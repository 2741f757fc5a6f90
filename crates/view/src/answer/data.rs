//! The answer to any query.

use serde::Serialize;

use super::{
    BoxesAnswer, CoverageAnswer, GraphAnswer, HeaderAnswer, OverAnswer, PeekAnswer, QualityAnswer,
    SandwichAnswer, SandwichBoxesAnswer, SourceAnswer, StatesAnswer, TableAnswer, TagsAnswer,
    ThreadsAnswer, TracesAnswer, TreeAnswer, binaries,
};
use crate::query::{Query, Shown, ShownFlame};
use crate::{Answer, Covered, Model, TableModel, View};

/// An answer as data.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum AnswerData<'a> {
    /// A table.
    Table(TableAnswer<'a>),
    /// Values over time.
    Over(OverAnswer<'a>),
    /// A call tree.
    Tree(TreeAnswer<'a>),
    /// A flame graph.
    Boxes(BoxesAnswer<'a>),
    /// A call graph.
    Graph(GraphAnswer<'a>),
    /// The callers and the callees of functions.
    Sandwich(SandwichAnswer<'a>),
    /// The same as boxes.
    SandwichBoxes(SandwichBoxesAnswer<'a>),
    /// Direct callers and callees.
    Peek(PeekAnswer<'a>),
    /// Stacks one by one.
    Traces(TracesAnswer<'a>),
    /// The values of all labels.
    Tags(TagsAnswer<'a>),
    /// Threads by state.
    States(StatesAnswer<'a>),
    /// Threads with their stacks.
    Threads(ThreadsAnswer<'a>),
    /// The values of lines and instructions, without the text of files.
    Source(SourceAnswer<'a>),
    /// Confidence intervals.
    Quality(QualityAnswer<'a>),
    /// Names and lines of each binary.
    Coverage(CoverageAnswer<'a>),
    /// Metadata of the file.
    Header(HeaderAnswer<'a>),
}

impl<'a> AnswerData<'a> {
    /// An answer to `query`, with its view; `remedies`: sentences about a binary that lacks something.
    /// `None` for values over time without a sample type.
    pub fn new(
        view: &'a View<'a>,
        answer: &'a Answer,
        query: &'a Query,
        remedies: impl FnMut(&Covered) -> Vec<String>,
    ) -> Option<AnswerData<'a>> {
        let (keys, min_width) = (query.shown.labels(), query.limits.min_width());
        Some(match &answer.model {
            Model::Table(TableModel { top, columns }) => {
                AnswerData::Table(TableAnswer::new(view, top, columns, keys))
            }
            Model::Over(tables) => {
                AnswerData::Over(OverAnswer::new(view, tables, answer.part.start, keys)?)
            }
            Model::Tree(tree) => match query.shown {
                Shown::Flame(ShownFlame { siblings, .. }) => {
                    AnswerData::Boxes(BoxesAnswer::new(view, tree, siblings, min_width))
                }
                _ => AnswerData::Tree(TreeAnswer::new(view, tree)),
            },
            Model::Graph(graph) => AnswerData::Graph(GraphAnswer::new(view, graph)),
            Model::Sandwich(model) => match query.shown {
                Shown::SandwichFlame { siblings, .. } => {
                    let answer = SandwichBoxesAnswer::new(view, model, siblings, min_width);
                    AnswerData::SandwichBoxes(answer)
                }
                _ => AnswerData::Sandwich(SandwichAnswer::new(view, model)),
            },
            Model::Peek(peek) => AnswerData::Peek(PeekAnswer::new(view, peek)),
            Model::Traces(traces) => {
                AnswerData::Traces(TracesAnswer::new(view, traces, answer.part.start))
            }
            Model::Tags(tags) => AnswerData::Tags(TagsAnswer::new(view, tags)),
            Model::States(states) => AnswerData::States(StatesAnswer::new(view, states)),
            Model::Threads(threads) => AnswerData::Threads(ThreadsAnswer::new(view, threads)),
            Model::Source(source) => AnswerData::Source(SourceAnswer::new(view, source)),
            Model::Quality(quality) => AnswerData::Quality(QualityAnswer::new(view, quality)),
            Model::Coverage(model) => {
                let shown = binaries(view, &model.coverage);
                let answer = CoverageAnswer::new(view, shown.items, shown.left_out, remedies);
                AnswerData::Coverage(answer)
            }
            Model::Header => AnswerData::Header(HeaderAnswer::new(view)),
        })
    }
}
