//! The machine on which a bench runs, in one line.

use std::path::Path;
use std::process::Command;

/// CPU, kernel and distribution: no name of the host, no path.
pub fn line() -> String {
    let cpuinfo = read("/proc/cpuinfo");
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|l| l.split(':').next().is_some_and(|n| n.trim() == name));
        line.and_then(|l| l.split_once(": ")).map(|(_, value)| value)
    };
    let model = short(field("model name").unwrap_or("unknown CPU"));
    let cpus = cpuinfo.lines().filter(|l| l.starts_with("processor\t")).count();
    let is_virtual = field("flags").is_some_and(|f| f.split(' ').any(|f| f == "hypervisor"));
    let kind = if is_virtual { "virtual machine" } else { "no virtual machine" };
    let counters = if has_counters() { "with" } else { "without" };
    let release = read("/proc/sys/kernel/osrelease");
    let release: Vec<&str> = release.trim().splitn(3, ['.', '-']).take(2).collect();
    let release = release.join(".");
    let system = distribution();
    format!("{model}, {cpus} CPUs, {kind} {counters} hardware counters, Linux {release}, {system}")
}

/// Today's date, such as `2026-11-22`.
pub fn date() -> String {
    let output = Command::new("date").args(["-u", "+%F"]).output().expect("date(1)");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// `Intel(R) Xeon(R) Processor` without the marks.
fn short(model: &str) -> String {
    let plain =
        ["(R)", "(TM)", "(r)", "(tm)"].iter().fold(model.to_owned(), |m, s| m.replace(s, ""));
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Hardware counters are the PMU `cpu`, or one for each kind of core.
fn has_counters() -> bool {
    let devices = Path::new("/sys/bus/event_source/devices");
    ["cpu", "cpu_core", "cpu_atom"].iter().any(|name| devices.join(name).exists())
}

fn distribution() -> String {
    let text = read("/etc/os-release");
    let name = text.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="));
    name.unwrap_or("unknown distribution").trim_matches('"').to_owned()
}
