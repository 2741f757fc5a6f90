//! `prof`: parse arguments, run the command, choose the exit code; nothing else.

use std::process::ExitCode;

use sys::os::ReportingAllocator;

/// A worker that needs too much memory reports it.
#[global_allocator]
static ALLOCATOR: ReportingAllocator = ReportingAllocator;

fn main() -> ExitCode {
    symbols::run_if_worker().unwrap_or_else(prof::cli::main)
}
