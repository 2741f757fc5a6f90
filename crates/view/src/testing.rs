//! Small profiles with known results, for tests.

use super::Frames;
use profile::{
    Builder, Column, Function, FunctionId, Label, LabelSetId, LabelValue, Line, LocationId,
    Mapping, Profile, TimeLimits, label,
};

/// Adds a location of `mapping` with these functions, innermost first.
pub fn functions(
    b: &mut Builder,
    mapping: Option<profile::MappingId>,
    address: u64,
    lines: &[(&str, &str, i64)],
) -> LocationId {
    let id = b.location(mapping, address);
    let mut out = Vec::new();
    for (name, file, line) in lines {
        let name = b.profile.strings.intern(name);
        let filename = b.profile.strings.intern(file);
        let function = Function { name, system_name: name, filename, start_line: 1 };
        let existing = b.profile.functions.iter().position(|f| *f == function);
        let index = existing.unwrap_or_else(|| {
            b.profile.functions.push(function);
            b.profile.functions.len() - 1
        });
        out.push(Line { function: FunctionId(index as u32), line: *line, column: 0 });
    }
    b.profile.set_lines(id, &out);
    id
}

/// A mapping of the file `path`.
pub fn mapping(b: &mut Builder, path: &str, start: u64) -> profile::MappingId {
    let file = b.profile.strings.intern(path);
    let build_id = b.profile.strings.intern("abc123");
    b.add_mapping(Mapping { start, limit: start + 0x10000, file, build_id, ..Mapping::default() })
}

/// The program with known results, in half seconds of CPU time: of 9 parts, self bar 5, main 2,
/// foo1 1.5, foo2 0.5; total foo1 4, foo2 3.
pub fn answers() -> Profile {
    let mut b = Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
    let app = mapping(&mut b, "/usr/bin/app", 0x1000);
    let mut next = 0x1000;
    let [main, foo1, foo2, bar] = ["main", "foo1", "foo2", "bar"].map(|name| {
        let address = next;
        next += 1;
        functions(&mut b, Some(app), address, &[(name, "app.c", 10)])
    });
    let half = 500_000_000;
    let stacks: [(&[LocationId], i64); 5] = [
        (&[main], 4),
        (&[foo1, main], 3),
        (&[foo2, main], 1),
        (&[bar, foo1, main], 5),
        (&[bar, foo2, main], 5),
    ];
    for (stack, halves) in stacks {
        for _ in 0..halves {
            b.add(stack, LabelSetId::EMPTY, 1, &[(Column(1), half)]);
        }
    }
    b.finish(None)
}

/// Three seconds that begin 7 s after the epoch, with 10 samples each: of `f`, of `g`, of `f`, all
/// called by `main`; and one sample of `g` without a time.
pub fn phases() -> Profile {
    let mut b = Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
    b.keep_times(TimeLimits { start: 0, max_samples: 30 });
    let [main, f, g] = [("main", 1), ("f", 2), ("g", 3)]
        .map(|(name, address)| functions(&mut b, None, address, &[(name, "", 0)]));
    for (n, leaf) in (0u64..31).zip([f, g, f, g].into_iter().flat_map(|leaf| [leaf; 10])) {
        b.set_time(Some(n * 100_000_000));
        b.add(&[leaf, main], LabelSetId::EMPTY, 1, &[(Column(1), 100_000_000)]);
    }
    b.profile.time_nanos = 7_000_000_000;
    b.profile.duration_nanos = 3_000_000_000;
    b.finish(None)
}

/// Locations of all kinds: 0 inlined, 1 unknown in a binary, 2 unknown, 3 without a demangled
/// name, 4 the inlined function of 0 at another line. The samples have one stack of each.
pub fn frames_profile() -> Profile {
    let mut b = Builder::new(&[("samples", "count")]);
    let app = mapping(&mut b, "/usr/bin/app", 0x1000);
    let lib = mapping(&mut b, "/usr/lib/libx.so", 0x20000);
    let lines = [("inner", "src/inner.c", 7), ("outer", "src/outer.c", 70)];
    let a = functions(&mut b, Some(app), 0x1010, &lines);
    let c = b.location(Some(lib), 0x21234);
    let d = b.location(None, 0xdead);
    let e = functions(&mut b, Some(app), 0x1020, &[("_mangled", "", 0)]);
    b.profile.functions[2].name = profile::StrId::EMPTY;
    let f = functions(&mut b, Some(app), 0x1030, &[("inner", "src/inner.c", 9)]);
    for (i, l) in [a, c, d, e, f].into_iter().enumerate() {
        assert_eq!(l.0, i as u32);
        b.add(&[l], LabelSetId::EMPTY, 1, &[]);
    }
    b.finish(None)
}

