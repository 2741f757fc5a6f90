//! A coverage report as text.

use std::io::{self, Write};

use super::summary::left_out_line;
use super::text::{Align, GAP, TextColumn, clean, lines_of};
use profile::{Profile, Truncation, comment};
use view::answer::{Bounded, binaries};
use view::{Coverage, Covered, View, percent};

/// Width of a column of shares, unless one is longer.
const SHARE: usize = 7;

/// Remedies for a binary's gaps, one sentence each.
pub type Remedies<'a> = &'a mut dyn FnMut(&Covered) -> Vec<String>;

/// Writes a table with one or more lines for each binary.
pub fn write_text(
    out: &mut dyn Write,
    view: &View,
    coverage: &Coverage,
    remedies: Remedies<'_>,
) -> io::Result<()> {
    let shown = binaries(view, coverage);
    let rows = shown.items;
    let column = |title: &str, cell: &dyn Fn(&Covered) -> String| {
        TextColumn::at_least(SHARE, title, rows.iter().map(cell))
    };
    let whole = |b: &Covered| b.total - b.truncated_total();
    let columns = [
        column("total", &|b| format!("{:.2}%", view.percent(b.total))),
        column("self", &|b| format!("{:.2}%", view.percent(b.itself))),
        column("names", &|b| format!("{:.1}%", percent(b.named, b.frames))),
        column("lines", &|b| format!("{:.1}%", percent(b.with_lines, b.frames))),
        column("stacks", &|b| format!("{:.1}%", percent(whole(b), b.total))),
        TextColumn::new("binary", Align::Left, rows.iter().map(|b| clean(file(view, b)))),
    ];
    let before_name: usize = columns[..5].iter().map(|column| column.width() + GAP.len()).sum();
    let note = |out: &mut dyn Write, text: &str| {
        writeln!(out, "{}{}", " ".repeat(before_name), clean(text))
    };
    let mut lines = lines_of(&columns);
    writeln!(out, "\n{}", lines.next().unwrap_or_default())?;
    for (binary, line) in rows.iter().zip(lines) {
        let share = |value| percent(value, binary.total);
        writeln!(out, "{line}")?;
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
            note(out, &format!("{:.1}% of the stacks end here: {reason}", share(*value)))?;
        }
        if few > 0 {
            note(out, &format!("other ends: {:.2}% of the stacks", share(few)))?;
        }
        for remedy in remedies(binary) {
            note(out, &remedy)?;
        }
    }
    left_out_line(&shown, "binaries").into_iter().try_for_each(|text| note(out, &text))
}

/// Writes the notes of the recording: missing permissions, servers without response.
pub fn write_notes(out: &mut dyn Write, profile: &Profile) -> io::Result<()> {
    let notes: Vec<&str> = comment::values(profile, comment::NOTE).collect();
    let shown = Bounded::new(&notes, |note| note.len());
    if !notes.is_empty() {
        writeln!(out)?;
    }
    shown.items.iter().try_for_each(|note| writeln!(out, "Note: {}", clean(note)))?;
    left_out_line(&shown, "notes").into_iter().try_for_each(|text| writeln!(out, "{text}"))
}

/// Writes the summary after a recording: a line for each binary and its gaps.
pub fn write_summary(
    out: &mut dyn Write,
    view: &View,
    coverage: &Coverage,
    remedies: Remedies<'_>,
) -> io::Result<()> {
    let binaries = &coverage.binaries;
    let column = |title: &str, align: Align, cell: &dyn Fn(&Covered) -> String| {
        TextColumn::new(title, align, binaries.iter().map(cell))
    };
    let id = |b: &Covered| {
        let id = view.profile.str(b.build_id);
        clean(id.get(..8).unwrap_or(if id.is_empty() { "none" } else { id }))
    };
    let columns = [
        column("samples", Align::Right, &|b| format!("{:.1}%", view.percent(b.itself))),
        column("names", Align::Right, &|b| format!("{:.0}%", percent(b.named, b.frames))),
        column("lines", Align::Right, &|b| format!("{:.0}%", percent(b.with_lines, b.frames))),
        column("unwind", Align::Left, &|b| unwind(b).to_owned()),
        column("build ID", Align::Left, &id),
        column("binary", Align::Left, &|b| clean(file(view, b))),
    ];
    let mut lines = lines_of(&columns);
    writeln!(out, "prof: {}", lines.next().unwrap_or_default())?;
    for (binary, line) in binaries.iter().zip(lines) {
        writeln!(out, "prof: {line}")?;
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
        let ends = binary.truncated.iter().filter(|(code, _)| code == why.code());
        ends.map(|(_, value)| value).sum::<i64>()
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

fn file<'a>(view: &View<'a>, binary: &Covered) -> &'a str {
    match view.profile.str(binary.file) {
        "" => "[unknown]",
        file => file,
    }
}
