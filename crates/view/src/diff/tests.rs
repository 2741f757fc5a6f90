use std::slice::from_ref;

use super::*;
use crate::testing::{answers, functions, mapping};
use crate::{Direction, Granularity};
use profile::{Builder, Column, LabelSetId, LocationId};

/// Nanoseconds between two samples.
const PERIOD: i64 = 1_000_000;

fn views(profiles: &[Profile]) -> Vec<View<'_>> {
    let last = |p: &Profile| p.sample_types.len().saturating_sub(1);
    profiles.iter().map(|p| View::new(p, last(p), Granularity::FUNCTION)).collect()
}

fn diff_of(before: &[Profile], after: &[Profile], options: &DiffOptions) -> Diff {
    Diff::new(&views(before), &views(after), options)
}

/// A profile of `main` and its callees, with these numbers of samples in each.
fn profile_of(samples: &[(&str, u64)]) -> Profile {
    let mut b = Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
    let app = mapping(&mut b, "/usr/bin/app", 0x1000);
    let main = functions(&mut b, Some(app), 0x1000, &[("main", "", 0)]);
    for (index, (name, count)) in samples.iter().enumerate() {
        let leaf = functions(&mut b, Some(app), 0x1001 + index as u64, &[(name, "", 0)]);
        for _ in 0..*count {
            b.add(&[leaf, main], LabelSetId::EMPTY, 1, &[(Column(1), PERIOD)]);
        }
    }
    b.profile.duration_nanos = 1_000_000_000;
    b.finish(None)
}

fn row<'d>(diff: &'d Diff, name: &str) -> &'d DiffRow {
    let is_it = |row: &&DiffRow| &*diff.frames[row.frame as usize].name == name;
    diff.rows.iter().find(is_it).unwrap_or_else(|| panic!("{name}"))
}

fn changed(diff: &Diff) -> Vec<&str> {
    let rows = diff.rows.iter().filter(|row| row.is_significant());
    rows.map(|row| &*diff.frames[row.frame as usize].name).collect()
}

/// Uniform numbers from 0 to 1, the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((self.0 >> 33) as f64 + 0.5) / f64::from(1u32 << 31)
    }

    /// A Poisson number, by a normal distribution if the mean is large.
    fn poisson(&mut self, mean: f64) -> u64 {
        if mean > 200.0 {
            let normal =
                (-2.0 * self.next().ln()).sqrt() * (std::f64::consts::TAU * self.next()).cos();
            return (mean + mean.sqrt() * normal).round() as u64;
        }
        let mut product = self.next();
        let mut number = 0;
        while product > (-mean).exp() {
            product *= self.next();
            number += 1;
        }
        number
    }
}

/// Names and mean numbers of samples of a program with 120 functions, of which `f0` has a tenth.
fn means(samples: f64) -> Vec<(String, f64)> {
    let weights: Vec<f64> = (1..120).map(|i| 1.0 / f64::from(i + 4)).collect();
    let sum: f64 = weights.iter().sum();
    let rest = weights.iter().map(|w| 0.9 * samples * w / sum);
    let all = std::iter::once(0.1 * samples).chain(rest);
    all.enumerate().map(|(i, mean)| (format!("f{i}"), mean)).collect()
}

/// A recording of a program, in which each mean drifts by this relative deviation.
fn recording(random: &mut Random, means: &[(String, f64)], drift: f64) -> Profile {
    let samples: Vec<(&str, u64)> = means
        .iter()
        .map(|(name, mean)| {
            // Nearly normal, with a variance of 1.
            let sum: f64 = (0..12).map(|_| random.next()).sum();
            (name.as_str(), random.poisson(mean * (1.0 + drift * (sum - 6.0))))
        })
        .collect();
    profile_of(&samples)
}

