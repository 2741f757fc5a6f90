//! The code behind a profile: the text of its source files, and the instructions of its functions.
//!
//! Models without a terminal: values, lines and instructions, and codes for what is missing. The
//! files are those of others: source is opened as [`sys::foreign`] does, binaries are checked by
//! build ID.

mod arch;
pub mod arrows;
pub mod assembly;
pub mod sources;
pub mod text;
