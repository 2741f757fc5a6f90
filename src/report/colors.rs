//! Colours of flame graph boxes.

use std::hash::Hasher;
use std::ops::Range;

use rustc_hash::FxHasher;

use profile::{Profile, ThreadState};
use view::{ByState, Frame, Name, is_run_time};

/// Meaning of a box's colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Scheme {
    /// The programming language; the kernel and unknown code have separate colours
    #[default]
    Language,
    /// The package: crate, module, namespace, or the binary
    Package,
    /// Kernel, user or inlined code
    Kernel,
    /// The box's self value: the redder, the larger
    #[value(name = "self")]
    SelfValue,
    /// The box's total
    Total,
    /// The thread state: running, runnable, sleeping, uninterruptible or stopped; a box of several
    /// states has their mixture [default for wall time]
    State,
}

/// Red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rgb {
    /// Red.
    pub r: u8,
    /// Green.
    pub g: u8,
    /// Blue.
    pub b: u8,
}

/// Language of a frame, as far as its name and file show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// Kernel code, whatever its language.
    Kernel,
    /// C, or similar.
    C,
    /// C++.
    Cpp,
    /// Rust.
    Rust,
    /// Go.
    Go,
    /// Python.
    Python,
    /// JavaScript.
    JavaScript,
    /// Java and other JVM languages.
    Java,
    /// Ruby, PHP, Perl, Lua.
    Script,
    /// No name.
    Unknown,
    /// Not code: a process, a thread, a label.
    Label,
}

/// The colours that a box may have.
pub enum BoxColor {
    /// One, which stands for a value.
    Value(Rgb),
    /// Those of a group, by the name of the function.
    Group(ColorGroup, u64),
}

impl BoxColor {
    /// One of them; number 0 is that of the name.
    pub fn variant(&self, number: u64) -> Rgb {
        match *self {
            BoxColor::Value(color) => color,
            BoxColor::Group(group, name) => {
                group.varied(name ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
            }
        }
    }
}

/// Colours of a frame with the values `own` and `total` out of `max`.
pub fn color(
    scheme: Scheme,
    profile: &Profile,
    frame: &Frame,
    own: i64,
    total: i64,
    max: i64,
) -> BoxColor {
    let name = hash(&frame.display(profile));
    let group = match scheme {
        _ if matches!(frame.name, Name::Label(..) | Name::NoStack | Name::BeyondLimit) => {
            ColorGroup::LABEL
        }
        Scheme::Package => by_package(&package(profile, frame)),
        Scheme::SelfValue => return BoxColor::Value(heat(own, max)),
        Scheme::Total => return BoxColor::Value(heat(total, max)),
        Scheme::Language => by_language(language(profile, frame)),
        Scheme::Kernel => by_side(frame),
        // If the states are known, the box has their colour.
        Scheme::State => ColorGroup::UNKNOWN,
    };
    BoxColor::Group(group, name)
}

/// Colour of a box with values in these states.
pub fn mixed(by_state: &ByState) -> Rgb {
    let total: f64 = by_state.iter().map(|&v| v.max(0) as f64).sum();
    let mixed = |channel: fn(Rgb) -> u8| {
        let share = |(i, &v): (usize, &i64)| {
            v.max(0) as f64 / total.max(1.0) * f64::from(channel(by_index(i).color()))
        };
        by_state.iter().enumerate().map(share).sum::<f64>().round() as u8
    };
    Rgb { r: mixed(|c| c.r), g: mixed(|c| c.g), b: mixed(|c| c.b) }
}

/// Groups of the states with a value.
pub fn groups_of_states(by_state: &ByState) -> Vec<ColorGroup> {
    let spent = by_state.iter().enumerate().filter(|&(_, &value)| value > 0);
    spent.map(|(i, _)| by_index(i)).collect()
}

/// Warm for running and runnable, cold for waiting. The index is that of [`ByState`].
fn by_index(state: usize) -> ColorGroup {
    const HUES: [(f64, f64, f64); ThreadState::ALL.len()] = [
        (18.0, 0.86, 0.64),
        (48.0, 0.90, 0.62),
        (212.0, 0.55, 0.74),
        (268.0, 0.50, 0.72),
        (0.0, 0.0, 0.62),
    ];
    match HUES.get(state) {
        Some(&(hue, saturation, lightness)) => {
            ColorGroup::new(ThreadState::ALL[state].name(), (hue, 0.0), saturation, lightness)
        }
        None => ColorGroup { name: "without a state", ..ColorGroup::UNKNOWN },
    }
}

/// Frames of nearly the same colour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColorGroup {
    /// Name in the legend.
    pub name: &'static str,
    /// Hue in degrees, and the range of variation within the group.
    hue: (f64, f64),
    saturation: f64,
    lightness: f64,
}