#[test]
fn values_are_matched_by_name() {
    let before = profile_of(&[("kept", 300), ("gone", 40), ("shrunk", 100)]);
    // Other addresses and another order.
    let after = profile_of(&[("new", 50), ("shrunk", 20), ("kept", 310)]);
    let diff = diff_of(&[before], &[after], &DiffOptions::default());
    let ms = |n: u64| (n as i64 * PERIOD) as f64;
    let kept = row(&diff, "kept");
    assert_eq!([kept.itself.before, kept.itself.after], [ms(300), ms(310)]);
    assert_eq!(kept.itself.difference(), ms(10));
    assert_eq!(row(&diff, "gone").itself.ratio(), Some(0.0));
    assert_eq!(row(&diff, "new").itself.ratio(), None);
    let main = row(&diff, "main");
    assert_eq!([main.total.before, main.total.after], [ms(440), ms(380)]);
    assert_eq!(main.itself.p, None);
    assert_eq!(diff.rows.len(), 5);
    let changed = changed(&diff);
    assert!(!changed.contains(&"kept"));
    for name in ["new", "gone", "shrunk"] {
        assert!(changed.contains(&name), "{name} in {changed:?}");
    }
    // What changed is first, each part by the size of the change.
    let significant: Vec<bool> = diff.rows.iter().map(DiffRow::is_significant).collect();
    assert!(significant.is_sorted_by(|a, b| a >= b), "{significant:?}");
}

#[test]
fn a_profile_does_not_differ_from_itself() {
    let diff = diff_of(&[answers()], &[answers()], &DiffOptions::default());
    assert_eq!(diff.changed(), 0);
    assert_eq!(diff.common, 1.0);
    assert!(diff.rows.iter().all(|row| row.total.difference() == 0.0));
}

#[test]
fn scales_are_recorded_seconds_and_totals() {
    let before = profile_of(&[("a", 100), ("b", 100)]);
    let mut after = profile_of(&[("a", 300), ("b", 100)]);
    after.duration_nanos *= 4;
    let of = |scale| {
        let options = DiffOptions { scale, ..DiffOptions::default() };
        let diff = diff_of(from_ref(&before), from_ref(&after), &options);
        let a = row(&diff, "a").itself;
        (a.before / PERIOD as f64, a.after / PERIOD as f64, diff.after.total / PERIOD as f64)
    };
    assert_eq!(of(Scale::AsRecorded), (100.0, 300.0, 400.0));
    assert_eq!(of(Scale::PerSecond), (100.0, 75.0, 100.0));
    assert_eq!(of(Scale::Total), (100.0, 150.0, 200.0));
    after.duration_nanos = 0;
    let options = DiffOptions { scale: Scale::PerSecond, ..DiffOptions::default() };
    assert_eq!(diff_of(&[before], &[after], &options).scale, Scale::AsRecorded);
}

#[test]
fn recordings_of_other_lengths_and_rates_are_no_change() {
    let before = profile_of(&[("a", 400), ("b", 300), ("c", 150), ("d", 90)]);
    let after = profile_of(&[("a", 4000), ("b", 3000), ("c", 1500), ("d", 900)]);
    let diff = diff_of(&[before], &[after], &DiffOptions::default());
    assert_eq!(changed(&diff), [""; 0]);
    assert!((diff.common - 10.0).abs() < 1e-9, "{}", diff.common);
}

#[test]
fn absolute_tests_are_for_equal_values() {
    let before = profile_of(&[("a", 400), ("b", 300), ("c", 350)]);
    let after = profile_of(&[("a", 800), ("b", 600), ("c", 700)]);
    let of = |scale| {
        let options = DiffOptions { scale, absolute: true, ..DiffOptions::default() };
        diff_of(from_ref(&before), from_ref(&after), &options).changed()
    };
    assert_eq!(of(Scale::AsRecorded), 4);
    assert_eq!(of(Scale::Total), 0);
}

#[test]
fn a_change_does_not_make_the_others_change() {
    // Nine tenths became twice as slow: the rest has a smaller share, but the same value.
    let before = profile_of(&[("slow", 20_000), ("a", 900), ("b", 700), ("c", 600)]);
    let after = profile_of(&[("slow", 40_000), ("a", 905), ("b", 690), ("c", 610)]);
    let diff = diff_of(&[before], &[after], &DiffOptions::default());
    assert!((diff.common - 1.0).abs() < 0.05, "{}", diff.common);
    assert_eq!(changed(&diff), ["slow", "main"]);
}

