//! `prof doctor`.

use std::io::Write;
use std::process::ExitCode;

use super::examples;
use crate::sampler::doctor::{Check, Feature, checks};
use crate::sampler::permissions::Unlock;
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
    let works = checks.iter().any(|c| c.feature == Feature::OwnProcesses && c.result.is_ok());
    Ok(if works { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn json(checks: &[Check]) -> anyhow::Result<String> {
    let rows: Vec<_> = checks
        .iter()
        .map(|check| {
            serde_json::json!({
                "code": check.feature.code(),
                "name": check.feature.to_string(),
                "ok": check.result.is_ok(),
                "why": check.why(),
                "unlock": unlock(check).map(Unlock::to_string),
            })
        })
        .collect();
    Ok(serde_json::to_string_pretty(&rows)? + "\n")
}

/// The command that unlocks a feature.
fn unlock(check: &Check) -> Option<&Unlock> {
    check.result.as_ref().err()?.unlock.as_ref()
}

fn table(checks: &[Check]) -> String {
    let names = checks.iter().map(|check| check.feature.to_string().chars().count());
    let width = names.max().unwrap_or(0);
    let mut out = String::new();
    for check in checks {
        let answer = if check.result.is_ok() { "yes" } else { "no " };
        out += &format!("{:width$}  {answer}  {}\n", check.feature, check.why());
        if let Some(command) = unlock(check) {
            out += &format!("{:width$}       {command}\n", "");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::doctor::Works;
    use crate::sampler::permissions::{Change, Obstacle, Reason};

    #[test]
    fn each_check_is_a_row_with_its_command_below() {
        let change = Change::Paranoid(0);
        let obstacle =
            Obstacle { reason: Reason::OtherUser, unlock: Some(Unlock { change, sudo: true }) };
        let checks = [
            Check { feature: Feature::OwnProcesses, result: Ok(Works::OwnProcesses) },
            Check { feature: Feature::WholeMachine, result: Err(obstacle) },
        ];
        assert_eq!(
            table(&checks),
            "own processes  yes  prof record -p PID, -- COMMAND\n\
             whole machine  no   it belongs to another user\n                    \
             sudo sysctl kernel.perf_event_paranoid=0\n"
        );
        let parsed: serde_json::Value = serde_json::from_str(&json(&checks).unwrap()).unwrap();
        assert_eq!(parsed[1]["unlock"], "sudo sysctl kernel.perf_event_paranoid=0");
        assert_eq!(parsed[1]["code"], "whole-machine");
        assert_eq!(parsed[0]["ok"], true);
    }
}
