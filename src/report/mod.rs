//! The reading side: thin renderers of the models of [`view`] ([`text`], [`json`] and [`flame`] (SVG)),
//! and advice.

pub mod advice;
pub mod annotate;
pub mod answer;
pub mod colors;
mod columns;
pub mod coverage;
pub mod diff;
pub mod dot;
pub mod flame;
pub mod flame_diff;
pub mod graphviz;
pub mod json;
pub mod legend;
pub mod locks;
pub mod over;
pub mod peek;
pub mod quality;
pub mod sandwich;
mod shorten;
pub mod states;
pub mod style;
pub mod summary;
mod tags;
pub mod terminal;
pub mod text;
pub mod threads;
mod traces;
pub mod units;
mod values;
