//! What users look at: [`model`]s of a profile, and thin renderers over them.
//!
//! A model holds numbers, order and hierarchy and is tested without a terminal; a renderer only
//! decides how that looks: [`text`], [`json`], [`flame`] (SVG) and [`folded`].

pub mod advice;
pub mod colors;
pub mod coverage;
pub mod flame;
pub mod folded;
pub mod json;
pub mod legend;
pub mod locks;
pub mod model;
pub mod quality;
pub mod style;
pub mod summary;
#[cfg(test)]
pub(crate) mod testing;
pub mod text;
pub mod threads;
pub mod units;
