//! Summary of a profile: type, time, size, and warnings.

use std::cmp::Reverse;

use unicode_width::UnicodeWidthStr;

use super::{shorten, units, values};
use profile::{Diagnostics, Profile, ThreadState, ValueType, comment};
use view::answer::{Bounded, comments, mappings};
use view::query::PercentOf;
use view::{LeafFrames, Shares, States, View, base_name, percent};

/// Lines above every text view: type, time and total of `view`, after a warning if needed.
pub fn lines(view: &View) -> Vec<String> {
    lines_within(view, usize::MAX)
}

/// The same, with as many processes as fit on a line of this many columns.
pub fn lines_within(view: &View, columns: usize) -> Vec<String> {
    let profile = view.profile;
    let mut out = Vec::new();
    out.extend(warning(view));
    out.extend(left_out(view));
    if let Some(target) = comment::values(profile, comment::TARGET).next() {
        out.push(format!("Target: {target}"));
    } else if let Some(main) = main_binary(profile) {
        out.push(format!("File: {main}"));
    }
    out.push(type_line(view));
    out.extend(values_line(view).map(|line| format!("Values: {line}")));
    out.extend(time_line(profile));
    let mut total = format!("Total: {}", values::text(view, view.total));
    if let Some(share) = share_of_duration(view) {
        total.push_str(&format!(" ({share})"));
    }
    total.push_str(&kept(view));
    out.push(total);
    out.extend(states_line(view));
    out.extend(processes_line(view, columns));
    out.extend(view.folded.map(folded_line));
    out.extend(interpreter_line(view.hides_interpreters));
    out.extend(idle_line(view));
    out
}

/// What the filter keeps of the total, and what percentages are of, if that is not the total.
fn kept(view: &View) -> String {
    let mut text = String::new();
    if view.has_means() && view.kept_total != view.total {
        let kept = values::text(view, view.kept_total);
        let what = if view.idle == 0 { "what the filter keeps" } else { "what is shown" };
        text.push_str(&format!("; of {what}: {kept}"));
    } else if view.passed() != view.total && !view.has_means() {
        let (kept, share) = (values::text(view, view.passed()), percent(view.passed(), view.total));
        text.push_str(&format!(", of which the filter keeps {kept} ({share:.2}%)"));
    }
    if view.kept_total != view.total && view.value_options.percent_of == PercentOf::Kept {
        let what = if view.idle == 0 { "what it keeps" } else { "what is shown" };
        text.push_str(&format!("; percentages are of {what}"));
    }
    text
}

/// The line about idle kernel threads that are left out.
pub fn idle_line(view: &View) -> Option<String> {
    let what = "kernel threads that wait for work (--all-frames)";
    match view.idle {
        0 => None,
        _ if view.has_means() => Some(format!("Left out: {what}")),
        idle => {
            let (value, share) = (values::text(view, idle), percent(idle, view.total));
            Some(format!("Left out: {value} ({share:.2}% of the total) of {what}"))
        }
    }
}

/// What leaf frames belong to, in a sentence.
fn owner(frames: LeafFrames) -> &'static str {
    match frames {
        LeafFrames::Scheduler => "the scheduler",
        LeafFrames::Locks(_) => "locks",
        LeafFrames::BlockLayer => "the block layer",
        LeafFrames::Allocator => "allocators",
    }
}

/// The line about leaf frames that are folded into their callers.
pub fn folded_line(folded: LeafFrames) -> String {
    let frames = owner(folded);
    format!("Left out: leaf frames of {frames}; their callers have the values (--all-frames)")
}

/// The line about frames of interpreters that are left out.
pub fn interpreter_line(hides_interpreters: bool) -> Option<String> {
    hides_interpreters.then(|| "Left out: the interpreter's own frames (--native)".to_owned())
}

/// Note about frames beyond the limits of a view.
fn left_out(view: &View) -> Option<String> {
    let expansion = view.frames.expansion;
    let most = expansion.frames_per_location?;
    let frames = i64::try_from(expansion.left_out).unwrap_or(i64::MAX);
    Some(format!(
        "Note: {} inlined frames are beyond prof's memory limit: of each address, {most} are shown",
        units::thousands(frames)
    ))
}

/// The processes that are named in the summary.
const NAMED_PROCESSES: usize = 5;

/// The least percentage that the summary shows, so that it is not 0.0.
const LEAST_PERCENT: f64 = 0.05;

