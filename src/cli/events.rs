//! `-e` and `--filter`: parsing of events.

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::usage;
use crate::sampler::events::patterns::{self, is_pattern};
use crate::sampler::events::{EventKind, GroupRole};
use crate::sampler::probes::{ProbePlaces, is_probe};
use crate::sampler::{EventSpec, LeftOut};
use sys::{Error, ErrorKind};

/// An option and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Given {
    Event(String),
    Filter(String),
}

/// `-e` and `--filter`, in their order: a filter applies to the event before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventArgs(Vec<Given>);

impl EventArgs {
    /// Whether neither was given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The events, and those that this user or this machine cannot have. Probes are searched for in
    /// `places`.
    ///
    /// # Errors
    ///
    /// An unknown event, or one that does not exist; a filter after no tracepoint.
    pub fn specs(&self, places: &ProbePlaces) -> anyhow::Result<(Vec<EventSpec>, Vec<LeftOut>)> {
        let mut specs = Vec::new();
        let mut left_out = Vec::new();
        let mut recorded = false;
        // The events that a filter applies to: the last, or all of the last pattern.
        let mut filtered = 0;
        for given in &self.0 {
            match given {
                Given::Event(list) => {
                    for event in split(list) {
                        let parsed = parse(event, places);
                        recorded = parsed.is_ok();
                        match parsed {
                            Ok(events) => {
                                let before = specs.len();
                                specs.extend(events);
                                let all = is_pattern(event);
                                filtered = if all { before } else { specs.len().saturating_sub(1) };
                            }
                            Err(why) => left_out.push(LeftOut::event(event, unavailable(why)?)),
                        }
                    }
                }
                Given::Filter(filter) if recorded || left_out.is_empty() => {
                    set_filter(&mut specs[filtered..], filter)?;
                }
                // Its event is left out.
                Given::Filter(_) => {}
            }
        }
        Ok((specs, left_out))
    }
}

impl EventArgs {
    /// A line for each pattern: how many tracepoints match it.
    pub fn pattern_lines(&self) -> Vec<String> {
        let lists = self.0.iter().filter_map(|given| match given {
            Given::Event(list) => Some(split(list)),
            Given::Filter(_) => None,
        });
        let patterns = lists.flatten().filter(|event| is_pattern(event));
        let line = |pattern: &str| {
            // What is wrong with it is reported by its events.
            let names = patterns::tracepoints(pattern).ok()?;
            let plural = if names.len() == 1 { "" } else { "s" };
            Some(format!("-e '{pattern}': {} tracepoint{plural}", names.len()))
        };
        patterns.filter_map(line).collect()
    }
}

/// The reason why a valid event is unavailable; any other error is passed on.
fn unavailable(why: anyhow::Error) -> anyhow::Result<Error> {
    match why.downcast::<Error>()? {
        why if why.kind() == ErrorKind::Failed => Ok(why),
        why => Err(why.into()),
    }
}

fn parse(event: &str, places: &ProbePlaces) -> anyhow::Result<Vec<EventSpec>> {
    if is_probe(event) {
        return Ok(places.events(event)?);
    }
    if let Some(rest) = event.strip_prefix('{') {
        return group(event, rest);
    }
    if is_pattern(event) {
        let names = patterns::tracepoints(event)?;
        return Ok(names.iter().map(|name| EventSpec::parse(name)).collect::<Result<_, _>>()?);
    }
    Ok(vec![EventSpec::parse(event)?])
}

/// `{cycles,instructions}:u`: the first is sampled, the others are counted with it. The modifiers
/// apply to all; perf's `S` (sample_read) is always on.
fn group(event: &str, rest: &str) -> anyhow::Result<Vec<EventSpec>> {
    let (members, modifiers) = rest.rsplit_once('}').ok_or_else(|| {
        usage(format!(
            "event '{event}': the closing brace is missing; write '{{cycles,instructions}}'"
        ))
    })?;
    let modifiers = modifiers.trim_start_matches(':').replace('S', "");
    let mut specs = Vec::new();
    for member in split(members) {
        if is_probe(member) || member.starts_with('{') || is_pattern(member) {
            return Err(usage(format!("event '{event}': {member} cannot be in a group")));
        }
        let member = match member.contains(':') || modifiers.is_empty() {
            true => member.to_owned(),
            false if member.ends_with('/') => format!("{member}{modifiers}"),
            false => format!("{member}:{modifiers}"),
        };
        let spec = EventSpec::parse(&member)?;
        let group = if specs.is_empty() { GroupRole::Leader } else { GroupRole::Member };
        specs.push(EventSpec { group, ..spec });
    }
    if let [only] = specs.as_mut_slice() {
        only.group = GroupRole::None;
    }
    Ok(specs)
}

/// Of several filters of an event, all have to be true, as with perf.
fn set_filter(events: &mut [EventSpec], filter: &str) -> anyhow::Result<()> {
    if events.is_empty() {
        return Err(usage("--filter applies to the event before it: give -e SYSTEM:EVENT first"));
    }
    for event in events {
        if event.kind != EventKind::Tracepoint {
            return Err(usage(format!(
                "--filter applies to tracepoints, and '{}' before it is not one",
                event.name
            )));
        }
        event.filter = Some(match event.filter.take() {
            Some(before) => format!("({before}) && ({filter})"),
            None => filter.to_owned(),
        });
    }
    Ok(())
}

