//! To come.

pub mod permissions;
