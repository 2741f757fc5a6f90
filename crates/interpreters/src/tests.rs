//! What tests of several interpreters share.

pub mod copied;
pub mod running;