/// Two processes: `web;1` (3 samples in `serve`) and `db` (1 in `query`, which recurs).
pub fn processes() -> Profile {
    let mut b = Builder::new(&[("samples", "count")]);
    let bin = mapping(&mut b, "/usr/bin/app", 0x1000);
    let serve = functions(&mut b, Some(bin), 0x1000, &[("serve", "a.rs", 1)]);
    let query = functions(&mut b, Some(bin), 0x1001, &[("query", "b.rs", 2)]);
    let key = b.profile.strings.intern(label::PROCESS);
    let set = |b: &mut Builder, name: &str| {
        let value = LabelValue::Str(b.profile.strings.intern(name));
        b.profile.labels.intern(&[Label { key, value }])
    };
    let web = set(&mut b, "web;1");
    let db = set(&mut b, "db");
    for _ in 0..3 {
        b.add(&[serve], web, 1, &[]);
    }
    b.add(&[query, query, serve], db, 1, &[]);
    b.finish(None)
}

/// Wall time in units: `work` ran for 3 and waited for a CPU for 1, `nap` slept for 4, both called
/// by `main`.
pub fn states() -> Profile {
    let mut b = Builder::new(&[("wall", "nanoseconds")]);
    let ids: Vec<_> = ["main", "work", "nap"]
        .iter()
        .enumerate()
        .map(|(i, n)| functions(&mut b, None, i as u64 + 1, &[(n, "", 0)]))
        .collect();
    let key = b.profile.strings.intern(label::STATE);
    for (leaf, state, value) in [(1, "running", 3), (1, "runnable", 1), (2, "sleeping", 4)] {
        let state = LabelValue::Str(b.profile.strings.intern(state));
        let labels = b.profile.labels.intern(&[Label { key, value: state }]);
        b.add(&[ids[leaf], ids[0]], labels, 0, &[(Column(0), value)]);
    }
    b.finish(None)
}

/// A snapshot of the threads 10 to 13 of `server` and 21 of `client`: 11, 12 and 21 sleep in `wait`,
/// 10 sleeps and 13 runs in `work`, both called by `main`.
pub fn snapshot() -> Profile {
    let mut b = Builder::new(&[("threads", "count")]);
    let ids: Vec<_> = ["main", "work", "wait"]
        .iter()
        .enumerate()
        .map(|(i, n)| functions(&mut b, None, i as u64 + 1, &[(n, "", 0)]))
        .collect();
    let threads = [
        (21, 20, "client", "sleeping", 2),
        (13, 10, "server", "running", 1),
        (12, 10, "server", "sleeping", 2),
        (11, 10, "server", "sleeping", 2),
        (10, 10, "server", "sleeping", 1),
    ];
    for (tid, pid, process, state, leaf) in threads {
        let strings = &mut b.profile.strings;
        let texts = [(label::PROCESS, process), (label::THREAD, process), (label::STATE, state)];
        let texts = texts.map(|(key, text)| Label {
            key: strings.intern(key),
            value: LabelValue::Str(strings.intern(text)),
        });
        let unit = strings.intern("");
        let numbers = [(label::PID, pid), (label::TID, tid)].map(|(key, value)| Label {
            key: strings.intern(key),
            value: LabelValue::Num { value, unit },
        });
        let mut labels = [texts.as_slice(), &numbers].concat();
        labels.sort_by_key(|label| label.key);
        let labels = b.profile.labels.intern(&labels);
        b.add(&[ids[leaf], ids[0]], labels, 0, &[(Column(0), 1)]);
    }
    b.finish(None)
}

/// Names with all characters that formats must escape.
pub fn odd_names() -> Profile {
    let mut b = Builder::new(&[("samples", "count")]);
    let names =
        ["operator;", "std::vector<int, a&b>::push(int)", "a b \"c\"", "tab\tnew\nline 7", "x_[k]"];
    let stack: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(i, n)| functions(&mut b, None, i as u64 + 1, &[(n, "", 0)]))
        .collect();
    b.add(&stack, LabelSetId::EMPTY, 1, &[]);
    b.add(&stack[2..], LabelSetId::EMPTY, 1, &[]);
    b.finish(None)
}

/// Names of a location's frames.
pub fn names_of(profile: &Profile, frames: &Frames, location: u32) -> Vec<String> {
    let ids = frames.at(LocationId(location));
    ids.iter().map(|&f| frames.get(f).display(profile).into_owned()).collect()
}
