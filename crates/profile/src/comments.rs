//! Merges the comments of several profiles.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Profile, StrId, comment};

/// Rule for merging the figures of a comment of prof's (see [`super::Diagnostics`]).
#[derive(Clone, Copy)]
enum MergeRule {
    Sum,
    Largest,
}

/// The rule for comments of this key; `None` for free text and foreign comments.
fn rule(key: &str) -> Option<MergeRule> {
    match key {
        comment::SAMPLES
        | comment::DISTINCT_STACKS
        | comment::LOST
        | comment::LOST_RECORDS
        | comment::COVERED
        | comment::THROTTLED
        | comment::TRUNCATED
        | comment::DEEP_STACKS
        | comment::COMPLETED_LATER
        | comment::FOLDED
        | comment::WITHOUT_TIME
        | comment::UNSYMBOLIZED
        | comment::OWN_CPU_SECONDS
        | comment::RECORDING_CPU_SECONDS
        | comment::WAITS_LEFT_OUT => Some(MergeRule::Sum),
        comment::OWN_PEAK_MEMORY => Some(MergeRule::Largest),
        _ => None,
    }
}

/// The figures at the end of a comment.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Figures {
    Count(u64),
    Share(u64, u64),
    Seconds(f64),
}

/// Splits `truncated: dump too small: 2` into the text before the figures, and the figures.
fn split(comment: &str) -> Option<(&str, MergeRule, Figures)> {
    let rule = rule(comment.split_once(": ")?.0)?;
    let (name, text) = comment.rsplit_once(": ")?;
    let figures = match text.split_once(" of ") {
        Some((n, all)) => Figures::Share(n.parse().ok()?, all.parse().ok()?),
        None if [comment::OWN_CPU_SECONDS, comment::RECORDING_CPU_SECONDS].contains(&name) => {
            Figures::Seconds(text.parse().ok().filter(|s: &f64| s.is_finite())?)
        }
        None => Figures::Count(text.parse().ok()?),
    };
    Some((name, rule, figures))
}

/// Combines two figures of one name; `None` if they are of different kinds.
fn together(rule: MergeRule, a: Figures, b: Figures) -> Option<Figures> {
    Some(match (rule, a, b) {
        (MergeRule::Largest, Figures::Count(a), Figures::Count(b)) => Figures::Count(a.max(b)),
        (_, Figures::Count(a), Figures::Count(b)) => Figures::Count(a.saturating_add(b)),
        (_, Figures::Share(n, all), Figures::Share(m, more)) => {
            Figures::Share(n.saturating_add(m), all.saturating_add(more))
        }
        (_, Figures::Seconds(a), Figures::Seconds(b)) => Figures::Seconds(a + b),
        _ => return None,
    })
}

/// Adds the comments of another profile, `p`, to those of `out`: prof's own figures are added up
/// (of the peak memory, the largest is kept), any other comment is kept once.
///
/// Comments of `p` are never added to each other, so `out` must be such a sum itself.
pub(super) fn add(out: &mut Profile, p: &Profile) {
    // By hash: a hostile file may have a million comments.
    let named = |(i, &c): (usize, &StrId)| Some((split(out.str(c))?.0.to_string(), i));
    let places: FxHashMap<String, usize> =
        out.comments.iter().enumerate().filter_map(named).collect();
    let mut seen: FxHashSet<StrId> = out.comments.iter().copied().collect();
    for &comment in &p.comments {
        let text = p.str(comment);
        let sum = split(text).and_then(|(name, rule, figures)| {
            let place = *places.get(name)?;
            let there = split(out.str(out.comments[place]))?.2;
            Some((place, written(name, together(rule, there, figures)?)))
        });
        if let Some((place, text)) = sum {
            out.comments[place] = out.strings.intern(&text);
        } else {
            let id = out.strings.intern(text);
            if seen.insert(id) {
                out.comments.push(id);
            }
        }
    }
}

fn written(name: &str, figures: Figures) -> String {
    match figures {
        Figures::Count(n) => format!("{name}: {n}"),
        Figures::Share(n, all) => format!("{name}: {n} of {all}"),
        Figures::Seconds(s) => format!("{name}: {s:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(files: &[&[&str]]) -> Vec<String> {
        let mut out = Profile::default();
        for file in files {
            let mut p = Profile::default();
            p.comments = file.iter().map(|c| p.strings.intern(c)).collect();
            add(&mut out, &p);
        }
        out.comments.iter().map(|&c| out.str(c).to_string()).collect()
    }

    #[test]
    fn every_figure_of_a_recording_is_merged() {
        let figures = super::super::Diagnostics {
            lost_records: 1,
            covered: Some((1, 2)),
            without_time: Some(3),
            ..Default::default()
        };
        let comments = figures.to_comments();
        let comments: Vec<&str> = comments.iter().map(String::as_str).collect();
        let keys = |all: &[String]| -> Vec<String> {
            all.iter().map(|c| c.rsplit_once(": ").unwrap().0.to_owned()).collect()
        };
        let merged = merged(&[&comments, &comments, &comments]);
        assert_eq!(keys(&merged), keys(&figures.to_comments()));
        for sum in ["covered: 3 of 6", "lost-records: 3", "recording-cpu-seconds: 0.000"] {
            assert!(merged.iter().any(|c| c == sum), "{sum} is not in {merged:?}");
        }
    }

    #[test]
    fn figures_add_up_and_texts_stay_once() {
        let first = [
            "samples: 10",
            "lost: 0",
            "truncated: 2 of 9",
            "truncated: dump too small: 2",
            "unsymbolized: /lib/a: b.so: 3",
            "own-cpu-seconds: 0.250",
            "own-peak-memory: 700",
            "note: no PMU: 3",
        ];
        let second = ["truncated: no rules: 1", "own-peak-memory: 500", "a.out -x: 7"];
        assert_eq!(
            merged(&[&first, &first, &second]),
            [
                "samples: 20",
                "lost: 0",
                "truncated: 4 of 18",
                "truncated: dump too small: 4",
                "unsymbolized: /lib/a: b.so: 6",
                "own-cpu-seconds: 0.500",
                "own-peak-memory: 700",
                "note: no PMU: 3",
                "truncated: no rules: 1",
                "a.out -x: 7",
            ]
        );
    }

    #[test]
    fn odd_figures_are_text() {
        let odd = ["lost: many", "lost: -1", "own-cpu-seconds: inf", "lost", ": 3"];
        assert_eq!(merged(&[&odd, &odd]), odd);
        assert_eq!(merged(&[&["lost: 3"], &["lost: 1 of 2"]]), ["lost: 3", "lost: 1 of 2"]);
        let most = format!("lost: {}", u64::MAX);
        assert_eq!(merged(&[&[&most], &["lost: 5"]]), [most]);
    }
}
