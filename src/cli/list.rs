//! `prof list`: the events of this machine, and the markers of binaries.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use super::target::{Found, ProcessArg};
use super::{examples, usage};
use crate::sampler;
use crate::sampler::catalogue::{self, Group};
use crate::sampler::probes::{ProbePlaces, markers_of};
use messages::Message;
use sys::binaries::{self, Binary};
use sys::printed;

/// Arguments of `prof list`.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::short("list"), after_long_help = examples::long("list"))]
pub struct Args {
    /// Events to list: a part of a name, a pattern, a kind, or a program [default: all]
    #[arg(
        value_name = "SEARCH",
        long_help = "Events to list [default: all]\n\n\
            - a part of a name: stalled\n\
            - a pattern: 'sched:*wake*'\n\
            - a kind: hardware (hw), software (sw), cache, pmu, tracepoint, sdt, probe\n\
            - a program, by its name or path, or a path of a library: its USDT markers"
    )]
    search: Vec<String>,
    /// Also list the USDT markers of the binaries of these processes
    ///
    /// By PID or name as in prof record -p; several are separated by commas.
    #[arg(
        short,
        long,
        value_name = "PID|NAME",
        value_delimiter = ',',
        allow_negative_numbers = true
    )]
    pid: Vec<ProcessArg>,
}

/// Runs `prof list`.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let pids = Found::named(&args.pid)?.ids;
    list(&args.search, &pids)
}

/// Prints the events that match `search`, of the machine and of these processes.
fn list(search: &[String], pids: &[i32]) -> anyhow::Result<ExitCode> {
    pids.iter().try_for_each(|&pid| sampler::check_process(pid))?;
    let (files, words): (Vec<&String>, Vec<&String>) =
        search.iter().partition(|word| is_binary(word));
    let mut groups =
        if files.is_empty() || !words.is_empty() { catalogue::groups() } else { Vec::new() };
    let programs: Vec<(&String, Binary)> =
        words.iter().filter_map(|&word| Some((word, program(word)?))).collect();
    let mut binaries: Vec<Binary> =
        files.iter().map(|file| Binary::here(Path::new(file).to_owned())).collect();
    binaries.extend(ProbePlaces::new(pids.to_vec(), None).binaries().iter().cloned());
    let named = files.len();
    for (i, binary) in binaries.iter().enumerate() {
        let group = markers(binary);
        // A file in the arguments is listed even without markers.
        if i < named || !group.events.is_empty() {
            groups.push(group);
        }
    }
    // A program's name may be a part of events' names, too: without markers, it is no more.
    let programs: Vec<Group> = programs
        .iter()
        .map(|(word, binary)| (word, markers(binary)))
        .filter(|(word, group)| !group.events.is_empty() || !names_events(&groups, word))
        .map(|(_, group)| group)
        .collect();
    let any = !groups.is_empty() || !programs.is_empty();
    let unreadable =
        groups.iter().find(|group| group.kind == "tracepoint" && group.events.is_empty());
    let unreadable = unreadable.and_then(|group| group.why.clone());
    groups.iter_mut().for_each(|group| group.retain(&words));
    let is_wanted = |group: &Group| words.iter().all(|word| catalogue::kind(word) == group.kind);
    groups.retain(|group| !group.events.is_empty() || (is_wanted(group) && group.why.is_some()));
    groups.extend(programs);
    if groups.is_empty() && any {
        let words: Vec<&str> = words.iter().map(|word| word.as_str()).collect();
        let words = words.join("' or '");
        return Err(match unreadable {
            // What matches may be a tracepoint.
            Some(why) if words.contains([':', '*', '?']) => {
                anyhow::anyhow!(
                    "no other event matches '{words}', and tracepoints cannot be listed: {why}"
                )
            }
            _ => {
                usage(format!("no event matches '{words}'; prof list without arguments lists all"))
            }
        });
    }
    let mut out = printed::stdout();
    for (i, group) in groups.iter().enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        write(&mut out, group)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Whether a word is the path of a file, not a pattern of events.
fn is_binary(word: &str) -> bool {
    word.contains('/') && !word.ends_with('/') && Path::new(word).is_file()
}

/// The program that a shell would run by this name, or its interpreter if it is a script.
fn program(word: &str) -> Option<Binary> {
    if word.contains(['/', '*', '?', ':']) {
        return None;
    }
    binaries::for_command(word).into_iter().next()
}

/// Whether a word is the kind of a group, or matches an event.
fn names_events(groups: &[Group], word: &String) -> bool {
    groups.iter().any(|group| {
        let mut found = group.clone();
        found.retain(&[word]);
        group.kind == catalogue::kind(word) || !found.events.is_empty()
    })
}

fn markers(binary: &Binary) -> Group {
    let path = binary.path.display();
    let mut names: Vec<String> = markers_of(&binary.open)
        .into_iter()
        .map(|m| format!("sdt:{path}:{}:{}", m.provider, m.name))
        .collect();
    names.sort();
    names.dedup();
    let why = names.is_empty().then_some(Message::NoMarkers);
    Group::new("sdt", &format!("Markers of {path}"), why, names)
}

fn write(out: &mut impl Write, group: &Group) -> std::io::Result<()> {
    match &group.why {
        Some(why) => {
            writeln!(out, "{}", printed::line(&format!("{} (not available: {why})", group.title)))?;
        }
        None => writeln!(out, "{}", printed::line(&group.title))?,
    }
    let width = group.events.iter().map(|e| e.name.chars().count()).max().unwrap_or(0).min(40);
    for event in &group.events {
        let mark = if event.why.is_some() || group.why.is_some() { '-' } else { ' ' };
        let mut about = event.about.clone();
        if let Some(why) = &event.why {
            about =
                format!("{about}{}not available: {why}", if about.is_empty() { "" } else { "; " });
        }
        let line = format!("{mark} {:width$}  {about}", event.name);
        writeln!(out, "{}", printed::line(line.trim_end()))?;
    }
    Ok(())
}