impl ColorGroup {
    const UNKNOWN: ColorGroup = ColorGroup::new("without a name", (30.0, 10.0), 0.08, 0.78);
    const LABEL: ColorGroup = ColorGroup::new("label", (215.0, 10.0), 0.18, 0.80);
    const PACKAGE: ColorGroup = ColorGroup::new("package", (0.0, 10.0), 0.60, 0.69);

    const fn new(
        name: &'static str,
        hue: (f64, f64),
        saturation: f64,
        lightness: f64,
    ) -> ColorGroup {
        ColorGroup { name, hue, saturation, lightness }
    }

    /// Its central colour.
    pub fn color(self) -> Rgb {
        hsl(self.hue.0, self.saturation, self.lightness)
    }

    fn varied(self, seed: u64) -> Rgb {
        varied(self.hue.0, self.hue.1, self.saturation, self.lightness, seed)
    }
}

/// The group of a frame, in schemes with named groups.
pub fn group(scheme: Scheme, profile: &Profile, frame: &Frame) -> Option<ColorGroup> {
    match (scheme, frame.name) {
        (_, Name::Label(..) | Name::NoStack | Name::BeyondLimit) => None,
        (Scheme::Language, _) => Some(by_language(language(profile, frame))),
        (Scheme::Kernel, _) => Some(by_side(frame)),
        (Scheme::Package | Scheme::SelfValue | Scheme::Total | Scheme::State, _) => None,
    }
}

fn by_language(language: Language) -> ColorGroup {
    let new = ColorGroup::new;
    match language {
        Language::Kernel => new("kernel", (262.0, 14.0), 0.46, 0.76),
        Language::C => new("C", (49.0, 12.0), 0.84, 0.66),
        Language::Cpp => new("C++", (0.0, 14.0), 0.72, 0.74),
        Language::Rust => new("Rust", (25.0, 14.0), 0.86, 0.68),
        Language::Go => new("Go", (184.0, 14.0), 0.54, 0.64),
        Language::Python => new("Python", (212.0, 14.0), 0.66, 0.71),
        Language::JavaScript => new("JavaScript", (78.0, 14.0), 0.56, 0.62),
        Language::Java => new("Java", (126.0, 18.0), 0.44, 0.66),
        Language::Script => new("script", (318.0, 16.0), 0.56, 0.76),
        Language::Unknown | Language::Label => ColorGroup::UNKNOWN,
    }
}

fn by_package(package: &str) -> ColorGroup {
    ColorGroup { hue: ((hash(package) % 360) as f64, 10.0), ..ColorGroup::PACKAGE }
}

fn by_side(frame: &Frame) -> ColorGroup {
    match (frame.kernel, frame.inlined, frame.name) {
        (true, ..) => ColorGroup::new("kernel", (20.0, 12.0), 0.85, 0.66),
        (_, true, _) => ColorGroup::new("inlined", (185.0, 12.0), 0.50, 0.66),
        (_, _, Name::Address(_) | Name::Unknown) => ColorGroup::UNKNOWN,
        _ => ColorGroup::new("user", (105.0, 22.0), 0.50, 0.66),
    }
}

/// From pale yellow (nothing) to red (`max`); the square root makes small values visible.
fn heat(value: i64, max: i64) -> Rgb {
    let share = if max > 0 { (value.max(0) as f64 / max as f64).min(1.0).sqrt() } else { 0.0 };
    hsl(54.0 * (1.0 - share), 0.55 + 0.35 * share, 0.88 - 0.33 * share)
}

/// A colour near the given one, always the same for the same seed.
fn varied(hue: f64, spread: f64, saturation: f64, lightness: f64, seed: u64) -> Rgb {
    /// Range of lightness: the darkest has a contrast to black of 4.5, and the lightest is not that
    /// of the page.
    const LIGHTNESS: f64 = 0.26;
    let a = unit(seed) - 0.5;
    let b = unit(seed.rotate_left(32)) - 0.5;
    hsl(hue + a * spread, saturation, lightness + b * LIGHTNESS)
}

