//! `prof doctor`.

use std::io::Write;
use std::process::ExitCode;

use super::examples;
use crate::sampler::doctor::{Check, checks};
use sys::{printed, procfs};

/// Arguments of `prof doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::short("doctor"), after_long_help = examples::long("doctor"))]
pub struct Args {
    /// Print the checks as JSON
    #[arg(long)]
    json: bool,
}

/// Runs `prof doctor`.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    // All checks depend on it.
    procfs::check_mounted()?;
    let checks = checks();
    let text = if args.json { json(&checks)? } else { table(&checks) };
    let mut out = printed::stdout();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    let works = checks.iter().any(|c| c.code == Check::OWN_PROCESSES && c.result.is_ok());
    Ok(if works { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn json(checks: &[Check]) -> anyhow::Result<String> {
    let rows: Vec<_> = checks
        .iter()
        .map(|check| {
            serde_json::json!({
                "code": check.code,
                "name": check.name(),
                "ok": check.result.is_ok(),
                "why": check.message().sentence(),
                "unlock": check.message().remedy(),
                "message": check.message(),
            })
        })
        .collect();
    Ok(serde_json::to_string_pretty(&rows)? + "\n")
}

fn table(checks: &[Check]) -> String {
    let names = checks.iter().map(|check| check.name().chars().count());
    let width = names.max().unwrap_or(0);
    let mut out = String::new();
    for check in checks {
        let answer = if check.result.is_ok() { "yes" } else { "no " };
        out += &format!("{:width$}  {answer}  {}\n", check.name(), check.message().sentence());
        if let Some(command) = check.message().remedy() {
            out += &format!("{:width$}       {command}\n", "");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use messages::Message;

    #[test]
    fn each_check_is_a_row_with_its_command_below() {
        let obstacle = Message::Paranoid { level: 2, needed: 0, program: None, sudo: true };
        let checks = [
            Check { code: "own-processes", result: Ok(Message::OwnProcesses) },
            Check { code: "whole-machine", result: Err(obstacle) },
        ];
        assert_eq!(
            table(&checks),
            "own processes  yes  prof record -p PID, -- COMMAND\n\
             whole machine  no   kernel.perf_event_paranoid is 2, which allows your own processes \
             without kernel frames\n                    \
             sudo sysctl kernel.perf_event_paranoid=0\n"
        );
        let parsed: serde_json::Value = serde_json::from_str(&json(&checks).unwrap()).unwrap();
        assert_eq!(parsed[1]["unlock"], "sudo sysctl kernel.perf_event_paranoid=0");
        assert_eq!(parsed[1]["code"], "whole-machine");
        assert_eq!(parsed[1]["message"]["code"], "perf-event-paranoid");
        assert_eq!(parsed[0]["ok"], true);
    }
}