#[test]
fn equal_programs_pass_chance_in_at_most_5_of_100_pairs() {
    let mut random = Random(7);
    for (samples, drift) in [(1_000.0, 0.0), (30_000.0, 0.0), (30_000.0, 0.01)] {
        let means = means(samples);
        let mut listed = 0;
        for _ in 0..100 {
            let pair = [0, 1].map(|_| recording(&mut random, &means, drift));
            let diff = diff_of(&pair[..1], &pair[1..], &DiffOptions::default());
            listed += usize::from(diff.changed() > 0);
        }
        assert!(listed <= 5, "{samples} samples, drift {drift}: {listed} of 100");
    }
}

#[test]
fn a_tenth_that_became_a_fifth_slower_is_found_in_95_of_100_pairs() {
    let mut random = Random(8);
    let before = means(30.0 * 999.0);
    let mut after = before.clone();
    after[0].1 *= 1.2;
    let mut found = 0;
    let mut others = 0;
    for _ in 0..100 {
        let pair = [&before, &after].map(|means| recording(&mut random, means, 0.0));
        let diff = diff_of(&pair[..1], &pair[1..], &DiffOptions::default());
        let changed = changed(&diff);
        found += usize::from(changed.contains(&"f0"));
        others += usize::from(changed.iter().any(|name| !["f0", "main"].contains(name)));
    }
    assert!(found >= 95, "found in {found} of 100");
    assert!(others <= 5, "others in {others} of 100");
}

#[test]
fn differences_among_recordings_of_a_side_are_no_change() {
    let mut random = Random(9);
    let means = means(10_000.0);
    let mut wild = 0;
    let mut listed = 0;
    for _ in 0..40 {
        // Each run of this program differs from others by a tenth.
        let runs: Vec<_> = (0..10).map(|_| recording(&mut random, &means, 0.1)).collect();
        let pair = diff_of(&runs[..1], &runs[1..2], &DiffOptions::default());
        wild += usize::from(pair.changed() > 0);
        let replicated = diff_of(&runs[..5], &runs[5..], &DiffOptions::default());
        assert!(replicated.replicated && replicated.dispersion > 1.0);
        listed += usize::from(replicated.changed() > 0);
    }
    assert!(listed <= 2, "{listed} of 40 with five recordings each; {wild} of 40 pairs");
    let mut after = means.clone();
    after[0].1 *= 2.0;
    let before: Vec<_> = (0..5).map(|_| recording(&mut random, &means, 0.03)).collect();
    let after: Vec<_> = (0..5).map(|_| recording(&mut random, &after, 0.03)).collect();
    assert!(changed(&diff_of(&before, &after, &DiffOptions::default())).contains(&"f0"));
}

#[test]
fn few_samples_are_not_tested() {
    let before = profile_of(&[("a", 500), ("b", 450), ("rare", 3)]);
    let after = profile_of(&[("a", 510), ("b", 440), ("seldom", 4)]);
    let diff = diff_of(&[before], &[after], &DiffOptions::default());
    assert_eq!(row(&diff, "rare").itself.p, None);
    assert_eq!(row(&diff, "seldom").itself.p, None);
    assert!(row(&diff, "a").itself.p.is_some_and(|p| p > 0.1));
    assert!(diff.tests < 6, "{}", diff.tests);
}

