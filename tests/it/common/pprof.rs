//! A reader of pprof files that shares no code with the product: an independent check.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;

/// A binary of a profile.
#[derive(Debug, Clone, Default)]
pub struct Mapping {
    pub start: u64,
    pub limit: u64,
    pub file: String,
    pub build_id: String,
    pub has_functions: bool,
}

/// A sample: its frames by name (leaf first, inlined ones spelled out), values and labels.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    pub locations: Vec<u64>,
    pub values: Vec<i64>,
    pub labels: BTreeMap<String, String>,
    /// The times of the samples of `prof record --timestamps`, which have these frames, values and
    /// labels otherwise: microseconds.
    pub times: Vec<u64>,
}

/// A decoded profile.
#[derive(Debug, Clone, Default)]
pub struct Pprof {
    pub sample_types: Vec<(String, String)>,
    pub samples: Vec<Sample>,
    pub mappings: Vec<Mapping>,
    /// Names of the lines of each location, innermost first.
    pub lines: HashMap<u64, Vec<String>>,
    /// Source file and line number of each location's innermost line.
    pub sources: HashMap<u64, (String, i64)>,
    /// The same of all lines, innermost first.
    pub all_sources: HashMap<u64, Vec<(String, i64)>>,
    /// Index into `mappings` of each location.
    pub mapping_of: HashMap<u64, usize>,
    pub addresses: HashMap<u64, u64>,
    pub comments: Vec<String>,
    pub period: i64,
    pub period_type: (String, String),
    pub time_nanos: i64,
    pub duration_nanos: i64,
}

/// A field of a message: its number and its value.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().expect("a varint is cut off");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
    }
    panic!("a varint of more than ten bytes")
}

fn fields<'a>(mut bytes: &'a [u8]) -> impl Iterator<Item = (u64, Value<'a>)> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let key = varint(&mut bytes);
        let value = match key & 7 {
            0 => Value::Number(varint(&mut bytes)),
            2 => {
                let length = varint(&mut bytes) as usize;
                let (value, rest) = bytes.split_at(length);
                bytes = rest;
                Value::Bytes(value)
            }
            other => panic!("wire type {other} in a profile"),
        };
        Some((key >> 3, value))
    })
}

impl Value<'_> {
    fn number(&self) -> u64 {
        match self {
            Value::Number(n) => *n,
            Value::Bytes(_) => panic!("bytes where a number is expected"),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Value::Number(_) => panic!("a number where bytes are expected"),
            Value::Bytes(b) => b,
        }
    }

    /// A repeated number, packed or not.
    fn numbers(&self) -> Vec<u64> {
        match self {
            Value::Number(n) => vec![*n],
            Value::Bytes(bytes) => {
                let mut rest: &[u8] = bytes;
                let mut all = Vec::new();
                while !rest.is_empty() {
                    all.push(varint(&mut rest));
                }
                all
            }
        }
    }
}

/// Numbers of a message by field; the last wins.
fn scalars(bytes: &[u8]) -> HashMap<u64, u64> {
    fields(bytes)
        .filter_map(|(field, v)| match v {
            Value::Number(n) => Some((field, n)),
            Value::Bytes(_) => None,
        })
        .collect()
}

impl Pprof {
    /// Decodes a profile, gzip or not; panics when it is not one.
    pub fn decode(bytes: &[u8]) -> Pprof {
        let mut raw = Vec::new();
        if bytes.starts_with(&[0x1f, 0x8b]) {
            flate2::read::GzDecoder::new(bytes).read_to_end(&mut raw).expect("whole gzip");
        } else {
            raw.extend_from_slice(bytes);
        }
        let strings: Vec<String> = fields(&raw)
            .filter(|(field, _)| *field == 6)
            .map(|(_, v)| String::from_utf8(v.bytes().to_vec()).expect("UTF-8"))
            .collect();
        assert_eq!(strings.first().map(String::as_str), Some(""), "string 0 has to be empty");
        let mut p = Pprof::default();
        let mut functions = HashMap::new();
        let mut mapping_index = HashMap::new();
        for (field, v) in fields(&raw) {
            match field {
                3 => {
                    let m = scalars(v.bytes());
                    mapping_index.insert(m[&1], p.mappings.len());
                    p.mappings.push(mapping(&m, &strings));
                }
                5 => {
                    let m = scalars(v.bytes());
                    let text = |f| string(&strings, &m, f);
                    functions.insert(m[&1], (text(2), text(4)));
                }
                _ => {}
            }
        }
        for (field, v) in fields(&raw) {
            p.top_field(field, &v, &strings, &functions, &mapping_index);
        }
        for s in &p.samples {
            assert_eq!(s.values.len(), p.sample_types.len(), "one value for each sample type");
            assert!(s.locations.iter().all(|l| p.lines.contains_key(l)), "a location is missing");
        }
        p
    }

