//! Tests that a machine cannot run.

use crate::printed::Stderr;

/// Reports that this test does not run here because a program, a right or a setting is missing;
/// with `CI=true` that is a failure.
///
/// # Panics
///
/// `CI` is `true`.
#[track_caller]
pub fn skip(reason: &str) {
    let line = skipped(reason);
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{line}");
    Stderr::line(&line);
}

/// Reports that this machine does not have the subject of the test: hardware, or a feature of its
/// kernel that no package provides. That is no failure, not even with `CI=true`.
pub fn skip_hardware(reason: &str) {
    Stderr::line(&skipped(reason));
}

/// The test harness runs each test in a thread of its name.
fn skipped(reason: &str) -> String {
    let thread = std::thread::current();
    format!("SKIPPED: {}: {reason}", thread.name().unwrap_or("?"))
}