/// Commas separate events, but not within `pmu/a=1,b=2/` or the parameters of a function.
fn split(list: &str) -> Vec<&str> {
    let mut events = Vec::new();
    let mut start = 0;
    let mut depth = 0u32;
    let mut in_pmu = false;
    for (i, c) in list.char_indices() {
        let probe = is_probe(&list[start..]);
        match c {
            '/' if !probe => in_pmu = !in_pmu,
            '(' | '<' if probe => depth += 1,
            ')' | '>' if probe => depth = depth.saturating_sub(1),
            '{' if !in_pmu => depth += 1,
            '}' if !in_pmu => depth = depth.saturating_sub(1),
            ',' if !in_pmu && depth == 0 => {
                events.push(&list[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    events.push(&list[start..]);
    events
}

impl clap::FromArgMatches for EventArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<EventArgs, clap::Error> {
        let mut given: Vec<(usize, Given)> = Vec::new();
        for (id, make) in
            [("event", Given::Event as fn(String) -> Given), ("filter", Given::Filter)]
        {
            let at = matches.indices_of(id).into_iter().flatten();
            let texts = matches.get_many::<String>(id).into_iter().flatten();
            given.extend(at.zip(texts.map(|text| make(text.clone()))));
        }
        given.sort_by_key(|(at, _)| *at);
        Ok(EventArgs(given.into_iter().map(|(_, given)| given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = EventArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for EventArgs {
    fn augment_args(command: Command) -> Command {
        let heading = "Events";
        command
            .arg(
                Arg::new("event")
                    .short('e')
                    .long("event")
                    .value_name("EVENT")
                    .action(ArgAction::Append)
                    .help_heading(heading)
                    .help("Record these events, such as cycles:u,page-faults (repeatable)")
                    .long_help(
                        "Record these events, separated by commas (repeatable)\n\n\
                         - events by perf's names: cycles:u, page-faults, r01c2\n\
                         - groups: '{cycles,instructions}'\n\
                         - tracepoints: sched:sched_switch, or all that match 'sched:*'\n\
                         - probes: probe:[FILE:]FUNCTION[+OFFSET][%return], kprobe:FUNCTION\n\
                         - USDT markers: sdt:[FILE:]PROVIDER:NAME\n\n\
                         'prof list' prints the events of this machine.",
                    ),
            )
            .arg(
                Arg::new("filter")
                    .long("filter")
                    .value_name("CONDITION")
                    .action(ArgAction::Append)
                    .help_heading(heading)
                    .help("Record only hits of the preceding tracepoint that meet CONDITION")
                    .long_help(
                        "Record only hits of the preceding tracepoint that meet CONDITION\n\n\
                         CONDITION is an expression of the tracepoint's fields, for example \
                         'prev_prio < 100 && prev_comm ~ \"server*\"'. Of several, all have to be \
                         met.",
                    ),
            )
    }

    fn augment_args_for_update(command: Command) -> Command {
        EventArgs::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        events: EventArgs,
    }

    fn given(words: &[&str]) -> Vec<Given> {
        Line::parse_from([&["x"], words].concat()).events.0
    }

    #[test]
    fn commas_within_an_event_do_not_separate() {
        assert_eq!(
            split("cycles,cpu/event=1,umask=2/u,cs"),
            ["cycles", "cpu/event=1,umask=2/u", "cs"]
        );
        assert_eq!(split("probe:/a/b:f,cs"), ["probe:/a/b:f", "cs"]);
        assert_eq!(
            split("cs,probe:a::b<int, char>(int, char),cpu/a,b/"),
            ["cs", "probe:a::b<int, char>(int, char)", "cpu/a,b/"]
        );
        assert_eq!(split("{cycles,cpu/a,b/}:u,cs"), ["{cycles,cpu/a,b/}:u", "cs"]);
        assert_eq!(split(""), [""]);
    }

    #[test]
    fn groups_have_a_leader_and_members() {
        let places = ProbePlaces::default();
        let of = |text: &str| parse(text, &places).map_err(|e| e.to_string());
        let names = |text: &str| -> Vec<(String, GroupRole)> {
            of(text).unwrap().into_iter().map(|e| (e.name, e.group)).collect()
        };
        assert_eq!(
            names("{cycles,instructions}"),
            [("cycles".into(), GroupRole::Leader), ("instructions".into(), GroupRole::Member)]
        );
        let user = names("{cycles,instructions:k}:uS");
        assert_eq!((user[0].0.as_str(), user[1].0.as_str()), ("cycles:u", "instructions:k"));
        assert_eq!(names("{cs}"), [("cs".into(), GroupRole::None)]);
        for bad in ["{cycles,instructions", "{}", "{cycles,nosuch}", "{cycles,probe:f}", "{a,{b}}"]
        {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_filter_applies_to_the_event_before_it() {
        let event = |text: &str| Given::Event(text.into());
        let filter = |text: &str| Given::Filter(text.into());
        assert_eq!(
            given(&["-e", "a:b", "--filter", "x == 1", "-e", "c:d,e:f", "--filter", "y > 2"]),
            [event("a:b"), filter("x == 1"), event("c:d,e:f"), filter("y > 2")]
        );
        let mut spec = EventSpec { kind: EventKind::Tracepoint, ..EventSpec::cpu_clock() };
        let spec = std::slice::from_mut(&mut spec);
        set_filter(spec, "a == 1").unwrap();
        set_filter(spec, "b || c").unwrap();
        assert_eq!(spec[0].filter.as_deref(), Some("(a == 1) && (b || c)"));
        assert!(set_filter(&mut [], "a").unwrap_err().to_string().contains("-e"));
        let refused = set_filter(&mut [EventSpec::cpu_clock()], "a").unwrap_err();
        assert!(refused.to_string().contains("'cpu-clock' before it is not one"), "{refused}");
    }
}