/// Most columns of a process's name where a line has not enough for all of it.
const LONGEST_PROCESS: usize = 24;

/// Shares of the value by process, largest first, if there are several: as many as fit on a line of
/// this many columns, at least one. They are of the same whole as the percentages of a table: idle
/// kernel threads that are left out belong to it.
fn processes_line(view: &View, columns: usize) -> Option<String> {
    let processes = view.label_values(profile::label::PROCESS);
    let all: i64 = processes.iter().fold(view.idle, |sum, &(_, value)| sum.saturating_add(value));
    let is_named = |(_, value): &&(String, i64)| percent(*value, all) >= LEAST_PERCENT;
    let most = processes.iter().take(NAMED_PROCESSES).take_while(is_named).count();
    if processes.len() < 2 || all <= 0 {
        return None;
    }
    let line = |shown: usize, longest: usize| {
        let mut words: Vec<String> = processes[..shown]
            .iter()
            .map(|(name, value)| {
                let name = shorten::middle(name, longest);
                format!("{name} {:.1}%", percent(*value, all))
            })
            .collect();
        match processes.len() - shown {
            0 => {}
            1 => words.push("1 other".to_owned()),
            others => words.push(format!("{others} others")),
        }
        format!("Processes: {} (--sort process)", words.join(", "))
    };
    let fits = |line: &String| line.width() <= columns;
    let whole = Some(line(most, usize::MAX)).filter(fits);
    let shorter = || (1..=most).rev().map(|shown| line(shown, LONGEST_PROCESS)).find(fits);
    whole.or_else(shorter).or_else(|| Some(line(most.min(1), LONGEST_PROCESS)))
}

/// Shares of the value by state, largest first, if there are several; of the same whole.
fn states_line(view: &View) -> Option<String> {
    let values = States::new(view)?.values(view);
    let all: i64 = values.iter().fold(view.idle, |sum, &v| sum.saturating_add(v));
    let names = ThreadState::ALL.map(ThreadState::name).into_iter().chain(["other"]);
    let mut spent: Vec<(&str, i64)> = names.zip(values).filter(|(_, value)| *value > 0).collect();
    spent.sort_by_key(|&(_, value)| Reverse(value));
    let spent = spent.into_iter();
    let words: Vec<String> =
        spent.map(|(name, value)| format!("{name} {:.1}%", percent(value, all))).collect();
    (words.len() > 1).then(|| format!("States: {}", words.join(", ")))
}

/// Name of the main binary, if the profile names one.
pub fn main_binary(profile: &Profile) -> Option<&str> {
    let main = profile.str(profile.mappings.first()?.file);
    (!main.is_empty()).then(|| base_name(main))
}

fn type_line(view: &View) -> String {
    let profile = view.profile;
    let Some(shown) = profile.sample_types.get(view.type_index) else {
        return "Type: none".to_string();
    };
    let mut line = format!("Type: {} [{}]", profile.str(shown.kind), profile.str(shown.unit));
    let names = profile.type_names();
    let name = &names[view.type_index];
    if name != profile.str(shown.kind) {
        line.push_str(&format!(" (--type {name})"));
    }
    let others: Vec<_> = (0..profile.sample_types.len())
        .filter(|&i| i != view.type_index)
        .map(|i| names[i].as_str())
        .collect();
    if !others.is_empty() {
        line.push_str(&format!("; --type also: {}", others.join(", ")));
    }
    line
}