#[test]
fn hostile_profiles_have_a_difference() {
    let empty = Profile::default();
    let mut negative = answers();
    negative.values.iter_mut().for_each(|v| *v = -*v);
    let mut huge = answers();
    huge.values.iter_mut().for_each(|v| *v = i64::MAX);
    let mut least = answers();
    least.values.iter_mut().for_each(|v| *v = i64::MIN);
    let mut bare = answers();
    bare.locations.iter_mut().for_each(|l| l.line_count = 0);
    let all = [empty, answers(), negative, huge, least, bare];
    for before in &all {
        for after in &all {
            for scale in [Scale::AsRecorded, Scale::PerSecond, Scale::Total] {
                let options = DiffOptions { scale, ..DiffOptions::default() };
                let pair = [before.clone(), after.clone()];
                let diff = diff_of(&pair[..1], &pair[1..], &options);
                for change in diff.rows.iter().flat_map(|row| [&row.itself, &row.total]) {
                    assert!(change.p.is_none_or(|p| (0.0..=1.0).contains(&p)), "{change:?}");
                    assert!(change.difference().is_finite(), "{change:?}");
                }
            }
        }
    }
}

#[test]
fn addresses_without_names_are_one_row_of_their_binary() {
    let side = |first: u64| {
        let mut b = Builder::new(&[("samples", "count")]);
        let app = mapping(&mut b, "/usr/bin/app", 0x1000);
        let main = functions(&mut b, Some(app), 0x1000, &[("main", "", 0)]);
        let stack: Vec<LocationId> = (0..4).map(|i| b.location(Some(app), first + i)).collect();
        for _ in 0..50 {
            b.add(&[stack.as_slice(), &[main]].concat(), LabelSetId::EMPTY, 1, &[]);
        }
        b.finish(None)
    };
    let diff = diff_of(&[side(0x1100)], &[side(0x1200)], &DiffOptions::default());
    let unnamed = diff.rows.iter().find(|r| diff.frames[r.frame as usize].name.is_empty());
    let unnamed = unnamed.expect("a row of all addresses");
    assert_eq!(diff.frames[unnamed.frame as usize].kind, DiffName::Unnamed);
    assert_eq!([unnamed.total.before, unnamed.total.after], [50.0, 50.0]);
    assert_eq!((diff.rows.len(), diff.changed()), (2, 0));
}

#[test]
fn types_are_matched_by_kind_and_unit() {
    let two = answers();
    let mut other = Builder::new(&[("cpu", "nanoseconds"), ("samples", "count")]).finish(None);
    assert_eq!(Diff::common_type(&[two.clone(), other.clone()], 0, 1), Ok(vec![1, 0]));
    let cpu = other.sample_types[0];
    other.sample_types = vec![cpu, cpu];
    assert_eq!(Diff::common_type(&[other.clone(), other.clone()], 0, 1), Ok(vec![1, 1]));
    assert_eq!(Diff::common_type(&[two.clone(), other], 0, 0), Err(1));
    assert_eq!(Diff::common_type(&[two, Profile::default()], 0, 1), Ok(vec![1, 0]));
}

#[test]
fn a_tree_has_the_contexts_of_both_sides() {
    let before = [profile_of(&[("kept", 3), ("gone", 4)])];
    let after = [profile_of(&[("new", 5), ("kept", 6)])];
    let mut sides = [views(&before), views(&after)];
    let [before, after] = &mut sides;
    let tree = DiffTree::new(before, after, Direction::Callees, &[]);
    let mut nodes: Vec<(&str, [i64; 2])> = tree.nodes[1..]
        .iter()
        .map(|n| (&*tree.frames[n.frame as usize].name, n.totals.map(|v| v / PERIOD)))
        .collect();
    nodes.sort_unstable();
    assert_eq!(nodes, [("gone", [4, 0]), ("kept", [3, 6]), ("main", [7, 11]), ("new", [0, 5])]);
    assert!(tree.nodes.iter().enumerate().skip(1).all(|(id, n)| (n.parent as usize) < id));
}

#[test]
fn deep_recursion_is_compared() {
    let mut b = Builder::new(&[("samples", "count")]);
    let ids: Vec<LocationId> = (0..2)
        .map(|i| functions(&mut b, None, 1 + i, &[(["a", "b"][i as usize], "", 0)]))
        .collect();
    let stack: Vec<LocationId> = (0..10_000).map(|i| ids[i % 2]).collect();
    b.add(&stack, LabelSetId::EMPTY, 7, &[]);
    let profiles = [b.finish(None)];
    let diff = diff_of(&profiles, &profiles, &DiffOptions::default());
    assert_eq!(row(&diff, "a").total.after, 7.0);
    let mut sides = [views(&profiles), views(&profiles)];
    let [before, after] = &mut sides;
    assert_eq!(DiffTree::new(before, after, Direction::Callees, &[]).nodes.len(), 10_001);
}

