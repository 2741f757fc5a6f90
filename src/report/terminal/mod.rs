//! The interactive views of `prof report` on a terminal.
//!
//! `app::App` has the state and changes it with the keys; `draw` draws it; `model` computes pages on
//! threads of their own, so that each key is answered at once; `screen::Screen` enters the terminal
//! and leaves it as it was. docs/design/terminal.md has the rules.

mod app;
mod bounded_backend;
mod boxes;
mod cursor;
mod detail;
mod diff_flame;
mod difference;
mod draw;
mod empty;
mod export;
mod keys;
mod live;
mod menu;
mod model;
mod new_file;
mod outline;
mod page;
mod place;
mod run;
mod sandwich;
mod screen;
mod search;
mod source;
mod target;
mod theme;
mod written;

pub use difference::Base;
pub use live::{Control, LiveSource, LiveStatus, Update};
pub use run::{Opened, PageCommand, Start, run, run_live};
pub use source::CodeOptions;

#[cfg(test)]
pub use draw::tests::agreement::queries as test_queries;
