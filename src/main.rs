//! `prof`: parse arguments, run the command, choose the exit code; nothing else.

use std::process::ExitCode;

fn main() -> ExitCode {
    prof::cli::main()
}
