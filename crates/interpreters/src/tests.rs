//! What tests of several interpreters share.

pub mod running;
