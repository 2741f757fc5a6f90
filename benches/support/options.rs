//! Options on the command line of a bench. `cargo bench -- OPTIONS` passes the same ones to all
//! benches, so each ignores those that it does not have.

use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

/// Options that were read so far and are not at their defaults.
static CHANGED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The value after `--NAME` on the command line, else `default`.
pub fn option<T: FromStr + PartialEq>(name: &str, default: T) -> T {
    let args: Vec<String> = std::env::args().collect();
    let at = args.iter().position(|a| *a == format!("--{name}"));
    let Some(text) = at.and_then(|i| args.get(i + 1)) else { return default };
    let value = text.parse().unwrap_or_else(|_| {
        eprintln!("--{name} {text}: not a value of this option");
        std::process::exit(2)
    });
    if value != default {
        let mut changed = CHANGED.lock().unwrap_or_else(PoisonError::into_inner);
        changed.push(format!("--{name} {text}"));
    }
    value
}

/// True when `--NAME` is on the command line.
pub fn flag(name: &str) -> bool {
    std::env::args().any(|a| a == format!("--{name}"))
}

/// The options that are not at their defaults, as on the command line.
pub fn changed() -> String {
    CHANGED.lock().unwrap_or_else(PoisonError::into_inner).join(" ")
}