    fn top_field(
        &mut self,
        field: u64,
        v: &Value,
        strings: &[String],
        functions: &HashMap<u64, (String, String)>,
        mapping_index: &HashMap<u64, usize>,
    ) {
        let pair = |v: &Value| {
            let m = scalars(v.bytes());
            (string(strings, &m, 1), string(strings, &m, 2))
        };
        match field {
            1 => self.sample_types.push(pair(v)),
            2 => self.samples.push(sample(v.bytes(), strings)),
            4 => self.location(v.bytes(), functions, mapping_index),
            9 => self.time_nanos = v.number() as i64,
            10 => self.duration_nanos = v.number() as i64,
            11 => self.period_type = pair(v),
            12 => self.period = v.number() as i64,
            13 => self.comments.extend(v.numbers().iter().map(|&n| strings[n as usize].clone())),
            _ => {}
        }
    }

    fn location(
        &mut self,
        bytes: &[u8],
        functions: &HashMap<u64, (String, String)>,
        mapping_index: &HashMap<u64, usize>,
    ) {
        let m = scalars(bytes);
        let id = m[&1];
        let lines: Vec<HashMap<u64, u64>> =
            fields(bytes).filter(|(f, _)| *f == 4).map(|(_, v)| scalars(v.bytes())).collect();
        if let Some(&mapping) = m.get(&2).filter(|&&id| id != 0) {
            self.mapping_of.insert(id, mapping_index[&mapping]);
        }
        self.addresses.insert(id, m.get(&3).copied().unwrap_or(0));
        let source = |line: &HashMap<u64, u64>| {
            (functions[&line[&1]].1.clone(), line.get(&2).copied().unwrap_or(0) as i64)
        };
        let sources: Vec<(String, i64)> = lines.iter().map(source).collect();
        if let Some(first) = sources.first() {
            self.sources.insert(id, first.clone());
        }
        self.all_sources.insert(id, sources);
        self.lines.insert(id, lines.iter().map(|l| functions[&l[&1]].0.clone()).collect());
    }

    /// The `key: value` comment of that key.
    pub fn comment(&self, key: &str) -> Option<&str> {
        self.comments.iter().find_map(|c| c.strip_prefix(key)?.strip_prefix(": "))
    }

    /// The number that a comment begins with.
    #[track_caller]
    pub fn figure(&self, key: &str) -> i64 {
        let text = self.comment(key).unwrap_or_else(|| panic!("no {key} in {:?}", self.comments));
        text.split(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("{key}: {text}"))
    }

    /// N and M of the comment `key: N of M`.
    #[track_caller]
    pub fn pair(&self, key: &str) -> (i64, i64) {
        let text = self.comment(key).unwrap_or_else(|| panic!("no {key} in {:?}", self.comments));
        let (n, m) = text.split_once(" of ").expect("two numbers");
        (n.parse().unwrap(), m.parse().unwrap())
    }

    /// Fails when samples were lost, or when they do not cover the CPU time that the kernel
    /// counted, within 3 %. (Only a clock's samples have such a time.)
    #[track_caller]
    pub fn assert_nothing_is_missing(&self) {
        assert_eq!(self.figure("lost"), 0, "{:?}", self.comments);
        if self.comment("covered").is_some() {
            let (sampled, used) = self.pair("covered");
            assert!(sampled as f64 > 0.97 * used as f64, "{:?}", self.comments);
        }
    }

    /// Column of a sample type; panics when there is none.
    #[track_caller]
    pub fn column(&self, kind: &str) -> usize {
        self.sample_types
            .iter()
            .position(|(k, _)| k == kind)
            .unwrap_or_else(|| panic!("no {kind} in {:?}", self.sample_types))
    }

    /// Sum of one column.
    pub fn total(&self, column: usize) -> i64 {
        self.samples.iter().map(|s| s.values[column]).sum()
    }

    /// Names of a sample's frames, leaf first; unnamed ones are `[?]`.
    pub fn frames(&self, sample: &Sample) -> Vec<&str> {
        self.names(sample.locations.iter())
    }

    /// The same without the kernel's: an interrupt is no part of a program's known answer.
    pub fn user_frames(&self, sample: &Sample) -> Vec<&str> {
        self.names(sample.locations.iter().filter(|l| !self.is_kernel(l)))
    }