#[test]
fn samples_of_the_largest_values_are_counted_as_in_the_file() {
    let [mut before, mut after] = [(); 2].map(|()| profile_of(&[("a", 3), ("b", 2)]));
    before.values.iter_mut().skip(1).step_by(2).for_each(|value| *value = i64::MIN);
    after.values.iter_mut().skip(1).step_by(2).for_each(|value| *value = i64::MAX);
    let diff = diff_of(&[before], &[after], &DiffOptions::default());
    assert_eq!((diff.before.samples, diff.after.samples), (5.0, 5.0));
    assert_eq!((diff.before.recorded, diff.after.recorded), (i64::MIN, i64::MAX));
}

/// Functions in binaries, 500 samples of each.
fn in_binaries(functions_of: &[(&str, &str)]) -> Profile {
    let mut b = Builder::new(&[("samples", "count")]);
    for (number, (binary, name)) in functions_of.iter().enumerate() {
        let at = 0x10000 * (number as u64 + 1);
        let mapping = mapping(&mut b, binary, at);
        let leaf = functions(&mut b, Some(mapping), at, &[(name, "", 0)]);
        b.add(&[leaf], LabelSetId::EMPTY, 500, &[]);
    }
    b.finish(None)
}

/// Names, binaries and values of the rows.
fn rows_of(diff: &Diff) -> Vec<(&str, &str, f64, f64)> {
    let mut all = Vec::new();
    for row in &diff.rows {
        let frame = &diff.frames[row.frame as usize];
        all.push((&*frame.name, &*frame.binary, row.total.before, row.total.after));
    }
    all.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
    all
}

#[test]
fn functions_of_a_library_of_another_version_are_compared_by_name() {
    let before = in_binaries(&[("/lib/libx.so.1", "work"), ("/lib/libc.so.6", "copy")]);
    let after = in_binaries(&[("/lib/libc.so.6", "copy"), ("/lib/libx.so.2", "work")]);
    let diff = diff_of(from_ref(&before), from_ref(&after), &DiffOptions::default());
    let expected = [("copy", "libc.so.6", 500.0, 500.0), ("work", "libx.so.2", 500.0, 500.0)];
    assert_eq!(rows_of(&diff), expected);
    let by_name = ByName { before: "libx.so.1".into(), after: "libx.so.2".into() };
    assert_eq!((diff.by_name.as_slice(), diff.split.len()), (&[by_name][..], 0));
    let (mut before, mut after) = (views(from_ref(&before)), views(from_ref(&after)));
    let tree = DiffTree::new(&mut before, &mut after, Direction::Callees, &[]);
    assert_eq!(tree.nodes.len(), 3);
    assert!(tree.nodes[1..].iter().all(|node| node.totals == [500, 500]), "{:?}", tree.nodes);
}

