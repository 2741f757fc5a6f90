//! Statistical confidence of a profile as text.

use std::io::{self, Write};

use super::text::{Align, TextColumn, clean, write_columns};
use super::units;
use view::{FunctionShares, Quality, Share, View};

/// Width of a column of shares, unless one is longer.
const SHARE: usize = 7;

/// Writes samples, entropy, and an interval for each function.
pub fn write_text(out: &mut dyn Write, view: &View, quality: &Quality) -> io::Result<()> {
    let count = |n: f64| units::thousands(n.round() as i64);
    write!(out, "Samples: {}", count(quality.samples))?;
    if quality.effective < quality.samples * 0.99 {
        write!(out, " (equivalent to {} of equal weight)", count(quality.effective))?;
    }
    writeln!(
        out,
        ", functions: {}, entropy: {:.2} bits",
        units::thousands(quality.functions as i64),
        quality.entropy
    )?;
    if quality.effective.is_infinite() {
        writeln!(out, "All events were sampled: the shares are exact")?;
        return rows(out, view, quality);
    }
    let seconds = view.profile.duration_nanos as f64 / 1e9;
    let longer = if seconds > 0.0 {
        format!(" ({} more at this rate)", units::format((3e9 * seconds) as i64, "nanoseconds"))
    } else {
        String::new()
    };
    let more = count(quality.to_halve());
    writeln!(
        out,
        "Intervals contain the true share with 95 % confidence; {more} more samples{longer} halve them"
    )?;
    rows(out, view, quality)
}

fn rows(out: &mut dyn Write, view: &View, quality: &Quality) -> io::Result<()> {
    let rows = || quality.rows.iter();
    let own = || rows().map(|row| row.itself);
    let total = || rows().map(|row| row.total);
    let share = |share: Share| format!("{:.2}%", 100.0 * share.measured);
    let interval =
        |share: Share| format!("{:>6.2} … {:>6.2}%", 100.0 * share.low, 100.0 * share.high);
    let name = |row: &FunctionShares| clean(&view.frames.get(row.row.frame).display(view.profile));
    writeln!(out)?;
    write_columns(
        out,
        &[
            TextColumn::at_least(SHARE, "self%", own().map(share)),
            TextColumn::new("from … to", Align::Right, own().map(interval)),
            TextColumn::at_least(SHARE, "total%", total().map(share)),
            TextColumn::new("from … to", Align::Right, total().map(interval)),
            TextColumn::new("function", Align::Left, rows().map(name)),
        ],
    )
}