    /// The location lies in the kernel, a module of it or a BPF program.
    pub fn is_kernel(&self, location: &u64) -> bool {
        let mapping = self.mapping_of.get(location).map(|&m| &self.mappings[m]);
        let upper = self.addresses.get(location).is_some_and(|address| address >> 63 == 1);
        mapping.is_some_and(|m| {
            m.file.starts_with("[kernel")
                || upper && m.file.starts_with('[') && m.file != "[vsyscall]"
        })
    }

    fn names<'a>(&self, locations: impl Iterator<Item = &'a u64>) -> Vec<&str> {
        let mut names = Vec::new();
        for location in locations {
            match self.lines[location].as_slice() {
                [] => names.push("[?]"),
                lines => names.extend(lines.iter().map(String::as_str)),
            }
        }
        names
    }

    /// Sum of a sample type over the samples that have this function on their stack.
    #[track_caller]
    pub fn sum_below(&self, function: &str, kind: &str) -> i64 {
        let column = self.column(kind);
        let with = self.samples.iter().filter(|s| self.frames(s).contains(&function));
        with.map(|s| s.values[column]).sum()
    }

    /// Of a heap profile, the same of allocated objects and bytes, objects and bytes in use.
    #[track_caller]
    pub fn heap_below(&self, function: &str) -> [i64; 4] {
        ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"]
            .map(|kind| self.sum_below(function, kind))
    }

    /// Share (percent of the last column) of the samples that `keep` selects.
    pub fn share(&self, keep: impl Fn(&Sample) -> bool) -> f64 {
        let column = self.sample_types.len() - 1;
        let kept: i64 = self.samples.iter().filter(|s| keep(s)).map(|s| s.values[column]).sum();
        100.0 * kept as f64 / self.total(column).max(1) as f64
    }

    /// Share of the samples whose leaf is this function.
    pub fn self_share(&self, function: &str) -> f64 {
        self.share(|s| self.frames(s).first().is_some_and(|f| is_function(f, function)))
    }

    /// Share of this function among the samples whose leaf is in user code: the time in the kernel
    /// depends on what else runs on the machine.
    pub fn user_share(&self, function: &str) -> f64 {
        let in_user = |s: &Sample| s.locations.first().is_some_and(|leaf| !self.is_kernel(leaf));
        100.0 * self.self_share(function) / self.share(in_user)
    }

    /// Share of the samples that have this function on their stack.
    pub fn total_share(&self, function: &str) -> f64 {
        self.share(|s| self.frames(s).iter().any(|f| is_function(f, function)))
    }

    /// Share of the samples with this label (of any value when `value` is empty).
    pub fn label_share(&self, key: &str, value: &str) -> f64 {
        self.share(|s| s.labels.get(key).is_some_and(|v| value.is_empty() || v == value))
    }

    /// The distinct values of a label.
    pub fn label_values(&self, key: &str) -> std::collections::BTreeSet<&str> {
        self.samples.iter().filter_map(|s| s.labels.get(key)).map(String::as_str).collect()
    }
}

fn string(strings: &[String], message: &HashMap<u64, u64>, field: u64) -> String {
    strings[message.get(&field).copied().unwrap_or(0) as usize].clone()
}

fn mapping(m: &HashMap<u64, u64>, strings: &[String]) -> Mapping {
    let number = |f: u64| m.get(&f).copied().unwrap_or(0);
    Mapping {
        start: number(2),
        limit: number(3),
        file: string(strings, m, 5),
        build_id: string(strings, m, 6),
        has_functions: number(7) != 0,
    }
}

fn sample(bytes: &[u8], strings: &[String]) -> Sample {
    let mut s = Sample::default();
    for (field, v) in fields(bytes) {
        match field {
            1 => s.locations.extend(v.numbers()),
            2 => s.values.extend(v.numbers().iter().map(|&n| n as i64)),
            3 => {
                let m = scalars(v.bytes());
                let number = m.get(&3).copied().unwrap_or(0) as i64;
                let key = string(strings, &m, 1);
                if key == "timestamp" {
                    s.times.push(number as u64);
                }
                let text = match m.get(&2).copied().unwrap_or(0) {
                    0 => number.to_string(),
                    id => strings[id as usize].clone(),
                };
                s.labels.insert(key, text);
            }
            _ => {}
        }
    }
    s
}

/// True for `bar`, and for `bar` in some module or class of any language.
fn is_function(frame: &str, function: &str) -> bool {
    frame.strip_suffix(function).is_some_and(|rest| rest.is_empty() || rest.ends_with("::"))
}