/// Assigns colours to the boxes of a drawing, which come from left to right, each before those on
/// it, so that adjacent boxes are distinguishable.
#[derive(Debug, Default)]
pub struct Neighbours {
    /// The last box of each row.
    last: Vec<LastBox>,
}

/// The last box of a row.
#[derive(Clone, Copy, Debug)]
struct LastBox {
    /// Its right end.
    right: i64,
    color: Rgb,
}

/// Smallest distance between two colours that are clearly distinguishable.
const DISTINCT: f64 = 24.0;

impl Neighbours {
    /// The colour of the next box, in a row between two ends; `variant`: the colours that it may
    /// have. The first that differs from those of the box below it and of the one to the left that
    /// it touches, else the farthest.
    pub fn next(&mut self, row: usize, ends: Range<i64>, variant: impl Fn(u64) -> Rgb) -> Rgb {
        /// Number of colours that are tried.
        const VARIANTS: u64 = 64;
        let below = row.checked_sub(1).and_then(|row| self.last.get(row));
        let beside = self.last.get(row).filter(|last| last.right == ends.start);
        let distance = |color: Rgb| {
            let touching = below.into_iter().chain(beside);
            touching.map(|last| color.distance(last.color)).fold(f64::INFINITY, f64::min)
        };
        let mut best = variant(0);
        let mut farthest = distance(best);
        for n in 1..VARIANTS {
            if farthest >= DISTINCT {
                break;
            }
            let other = variant(n);
            let away = distance(other);
            if away > farthest {
                (best, farthest) = (other, away);
            }
        }
        let last = LastBox { right: ends.end, color: best };
        match self.last.get_mut(row) {
            Some(place) => *place = last,
            None => self.last.resize(row + 1, last),
        }
        best
    }
}

impl Rgb {
    /// Distance to another colour, in steps of a channel.
    pub fn distance(self, other: Rgb) -> f64 {
        let channel = |a: u8, b: u8| f64::from(a.abs_diff(b)).powi(2);
        (channel(self.r, other.r) + channel(self.g, other.g) + channel(self.b, other.b)).sqrt()
    }
}

fn hash(text: &str) -> u64 {
    let mut h = FxHasher::default();
    h.write(text.as_bytes());
    // FxHasher leaves the low bits of short texts alike.
    let mixed = (h.finish() ^ (h.finish() >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 32)
}

/// The low 32 bits as 0 to 1.
fn unit(bits: u64) -> f64 {
    (bits & 0xffff_ffff) as f64 / f64::from(u32::MAX)
}

fn hsl(hue: f64, saturation: f64, lightness: f64) -> Rgb {
    let hue = hue.rem_euclid(360.0) / 30.0;
    let reach = saturation * lightness.min(1.0 - lightness);
    let channel = |n: f64| {
        let k = (n + hue) % 12.0;
        let value = lightness - reach * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0);
        (value * 255.0).round() as u8
    };
    Rgb { r: channel(0.0), g: channel(8.0), b: channel(4.0) }
}

/// The language of a frame, by the extension of its file, else by its names.
pub fn language(profile: &Profile, frame: &Frame) -> Language {
    match frame.name {
        _ if frame.kernel => Language::Kernel,
        Name::Address(_) | Name::Any | Name::Unknown | Name::NoStack | Name::BeyondLimit => {
            Language::Unknown
        }
        Name::Label(..) => Language::Label,
        Name::Function(name) => {
            let file = profile.str(frame.file);
            let extension = file.rsplit_once('.').map_or("", |(_, e)| e);
            by_extension(extension).unwrap_or_else(|| {
                by_name(profile.str(name), profile.str(frame.system_name), frame, profile)
            })
        }
    }
}

fn by_extension(extension: &str) -> Option<Language> {
    Some(match extension {
        "rs" => Language::Rust,
        "go" => Language::Go,
        "cc" | "cpp" | "cxx" | "c++" | "C" | "hh" | "hpp" | "hxx" | "tcc" | "ipp" | "inl" => {
            Language::Cpp
        }
        "c" | "S" | "s" | "asm" => Language::C,
        "py" | "pyx" | "pyi" => Language::Python,
        "js" | "mjs" | "cjs" | "ts" | "tsx" | "jsx" => Language::JavaScript,
        "java" | "kt" | "scala" | "clj" | "groovy" => Language::Java,
        "rb" | "php" | "pl" | "pm" | "lua" => Language::Script,
        _ => return None,
    })
}

