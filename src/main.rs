//! `prof`: parse arguments, run the command, choose the exit code; nothing else.

use std::process::ExitCode;

fn main() -> ExitCode {
    symbols::run_if_worker().unwrap_or_else(prof::cli::main)
}