/// What the values are divided by.
fn values_line(view: &View) -> Option<String> {
    let counted = view.counted_kind().map(|counted| format!("means (divided by {counted})"));
    let divisor = view.value_options.divide_by;
    let divided = (divisor != 1.0).then(|| format!("divided by {divisor}"));
    let parts: Vec<String> = counted.into_iter().chain(divided).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Time, duration, number of samples and period, as far as they are known.
pub fn time_line(profile: &Profile) -> Option<String> {
    let mut parts = Vec::new();
    if profile.time_nanos != 0 {
        parts.push(format!("Time: {}", units::utc(profile.time_nanos)));
    }
    if profile.duration_nanos != 0 {
        parts.push(format!("Duration: {}", units::format(profile.duration_nanos, "nanoseconds")));
    }
    if let Some(count) = sample_count(profile) {
        parts.push(format!("Samples: {}", units::thousands(count)));
    }
    if profile.period > 1 {
        parts.push(format!("Period: {}", period(profile)));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Number of samples taken, if a sample type counts them.
pub fn sample_count(profile: &Profile) -> Option<i64> {
    let index = profile
        .sample_types
        .iter()
        .position(|t| profile.str(t.kind) == "samples" && profile.str(t.unit) == "count")?;
    Some(profile.unfiltered_total(index)).filter(|&count| count > 0)
}

/// The sampling period with its unit, and as a rate if it is a time; both ends of a range if merged
/// files differ.
pub fn period(profile: &Profile) -> String {
    let value_type = period_type(profile);
    let (kind, unit) = (profile.str(value_type.kind), profile.str(value_type.unit));
    let value = range(profile, |p| units::format(p, unit));
    match unit {
        "nanoseconds" if profile.period > 0 => format!("{value} ({})", rate(profile)),
        "count" => format!("{value} {kind}").trim_end().to_string(),
        _ => value,
    }
}

/// The type of the period. A recording of time and of counts has the period of time, also in files
/// in which its type is that of the counts.
fn period_type(profile: &Profile) -> ValueType {
    let period_type = profile.period_type;
    let is_count = profile.str(period_type.unit) == "count";
    let is_own = comment::values(profile, comment::SAMPLES).next().is_some();
    let is_time = |t: &&ValueType| {
        matches!(profile.str(t.kind), "cpu" | "wall") && profile.str(t.unit) == "nanoseconds"
    };
    let time = profile.sample_types.iter().find(is_time).filter(|_| is_count && is_own);
    time.copied().unwrap_or(period_type)
}

/// Samples a second, for a period in nanoseconds.
fn rate(profile: &Profile) -> String {
    format!("{} Hz", range(profile, |p| format!("{:.0}", 1e9 / p as f64)))
}

/// The period as text, or the range of merged files.
fn range(profile: &Profile, words: impl Fn(i64) -> String) -> String {
    match profile.least_period {
        0 => words(profile.period),
        least => format!("{} to {}", words(least), words(profile.period)),
    }
}

/// Ratio of a time to the duration: `123%` means 1.23 busy CPUs on average.
fn share_of_duration(view: &View) -> Option<String> {
    let duration = view.profile.duration_nanos;
    let is_whole = view.value_options.divide_by == 1.0;
    (view.unit() == "nanoseconds" && duration > 0 && !view.has_means() && is_whole)
        .then(|| format!("{:.1}% of the duration", percent(view.total, duration)))
}

/// A share in percent.
fn share(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole as f64
}

/// Warning about a recording: lost samples, truncated stacks.
fn warning(view: &View) -> Option<String> {
    let figures = Diagnostics::from_comments(view.profile);
    let thousands = |n: u64| units::thousands(i64::try_from(n).unwrap_or(i64::MAX));
    let mut what = Vec::new();
    if figures.lost > 0 {
        let share = match figures.covered {
            Some((sampled, used)) if used > 0 => {
                format!(" (the others cover {:.1}% of the CPU time)", share(sampled, used))
            }
            _ => String::new(),
        };
        let samples = if figures.lost == 1 { "sample was" } else { "samples were" };
        what.push(format!("{} {samples} lost{share}", thousands(figures.lost)));
    }
    if let Some(percent) = Shares::new(view).truncated_percent() {
        what.push(format!("{percent:.1}% of the value is in truncated stacks"));
    }
    if figures.folded > 0 {
        let stacks = if figures.folded == 1 { "stack was" } else { "stacks were" };
        what.push(format!("{} {stacks} cut (too many)", thousands(figures.folded)));
    }
    (!what.is_empty()).then(|| format!("Warning: {}; see prof report --header", what.join(", ")))
}

/// Subtitle of a picture: samples, time and rate, and warnings.
pub fn subtitle(view: &View) -> String {
    let profile = view.profile;
    let mut taken: Vec<String> = Vec::new();
    if let Some(count) = sample_count(profile) {
        let what = if count == 1 { "sample" } else { "samples" };
        taken.push(format!("{} {what}", units::thousands(count)));
    }
    if profile.duration_nanos != 0 {
        taken.push(format!("in {}", units::format(profile.duration_nanos, "nanoseconds")));
    }
    if profile.period > 1 {
        taken.push(match profile.str(period_type(profile).unit) {
            "nanoseconds" => format!("at {}", rate(profile)),
            _ => format!("every {}", period(profile)),
        });
    }
    let mut parts: Vec<String> = Vec::new();
    if !taken.is_empty() {
        parts.push(taken.join(" "));
    }
    let figures = Diagnostics::from_comments(profile);
    if figures.lost > 0 {
        let lost = i64::try_from(figures.lost).unwrap_or(i64::MAX);
        let samples = if lost == 1 { "sample" } else { "samples" };
        parts.push(format!("{} {samples} lost", units::thousands(lost)));
    }
    if let Some(percent) = Shares::new(view).truncated_percent() {
        parts.push(format!("{percent:.1}% in truncated stacks"));
    }
    if view.frames.expansion.left_out > 0 {
        let frames = i64::try_from(view.frames.expansion.left_out).unwrap_or(i64::MAX);
        parts.push(format!("{} inlined frames beyond the limit", units::thousands(frames)));
    }
    if let Some(frames) = view.folded {
        parts.push(format!("without leaf frames of {}", owner(frames)));
    }
    if view.hides_interpreters {
        parts.push("without an interpreter's own frames".to_owned());
    }
    if view.idle != 0 && !view.has_means() {
        parts.push(format!("without {} of idle kernel threads", values::text(view, view.idle)));
    }
    parts.extend(values_line(view).map(|line| format!("values {line}")));
    let passed = if view.has_means() { view.kept_total } else { view.passed() };
    if passed != view.total {
        let share = percent(passed, view.total);
        let all = values::text(view, view.total);
        parts.push(format!("filtered: {share:.2}% of {all}"));
        if view.value_options.percent_of == PercentOf::Kept {
            parts.push("percentages of what is kept".to_owned());
        }
    }
    parts.join(" · ")
}

/// All facts of the file (`--header`), one a line.
pub fn header(profile: &Profile) -> Vec<String> {
    let mut out = Vec::new();
    if profile.time_nanos != 0 {
        out.push(format!("time: {}", units::utc(profile.time_nanos)));
    }
    if profile.duration_nanos != 0 {
        out.push(format!("duration: {}", units::format(profile.duration_nanos, "nanoseconds")));
    }
    if profile.period != 0 {
        out.push(format!("period: {}", period(profile)));
    }
    for (i, t) in profile.sample_types.iter().enumerate() {
        let kind = profile.str(t.kind);
        let unit = profile.str(t.unit);
        out.push(format!("total {kind}: {}", units::format(profile.unfiltered_total(i), unit)));
    }
    if profile.doc_url != profile::StrId::EMPTY {
        out.push(format!("documentation: {}", profile.str(profile.doc_url)));
    }
    let comments = comments(profile);
    out.extend(comments.items.iter().map(|&c| format!("comment: {}", profile.str(c))));
    out.extend(left_out_line(&comments, "comments"));
    let mappings = mappings(profile);
    for m in mappings.items {
        let build_id = match profile.str(m.build_id) {
            "" => "no build ID",
            id => id,
        };
        let file = match profile.str(m.file) {
            "" => "[unknown]",
            file => file,
        };
        out.push(format!(
            "mapping: {:#x}-{:#x} offset {:#x} {file} ({build_id})",
            m.start, m.limit, m.file_offset
        ));
    }
    out.extend(left_out_line(&mappings, "mappings"));
    out
}

/// The line about the items of a list, `what`, that are beyond the limit of text.
pub fn left_out_line<T>(list: &Bounded<'_, T>, what: &str) -> Option<String> {
    let count = units::thousands(list.left_out as i64);
    (list.left_out > 0).then(|| format!("{count} further {what} left out, beyond 4 MiB of text"))
}

/// `python3: cpu, 12.34 s`: the process or the main binary, the sample type, the total.
pub fn title(view: &View) -> String {
    let processes = view.label_values(profile::label::PROCESS);
    let name = match processes.as_slice() {
        [] => main_binary(view.profile).unwrap_or("all").to_string(),
        [(name, _)] => name.clone(),
        [(first, _), (second, _)] => format!("{first} and {second}"),
        several => format!("{} and {} other processes", several[0].0, several.len() - 1),
    };
    let (kind, _) = view.value_type();
    format!("{name}: {kind}, {}", values::text(view, view.kept_total))
}

#[cfg(test)]
mod tests;
