//! Statistical confidence of a profile as text.

use std::io::{self, Write};

use super::text::clean;
use super::units;
use view::{Quality, Share, View};

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
    writeln!(out, "\n  self%         from … to    total%         from … to  function")?;
    for row in &quality.rows {
        let frame = view.frames.get(row.row.frame);
        let name = frame.display(view.profile);
        writeln!(out, "{}  {}  {}", columns(row.itself), columns(row.total), clean(&name))?;
    }
    Ok(())
}

fn columns(share: Share) -> String {
    let Share { measured, low, high } = share;
    format!("{:>6.2}%  {:>6.2} … {:>6.2}%", 100.0 * measured, 100.0 * low, 100.0 * high)
}
