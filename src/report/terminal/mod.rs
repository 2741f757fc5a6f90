//! The interactive views of `prof report` on a terminal.
//!
//! `app::App` has the state and changes it with the keys; `draw` draws it; `model` computes pages on
//! threads of their own, so that each key is answered at once; `screen::Screen` enters the terminal
//! and leaves it as it was. docs/design/terminal.md has the rules.

mod app;
mod boxes;
mod cursor;
mod draw;
mod export;
mod keys;
mod live;
mod model;
mod outline;
mod page;
mod place;
mod query;
mod run;
mod screen;
mod search;
mod theme;

pub use live::{Control, LiveSource, LiveStatus, Update};
pub use query::{AddedFilter, Page, Rows, Shown};
pub use run::{Opened, Start, run, run_live};
