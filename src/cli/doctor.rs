//! `prof doctor`.

use std::io::Write;
use std::process::ExitCode;

use super::examples;
use crate::sampler::permissions::{self, Check, MAIN_CHECK};
use sys::printed;

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
    let checks = permissions::checks();
    let text = if args.json { json(&checks)? } else { table(&checks) };
    let mut out = printed::stdout();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    let works = checks.iter().any(|c| c.name == MAIN_CHECK && c.ok);
    Ok(if works { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn json(checks: &[Check]) -> anyhow::Result<String> {
    let rows: Vec<_> = checks
        .iter()
        .map(
            |c| serde_json::json!({ "name": c.name, "ok": c.ok, "why": c.why, "unlock": c.unlock }),
        )
        .collect();
    Ok(serde_json::to_string_pretty(&rows)? + "\n")
}

fn table(checks: &[Check]) -> String {
    let width = checks.iter().map(|c| c.name.chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for check in checks {
        let answer = if check.ok { "yes" } else { "no " };
        out += &format!("{:width$}  {answer}  {}\n", check.name, check.why);
        if let Some(command) = &check.unlock {
            out += &format!("{:width$}       {command}\n", "");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_is_a_row_with_its_command_below() {
        let check = |name, ok, unlock: Option<&str>| Check {
            name,
            ok,
            why: "because".into(),
            unlock: unlock.map(Into::into),
        };
        let checks = [check("own", true, None), check("machine", false, Some("sysctl x=1"))];
        assert_eq!(
            table(&checks),
            "own      yes  because\nmachine  no   because\n              sysctl x=1\n"
        );
        let parsed: serde_json::Value = serde_json::from_str(&json(&checks).unwrap()).unwrap();
        assert_eq!(parsed[1]["unlock"], "sysctl x=1");
        assert_eq!(parsed[0]["ok"], true);
    }
}
