//! What a user needs to judge how far to trust a recording.

use super::{Profile, StrId};

/// Samples of one binary that have no function name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinaryShare {
    /// Path or name of the mapping.
    pub binary: String,
    /// Samples whose leaf frame lies in this binary and has no name.
    pub samples: u64,
}

/// The figures of a recording; they travel with the profile as comments, one `key: value` each.
///
/// | key | value |
/// |---|---|
/// | `samples` | samples taken |
/// | `distinct-stacks` | distinct stacks (with their labels) |
/// | `lost` | samples that the kernel dropped because a ring buffer was full |
/// | `throttled` | times that the kernel throttled an event |
/// | `truncated` | user stacks that do not reach the thread's entry |
/// | `truncated: REASON` | the same, by reason |
/// | `completed-later` | user stacks deeper than their copy, whose rest was read from the process a moment later |
/// | `folded` | samples whose stack was cut because the stack table was full |
/// | `unsymbolized` | samples whose leaf frame has no name |
/// | `unsymbolized: BINARY` | the same, by binary |
/// | `own-cpu-seconds` | CPU time that prof itself used |
/// | `own-peak-memory` | largest resident set of prof itself, in bytes |
/// | `note` | anything else that the user was told |
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diagnostics {
    /// Samples taken.
    pub samples: u64,
    /// Distinct stacks, with their labels.
    pub distinct: u64,
    /// Samples (or other records) that were lost.
    pub lost: u64,
    /// Throttle records.
    pub throttled: u64,
    /// User stacks seen (the base of the share that is truncated).
    pub user_stacks: u64,
    /// Truncated user stacks by reason.
    pub truncated: Vec<(String, u64)>,
    /// User stacks whose outer part was read from the process a moment after the sample.
    pub completed_later: u64,
    /// Samples whose stack was cut because the stack table was full.
    pub folded: u64,
    /// Samples whose leaf has no function name, by binary, most first.
    pub unsymbolized: Vec<BinaryShare>,
    /// CPU time of prof itself, in seconds.
    pub own_cpu_seconds: f64,
    /// Peak resident memory of prof itself, in bytes.
    pub own_peak_bytes: u64,
    /// Further sentences for the user (fallbacks, refusals).
    pub notes: Vec<String>,
}

impl Diagnostics {
    /// Sum of the truncated stacks.
    pub fn truncated_total(&self) -> u64 {
        self.truncated.iter().map(|(_, n)| n).sum()
    }

    /// Sum of the samples without a name.
    pub fn unsymbolized_total(&self) -> u64 {
        total(&self.unsymbolized)
    }

    /// The figures as pprof comments.
    pub fn to_comments(&self) -> Vec<String> {
        let mut out = vec![
            format!("samples: {}", self.samples),
            format!("distinct-stacks: {}", self.distinct),
            format!("lost: {}", self.lost),
            format!("throttled: {}", self.throttled),
            format!("truncated: {} of {}", self.truncated_total(), self.user_stacks),
        ];
        out.extend(self.truncated.iter().map(|(why, n)| format!("truncated: {why}: {n}")));
        out.push(format!("completed-later: {}", self.completed_later));
        out.push(format!("folded: {}", self.folded));
        out.extend(unsymbolized_comments(&self.unsymbolized));
        out.push(format!("own-cpu-seconds: {:.3}", self.own_cpu_seconds));
        out.push(format!("own-peak-memory: {}", self.own_peak_bytes));
        out.extend(self.notes.iter().map(|n| format!("note: {n}")));
        out
    }
}

fn total(shares: &[BinaryShare]) -> u64 {
    shares.iter().map(|b| b.samples).sum()
}

fn unsymbolized_comments(shares: &[BinaryShare]) -> impl Iterator<Item = String> {
    let each = shares.iter().map(|b| format!("unsymbolized: {}: {}", b.binary, b.samples));
    std::iter::once(format!("unsymbolized: {}", total(shares))).chain(each)
}

/// Replaces the figures about samples without a name in the comments of a profile of prof's, as
/// they are after it was symbolized.
pub fn set_unsymbolized(profile: &mut Profile, shares: &[BinaryShare]) {
    let Profile { strings, comments, .. } = profile;
    let old = |c: &StrId| strings.get(*c).starts_with("unsymbolized: ");
    let Some(at) = comments.iter().position(old) else { return };
    comments.retain(|c| !old(c));
    let new: Vec<StrId> = unsymbolized_comments(shares).map(|c| strings.intern(&c)).collect();
    comments.splice(at..at, new);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_about_names_are_replaced() {
        let mut p = Profile::default();
        let before = ["lost: 0", "unsymbolized: 9", "unsymbolized: /a: 9", "note: x"];
        p.comments = before.iter().map(|c| p.strings.intern(c)).collect();
        let share = BinaryShare { binary: "/b".into(), samples: 2 };
        set_unsymbolized(&mut p, &[share]);
        let comments = |p: &Profile| p.comments.iter().map(|&c| p.str(c).to_owned()).collect();
        let after: Vec<String> = comments(&p);
        assert_eq!(after, ["lost: 0", "unsymbolized: 2", "unsymbolized: /b: 2", "note: x"]);
        let mut others = Profile::default();
        set_unsymbolized(&mut others, &[]);
        assert!(others.comments.is_empty());
    }

    #[test]
    fn comments_are_key_and_value() {
        let d = Diagnostics {
            samples: 10,
            user_stacks: 9,
            truncated: vec![("dump too small".into(), 2)],
            ..Diagnostics::default()
        };
        let comments = d.to_comments();
        assert!(comments.contains(&"samples: 10".to_string()));
        assert!(comments.contains(&"truncated: 2 of 9".to_string()));
        assert!(comments.contains(&"truncated: dump too small: 2".to_string()));
        assert!(comments.iter().all(|c| c.contains(": ")));
    }
}