fn by_name(name: &str, system_name: &str, frame: &Frame, profile: &Profile) -> Language {
    let made_at_run_time = is_run_time(profile.str(frame.binary));
    let rust_hash = |s: &str| s.starts_with("_ZN") && s.contains("17h") && s.ends_with('E');
    if system_name.starts_with("_R") || rust_hash(system_name) || looks_rust(name) {
        Language::Rust
    } else if system_name.starts_with("_Z") {
        Language::Cpp
    } else if name.starts_with("py::") || name.ends_with(".py") {
        Language::Python
    } else if V8.iter().any(|p| name.starts_with(p)) {
        Language::JavaScript
    } else if (name.starts_with('L') && name.contains(";::"))
        || (made_at_run_time && (looks_java(name) || HOTSPOT.iter().any(|p| name.starts_with(p))))
    {
        Language::Java
    } else if name.contains("::") || name.contains('<') {
        Language::Cpp
    } else if looks_go(name) {
        Language::Go
    } else {
        Language::C
    }
}

/// Prefixes of V8's names of code.
const V8: &[&str] = &[
    "JS:",
    "LazyCompile:",
    "Function:",
    "Script:",
    "Eval:",
    "RegExp:",
    "Builtin:",
    "BytecodeHandler:",
];

/// Names in the JVM's perf maps for code other than methods.
const HOTSPOT: &[&str] = &[
    "Interpreter",
    "StubRoutines",
    "I2C/C2I adapters",
    "vtable stub",
    "itable stub",
    "RuntimeStub",
    "DeoptimizationBlob",
    "UncommonTrapBlob",
    "ExceptionBlob",
    "SafepointBlob",
];

/// `java.lang.String::hashCode`, or with types: `int java.lang.String.hashCode()`.
fn looks_java(name: &str) -> bool {
    let typed = name.strip_suffix(')').and_then(|n| n.split_once('('));
    let method = typed.and_then(|(method, _)| method.rsplit(' ').next());
    name.contains("::") && name.contains('.') || method.is_some_and(|m| m.contains('.'))
}

fn looks_rust(name: &str) -> bool {
    name.contains("{{closure}}")
        || name.contains("{closure#")
        || (name.starts_with('<') && name.contains(" as "))
        || ["core::", "alloc::", "std::rt::", "std::sys::", "std::panicking::", "std::thread::"]
            .iter()
            .any(|p| name.starts_with(p))
}

/// Go's names are `path/package.Function` or `package.(*Type).Method`.
fn looks_go(name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or(name);
    let Some((package, function)) = last.split_once('.') else { return false };
    let word = |s: &str| !s.is_empty() && s.chars().all(|c| c.is_alphanumeric() || c == '_');
    // `name.part.0` and similar names are clones of C functions.
    let clone = ["part", "cold", "isra", "constprop", "llvm", "lto_priv"];
    word(package) && !function.is_empty() && !clone.iter().any(|c| function.starts_with(c))
}

