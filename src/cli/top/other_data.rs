//! What the user types to record other data than before.

use clap::Parser;

use super::{is_of_the_end, refuse_types_of_the_end};
use crate::cli::target::TargetArgs;
use crate::cli::usage;
use crate::sampler::types;

/// Options as they are typed.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true, disable_version_flag = true)]
struct Line {
    #[command(flatten)]
    options: TargetArgs,
}

/// The same target with the data that was typed: `-T`, `-e` and what belongs to them, or only the
/// names of profile types and events. Without `-F` and `-c`, the rate stays.
///
/// # Errors
///
/// One line: an option or a name is unknown, or is no part of what to record.
pub fn parse(typed: &str, target: &TargetArgs) -> anyhow::Result<TargetArgs> {
    let mut words = typed.split_whitespace();
    let first = words.next().map(options).unwrap_or_default();
    let line = first.into_iter().chain(words.map(str::to_owned));
    let line = Line::try_parse_from(line).map_err(|error| {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        usage(first.strip_prefix("error: ").unwrap_or(first))
    })?;
    let data = line.options;
    let has_more = data.is_given()
        || data.tree
        || data.no_inherit
        || data.duration.is_some()
        || data.delay.is_some()
        || data.timestamps
        || data.max_samples.is_some()
        || data.type_options.given(is_of_the_end).is_some();
    if has_more {
        return Err(usage(format!("{typed}: only what is recorded can change: -T, -e, -F, -c")));
    }
    refuse_types_of_the_end(&data.types)?;
    let same = target.clone();
    let keeps_rate = data.freq.is_none() && data.count.is_none();
    Ok(TargetArgs {
        types: data.types,
        type_options: data.type_options,
        event: data.event,
        precise: data.precise,
        freq: if keeps_rate { same.freq } else { data.freq },
        count: if keeps_rate { same.count } else { data.count },
        call_graph: data.call_graph.or(same.call_graph),
        ..same
    })
}

/// The first word as options: names of profile types become values of `-T`, others
/// values of `-e`.
fn options(word: &str) -> Vec<String> {
    let is_type = |name: &&str| types::ALL.iter().any(|known| known.name == *name);
    let names = || word.split(',');
    if word.starts_with('-') || !names().all(|name| !name.is_empty()) {
        return vec![word.to_owned()];
    }
    let join = |names: Vec<&str>| names.join(",");
    let type_names = join(names().filter(is_type).collect());
    let events = join(names().filter(|name| !is_type(name)).collect());
    let given = [("-T", type_names), ("-e", events)];
    let given = given.into_iter().filter(|(_, names)| !names.is_empty());
    given.flat_map(|(option, names)| [option.to_owned(), names]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::Rate;

    fn target() -> TargetArgs {
        let pids = vec![std::process::id() as i32];
        TargetArgs { pids, freq: Some(Rate::Frequency(999)), ..TargetArgs::default() }
    }

    #[test]
    fn names_are_types_or_events() {
        assert_eq!(options("wall"), ["-T", "wall"]);
        assert_eq!(options("cpu,page-faults,lock"), ["-T", "cpu,lock", "-e", "page-faults"]);
        assert_eq!(options("{cycles,instructions}"), ["-e", "{cycles,instructions}"]);
        assert_eq!(options("--holders"), ["--holders"]);
    }

    #[test]
    fn the_target_stays_and_the_data_is_replaced() {
        let wall = parse("wall", &target()).unwrap();
        assert_eq!((wall.types, wall.pids), (vec!["wall".to_owned()], target().pids));
        assert_eq!(wall.freq, Some(Rate::Frequency(999)));
        let faults = parse(" -e page-faults  -c 10 ", &target()).unwrap();
        assert!(faults.types.is_empty() && !faults.event.is_empty());
        assert_eq!((faults.freq, faults.count), (None, Some(10)));
        assert!(parse("lock --holders", &target()).unwrap().type_options.lock.holders);
        let clock = parse("-T cpu -F 99", &target()).unwrap();
        assert_eq!((clock.types, clock.freq), (vec!["cpu".to_owned()], Some(Rate::Frequency(99))));
    }

    #[test]
    fn other_options_and_types_of_the_end_are_refused() {
        let refused = |typed: &str, reason: &str| {
            let error = parse(typed, &target()).unwrap_err().to_string();
            assert!(error.contains(reason) && !error.contains('\n'), "{typed}: {error}");
        };
        refused("wall -p 1", "only what is recorded");
        refused("wall -d 10", "only what is recorded");
        refused("-- ls", "only what is recorded");
        refused("heap", "-T heap");
        refused("-T threads", "prof threads");
        refused("-T wal", "wal");
        refused("--frobnicate", "--frobnicate");
        refused("wall,", "wall,");
    }
}
