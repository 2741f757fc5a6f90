//! A coverage report as text.

use std::io::{self, Write};

use super::text::clean;
use profile::{Profile, Truncation, comment};
use view::{Coverage, Covered, View, percent};

/// Remedies for a binary's gaps, one sentence each.
pub type Remedies<'a> = &'a mut dyn FnMut(&Covered) -> Vec<String>;

/// Writes a table with one or more lines for each binary.
pub fn write_text(
    out: &mut dyn Write,
    view: &View,
    coverage: &Coverage,
    remedies: Remedies<'_>,
) -> io::Result<()> {
    writeln!(out, "\n  total     self    names    lines   stacks  binary")?;
    for binary in &coverage.binaries {
        let of_it = |value| percent(value, binary.total);
        writeln!(
            out,
            "{:>6.2}%  {:>6.2}%  {:>6.1}%  {:>6.1}%  {:>6.1}%  {}",
            view.percent(binary.total),
            view.percent(binary.itself),
            percent(binary.named, binary.frames),
            percent(binary.with_lines, binary.frames),
            of_it(binary.total - binary.truncated_total()),
            clean(file(view, binary)),
        )?;
        let id = view.profile.str(binary.build_id);
        if !id.is_empty() {
            note(out, &format!("build ID {id}"))?;
        }
        if let Some(why) = &binary.why {
            note(out, &format!("without names: {why}"))?;
        }
        for flaw in flaws(binary) {
            note(out, &flaw)?;
        }
        if binary.no_unwind_info {
            note(out, "no unwind information")?;
        }
        let (shown, few) = binary.ends();
        for (reason, value) in shown {
            note(out, &format!("{:.1}% of the stacks end here: {reason}", of_it(*value)))?;
        }
        if few > 0 {
            note(out, &format!("other ends: {:.2}% of the stacks", of_it(few)))?;
        }
        for remedy in remedies(binary) {
            note(out, &remedy)?;
        }
    }
    Ok(())
}

/// Writes the notes of the recording: missing permissions, servers without response.
pub fn write_notes(out: &mut dyn Write, profile: &Profile) -> io::Result<()> {
    let notes: Vec<&str> = comment::values(profile, comment::NOTE).collect();
    if !notes.is_empty() {
        writeln!(out)?;
    }
    notes.iter().try_for_each(|note| writeln!(out, "Note: {}", clean(note)))
}

/// Writes the summary after a recording: a line for each binary and its gaps.
pub fn write_summary(
    out: &mut dyn Write,
    view: &View,
    coverage: &Coverage,
    remedies: Remedies<'_>,
) -> io::Result<()> {
    writeln!(out, "prof: samples  names  lines  unwind  build ID  binary")?;
    for binary in &coverage.binaries {
        let id = view.profile.str(binary.build_id);
        writeln!(
            out,
            "prof: {:>6.1}%  {:>4.0}%  {:>4.0}%  {:<6}  {:<8}  {}",
            view.percent(binary.itself),
            percent(binary.named, binary.frames),
            percent(binary.with_lines, binary.frames),
            unwind(binary),
            id.get(..8).unwrap_or(if id.is_empty() { "none" } else { id }),
            clean(file(view, binary)),
        )?;
        for line in flaws(binary).into_iter().chain(remedies(binary)) {
            writeln!(out, "prof:   {}", clean(&line))?;
        }
    }
    Ok(())
}

/// Parse errors of the files that name its addresses.
fn flaws(binary: &Covered) -> Vec<String> {
    let lines = binary.why_no_lines.iter().map(|why| format!("without lines: {why}"));
    lines.chain(binary.bad_input.iter().map(|what| format!("bad input: {what}"))).collect()
}

/// State of its unwind information.
fn unwind(binary: &Covered) -> &'static str {
    let ends = |why: Truncation| {
        let of_reason = binary.truncated.iter().filter(|(code, _)| code == why.code());
        of_reason.map(|(_, value)| value).sum::<i64>()
    };
    // More than 1 % of its stacks end in code without it.
    let lacks = ends(Truncation::Uncovered).saturating_mul(100) > binary.total;
    match ends(Truncation::DamagedUnwindInfo) > 0 {
        true => "broken",
        false if binary.no_unwind_info => "no",
        false if lacks => "part",
        false => "yes",
    }
}

fn note(out: &mut dyn Write, text: &str) -> io::Result<()> {
    writeln!(out, "{:45}{}", "", clean(text))
}

fn file<'a>(view: &View<'a>, binary: &Covered) -> &'a str {
    match view.profile.str(binary.file) {
        "" => "[unknown]",
        file => file,
    }
}