/// Package of a frame: crate, namespace, Go or Java package, else its binary.
pub fn package(profile: &Profile, frame: &Frame) -> String {
    let binary = frame.binary_name(profile).to_string();
    let Name::Function(_) = frame.name else { return binary };
    let name = frame.display(profile);
    let name = name.trim_start_matches(['<', '&', '*', '(']);
    let name = name.strip_prefix("dyn ").unwrap_or(name);
    let name = name.strip_prefix("mut ").unwrap_or(name);
    let end = name.find(['<', '(', ' ', ',']).unwrap_or(name.len());
    let head = &name[..end];
    match language(profile, frame) {
        Language::Kernel => "[kernel]".to_string(),
        Language::Go => {
            let slash = name.rfind('/').map_or(0, |i| i + 1);
            let dot = name[slash..].find('.').map_or(name.len(), |i| slash + i);
            name[..dot].to_string()
        }
        Language::Java if name.ends_with(')') && !name.contains("::") => {
            let method = name.split('(').next().and_then(|n| n.rsplit(' ').next());
            let class = method.and_then(|method| Some(method.rsplit_once('.')?.0));
            class.and_then(|class| Some(class.rsplit_once('.')?.0)).map_or(binary, str::to_owned)
        }
        Language::Java => match head.trim_start_matches('L').rfind(['/', '.']) {
            Some(i) => head.trim_start_matches('L')[..i].to_string(),
            None => binary,
        },
        _ => match head.split_once("::") {
            Some((first, _)) if !first.is_empty() => first.to_string(),
            _ => binary,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::{Builder, LabelSetId};
    use view::testing::{functions, mapping};
    use view::{Frames, Granularity};

    /// Language and package of a function of this name in this file of this binary.
    fn of(name: &str, file: &str, binary: &str) -> (Language, String) {
        let mut b = Builder::new(&[("samples", "count")]);
        let m = mapping(&mut b, binary, 0);
        let l = functions(&mut b, Some(m), 1, &[(name, file, 1)]);
        b.add(&[l], LabelSetId::EMPTY, 1, &[]);
        let p = b.finish(None);
        let frames = Frames::new(&p, Granularity::FUNCTION);
        let frame = *frames.get(frames.at(l)[0]);
        (language(&p, &frame), package(&p, &frame))
    }

    #[test]
    fn functions_have_a_language_and_a_package() {
        let cases = [
            ("main", "a.c", "/bin/app", Language::C, "app"),
            ("memcpy", "", "/lib/libc.so.6", Language::C, "libc.so.6"),
            ("foo.part.0", "", "/bin/app", Language::C, "app"),
            (
                "<serde_json::Value as core::fmt::Debug>::fmt",
                "",
                "/a",
                Language::Rust,
                "serde_json",
            ),
            ("alloc::vec::Vec<T>::push", "vec.rs", "/a", Language::Rust, "alloc"),
            ("llvm::Value::get()", "", "/a", Language::Cpp, "llvm"),
            ("runtime.mallocgc", "", "/a", Language::Go, "runtime"),
            ("github.com/x/y.(*T).Do", "y.go", "/a", Language::Go, "github.com/x/y"),
            ("py::run:/x.py", "", "/tmp/perf-1.map", Language::Python, "py"),
            ("JS:*fib /x.js:1", "", "/a/jit-1.dump", Language::JavaScript, "[JIT]"),
            ("int a.b.C.run(int)", "", "/tmp/perf-1.map", Language::Java, "a.b"),
            ("int C.run(a.B)", "", "/tmp/perf-1.map", Language::Java, "[JIT]"),
            ("a.B::run", "", "/tmp/perf-1.map", Language::Java, "a"),
            ("Interpreter", "", "/tmp/perf-1.map", Language::Java, "[JIT]"),
            ("Interpreter", "", "/bin/app", Language::C, "app"),
            ("JS:*fib /x.js:1", "", "/tmp/perf-1.map", Language::JavaScript, "[JIT]"),
            ("do_syscall_64", "", "[kernel.kallsyms]", Language::Kernel, "[kernel]"),
        ];
        for (name, file, binary, l, package) in cases {
            assert_eq!(of(name, file, binary), (l, package.to_string()), "{name}");
        }
    }

    #[test]
    fn boxes_that_touch_differ_in_programs_of_one_language() {
        let languages = [
            Language::Kernel,
            Language::C,
            Language::Cpp,
            Language::Rust,
            Language::Go,
            Language::Python,
            Language::JavaScript,
            Language::Java,
            Language::Script,
            Language::Unknown,
        ];
        for language in languages {
            let mut neighbours = Neighbours::default();
            let mut last: [Option<Rgb>; 4] = [None; 4];
            for name in 0..1000_i64 {
                // Four rows of boxes of one width: all touch the one to the left.
                let (row, at) = ((name % 4) as usize, name / 4);
                let group = BoxColor::Group(by_language(language), hash(&name.to_string()));
                let color = neighbours.next(row, at..at + 1, |number| group.variant(number));
                let below = row.checked_sub(1).and_then(|row| last[row]);
                for other in last[row].into_iter().chain(below) {
                    let distance = color.distance(other);
                    assert!(distance >= DISTINCT, "{language:?}: {color:?} beside {other:?}");
                }
                last[row] = Some(color);
            }
        }
    }

    #[test]
    fn heat_rises_and_colours_are_steady() {
        assert_eq!(hsl(0.0, 1.0, 0.5), Rgb { r: 255, g: 0, b: 0 });
        assert_eq!(hsl(120.0, 1.0, 0.5), Rgb { r: 0, g: 255, b: 0 });
        assert_eq!(hsl(240.0, 1.0, 0.25), Rgb { r: 0, g: 0, b: 128 });
        let greens: Vec<_> = [0, 10, 50, 100].map(|v| heat(v, 100).g).into();
        assert!(greens.windows(2).all(|w| w[0] > w[1]), "{greens:?}");
        assert_eq!(by_package("a"), by_package("a"));
        let c = by_language(Language::C);
        assert_ne!(c.varied(hash("a")), c.varied(hash("b")));
    }
}
