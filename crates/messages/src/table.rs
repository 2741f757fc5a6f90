//! The table of messages, in files by subject. Each is a macro that adds its entries to those
//! before and hands all of them to the next: the last makes one enum of them.

#[macro_use]
mod events;
#[macro_use]
mod files;
#[macro_use]
mod host;
#[macro_use]
mod recording;
#[macro_use]
mod types;
