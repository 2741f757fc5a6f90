//! Answers: models as data with names, whose JSON form `docs/json.md` describes.
//!
//! A list of an answer is made while it is read, so that no answer takes more memory than its model.

mod boxes;
mod coverage;
mod data;
mod diff;
mod frame;
mod head;
mod list;
mod source;
mod table;
mod tags;
mod threads;
mod traces;
mod trees;

pub use boxes::{BoxAnswer, BoxesAnswer, SandwichBoxesAnswer};
pub use coverage::{
    CoverageAnswer, CoverageRow, HeaderAnswer, MappingAnswer, TruncatedAnswer, binaries,
};
pub use data::AnswerData;
pub use diff::{
    ChangeAnswer, DiffAnswer, DiffBoxAnswer, DiffBoxesAnswer, DiffFrameAnswer, DiffHead,
    DiffRowAnswer, RenamedAnswer, SideAnswer,
};
pub use frame::FrameAnswer;
pub use head::{Bounded, Head, TypeAnswer, VERSION, comments, mappings};
pub use list::{List, Members};
pub use source::{
    AddressAnswer, InlinedAnswer, LineAnswer, ListingAnswer, ListingHead, SourceAnswer, SourceHead,
    ValuesAnswer,
};
pub use table::{
    ColumnAnswer, ColumnTypeAnswer, LabelAnswer, OverAnswer, OverColumnAnswer, OverRowAnswer,
    OverTypeAnswer, QualityAnswer, QualityRow, RatioAnswer, ShareAnswer, TableAnswer, TableRow,
};
pub use tags::{TagAnswer, TagValueAnswer, TagsAnswer};
pub use threads::{GroupAnswer, StatesAnswer, StatesRow, ThreadAnswer, ThreadsAnswer};
pub use traces::{TraceAnswer, TraceLabelAnswer, TracesAnswer};
pub use trees::{
    EdgeAnswer, GraphAnswer, GraphNodeAnswer, NodeAnswer, PeekAnswer, PeekRow, PeekedAnswer,
    SandwichAnswer, TreeAnswer,
};

/// `None` for an empty text, which profiles have in place of what is unknown.
pub fn known_text(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// `None` for 0, which profiles have in place of a number that is unknown.
pub fn known(number: i64) -> Option<i64> {
    (number != 0).then_some(number)
}