#[test]
fn a_name_of_a_common_library_does_not_hide_that_of_a_renamed_program() {
    // The dynamic loader has a `_start`, too, and was sampled there on one side only.
    let before = in_binaries(&[("/slow", "_start"), ("/lib/ld.so", "open")]);
    let after = [("/fast", "_start"), ("/lib/ld.so", "_start"), ("/lib/ld.so", "open")];
    let diff = diff_of(&[before], &[in_binaries(&after)], &DiffOptions::default());
    let starts: Vec<_> = rows_of(&diff).into_iter().filter(|row| row.0 == "_start").collect();
    let expected = [("_start", "fast", 500.0, 500.0), ("_start", "ld.so", 0.0, 500.0)];
    assert_eq!(starts, expected);
    // Only the recording before has samples in the dynamic loader.
    let before = [("/slow", "_start"), ("/slow", "work"), ("/lib/ld.so", "_start")];
    let after = [("/fast", "_start"), ("/fast", "work")];
    let options = DiffOptions::default();
    let diff = diff_of(&[in_binaries(&before)], &[in_binaries(&after)], &options);
    let starts: Vec<_> = rows_of(&diff).into_iter().filter(|row| row.0 == "_start").collect();
    assert_eq!(starts, [("_start", "fast", 500.0, 500.0), ("_start", "ld.so", 500.0, 0.0)]);
    // A function that moved into a new library, or to another allocator.
    let before =
        in_binaries(&[("/app", "parse"), ("/lib/libc.so", "malloc"), ("/lib/libc.so", "x")]);
    let after = [("/app", "main"), ("/lib/libparse.so", "parse"), ("/lib/libj.so", "malloc")];
    let after = [&after[..], &[("/lib/libc.so", "x")]].concat();
    let diff = diff_of(&[before], &[in_binaries(&after)], &DiffOptions::default());
    let rows = rows_of(&diff);
    assert!(rows.contains(&("parse", "libparse.so", 500.0, 500.0)), "{rows:?}");
    assert!(rows.contains(&("malloc", "libj.so", 500.0, 500.0)), "{rows:?}");
}

#[test]
fn functions_of_several_binaries_are_not_compared_by_name() {
    for (before, after, count) in [
        // Two binaries of a side have the name.
        (&[("/a", "f"), ("/b", "f")][..], &[("/c", "f")][..], 3),
        (&[("/a", "f")], &[("/b", "f"), ("/c", "f")], 3),
        // Both sides have both binaries.
        (&[("/a", "f"), ("/b", "x")], &[("/a", "y"), ("/b", "f")], 2),
    ] {
        let diff = diff_of(&[in_binaries(before)], &[in_binaries(after)], &DiffOptions::default());
        assert_eq!(diff.by_name, []);
        let functions = rows_of(&diff).into_iter().filter(|row| row.0 == "f").count();
        assert_eq!(functions, count);
        let split: Vec<&str> = diff.split.iter().map(|name| &**name).collect();
        assert_eq!(split, ["f"], "{before:?} {after:?}");
    }
}

#[test]
fn run_time_code_of_two_processes_is_not_different() {
    let of = |file| in_binaries(&[("/usr/bin/node", "main"), (file, "JS:*hot /x.js:1:2")]);
    let before = [of("/tmp/perf-6444.map")];
    for file in ["/tmp/perf-6445.map", "/x/jit-7.dump"] {
        let diff = diff_of(&before, &[of(file)], &DiffOptions::default());
        let hot = rows_of(&diff)[0];
        assert_eq!(hot, ("JS:*hot /x.js:1:2", "[JIT]", 500.0, 500.0));
        assert_eq!(changed(&diff), Vec::<&str>::new());
    }
}

/// Formats without binaries or addresses write a name in their place.
#[test]
fn a_profile_equals_itself_without_binaries_and_addresses() {
    let counts = [("work", 300), ("idle", 200)];
    let mut b = Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
    let main = b.named_location("main");
    for (name, count) in counts {
        let leaf = b.named_location(name);
        let values = [(Column(1), PERIOD)];
        (0..count).for_each(|_| b.add(&[leaf, main], LabelSetId::EMPTY, 1, &values));
    }
    let bare = b.finish(None);
    let diff = diff_of(&[profile_of(&counts)], &[bare], &DiffOptions::default());
    assert_eq!((changed(&diff), diff.rows.len()), (Vec::new(), 3));
    assert!(diff.before.has_binaries && !diff.after.has_binaries);
    let unnamed = [("app+0x10", 300), ("app+0x20", 200)];
    let diff = diff_of(
        &[profile_of(&unnamed)],
        &[profile_of(&[("app+0x1f", 500)])],
        &DiffOptions::default(),
    );
    assert_eq!((changed(&diff), diff.rows.len()), (Vec::new(), 2));
}
