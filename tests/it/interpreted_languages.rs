//! Functions of Ruby, PHP and JavaScript in recordings of programs with a known answer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::common::interpreted::{self, Frame};
use crate::common::pprof::Sample;
use crate::common::system::{has_deep_stacks, needs_root};
use crate::common::{
    ChiSquared, Pprof, Prof, Verdict, decide, figures, most_by_chance, needs, read, temp_dir,
};

/// A language, and programs in it.
pub struct Language {
    /// The name of its program, and options.
    command: &'static [&'static str],
    /// Its functions are in this mapping.
    mapping: &'static str,
    /// The name of a script's file.
    script: &'static str,
    /// Functions that measure themselves, and the frame of each kind of work.
    shares: &'static str,
    work: [(&'static str, &'static str); 4],
    /// Two recursions that take turns, with fewer frames than are copied.
    recursions: &'static str,
    /// The outermost function of a script.
    outermost: &'static str,
    /// The share of stacks that reach it, in percent, at least.
    complete: usize,
    /// Innermost functions have lines.
    has_lines: bool,
}

const RUBY: Language = Language {
    command: &["ruby"],
    mapping: "[ruby]",
    script: "program.rb",
    shares: "\
def now = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID, :nanosecond)
module Tools
  class Parser
    def digest(quota)
      start = now
      while now - start < quota
        i = 0; i += 1 while i < 4000 # digest
      end
      now - start
    end
  end
end
def scan(quota)
  spent = 0
  [quota].each do |part|
    start = now
    while now - start < part
      i = 0; i += 1 while i < 4000 # step
    end
    spent = now - start
  end
  spent
end
def parts(quota, first)
  start = now
  if first
    while now - start < quota
      i = 0; i += 1 while i < 4000 # first part
    end
  else
    while now - start < quota
      i = 0; i += 1 while i < 4000 # second part
    end
  end
  now - start
end
def main(used, until_spent)
  kinds = {
    'digest' => [Tools::Parser.new.method(:digest), 40], 'step' => [method(:scan), 30],
    'first part' => [->(quota) { parts(quota, true) }, 18],
    'second part' => [->(quota) { parts(quota, false) }, 12],
  }
  while used.values.sum < until_spent
    kinds.to_a.shuffle.each do |kind, (function, part)|
      used[kind] += function.call(part * (50_000 + rand(100_000)))
    end
  end
end
def measured
  used = Hash.new(0)
  main(used, 1_500_000_000)
  used
end
main(Hash.new(0), 200_000_000)
measured.each { |kind, spent| puts \"#{kind} #{spent}\" }
",
    work: [
        ("digest", "Tools::Parser#digest"),
        ("step", "block in Object#scan"),
        ("first part", "Object#parts"),
        ("second part", "Object#parts"),
    ],
    recursions: "\
def a(depth)
  depth > 0 ? a(depth - 1) : [2, 1].sort_by { |value| -value }
end
def b(depth)
  return Integer('1') if depth == 0
  [depth].each { |value| b(value - 1) }
end
start = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
while Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - start < 2
  a(10)
  b(10)
end
",
    outermost: "<main>",
    complete: 98,
    has_lines: true,
};

const PHP: Language = Language {
    command: &["php"],
    mapping: "[php]",
    script: "program.php",
    shares: "\
<?php
namespace Tools;
function now() {
    $used = \\getrusage();
    $microseconds = $used['ru_utime.tv_usec'] + $used['ru_stime.tv_usec'];
    return ($used['ru_utime.tv_sec'] + $used['ru_stime.tv_sec']) * 1000000000 + $microseconds * 1000;
}
class Parser {
    public function digest($quota) {
        $start = now();
        while (now() - $start < $quota) {
            for ($i = 0; $i < 9000; $i++) {} # digest
        }
        return now() - $start;
    }
}
function scan($quota) {
    return \\array_map(function ($part) {
        $start = now();
        while (now() - $start < $part) {
            for ($i = 0; $i < 9000; $i++) {} # step
        }
        return now() - $start;
    }, [$quota])[0];
}
function parts($quota, $first) {
    $start = now();
    if ($first) {
        while (now() - $start < $quota) {
            for ($i = 0; $i < 9000; $i++) {} # first part
        }
    } else {
        while (now() - $start < $quota) {
            for ($i = 0; $i < 9000; $i++) {} # second part
        }
    }
    return now() - $start;
}
function main($until) {
    $kinds = [
        'digest' => [[new Parser(), 'digest'], 40], 'step' => ['Tools\\scan', 30],
        'first part' => [fn ($quota) => parts($quota, true), 18],
        'second part' => [fn ($quota) => parts($quota, false), 12],
    ];
    $used = \\array_fill_keys(\\array_keys($kinds), 0);
    $order = \\array_keys($kinds);
    while (\\array_sum($used) < $until) {
        \\shuffle($order);
        foreach ($order as $kind) {
            [$function, $part] = $kinds[$kind];
            $used[$kind] += $function($part * \\random_int(50000, 150000));
        }
    }
    return $used;
}
function measured() {
    return main(1500000000);
}
main(200000000);
foreach (measured() as $kind => $spent) echo \"$kind $spent\\n\";
",
    work: [
        ("digest", "Tools\\Parser::digest"),
        ("step", "Tools\\{closure}"),
        ("first part", "Tools\\parts"),
        ("second part", "Tools\\parts"),
    ],
    recursions: "\
<?php
function a($depth) {
    if ($depth > 0) return a($depth - 1);
    $values = [2, 1];
    usort($values, fn ($x, $y) => $x - $y);
    return $values;
}
function b($depth) {
    if ($depth == 0) return intval('1');
    return array_map(fn ($value) => b($value - 1), [$depth]);
}
$start = hrtime(true);
$used = fn () => getrusage()['ru_utime.tv_sec'] + getrusage()['ru_utime.tv_usec'] / 1e6;
while ($used() < 2) {
    for ($i = 0; $i < 20; $i++) {
        a(10);
        b(10);
    }
}
",
    outermost: "{main}",
    complete: 98,
    has_lines: true,
};

pub const JAVASCRIPT: Language = Language {
    // The innermost function is unknown where others are inlined. The program has only its own time with one thread.
    command: &["node", "--single-threaded", "--max-inlined-bytecode-size=0"],
    mapping: "[javascript]",
    script: "program.js",
    shares: "\
const now = () => {
  const used = process.cpuUsage();
  return (used.user + used.system) * 1000;
};
class Parser {
  digest(quota) {
    const start = now();
    while (now() - start < quota) {
      for (let i = 0; i < 90000; i++) {} // digest
    }
    return now() - start;
  }
}
const scan = quota => [quota].map(function step(part) {
  const start = now();
  while (now() - start < part) {
    for (let i = 0; i < 90000; i++) {} // step
  }
  return now() - start;
})[0];
function firstPart(quota) {
  const start = now();
  while (now() - start < quota) {
    for (let i = 0; i < 90000; i++) {} // first part
  }
  return now() - start;
}
function secondPart(quota) {
  const start = now();
  while (now() - start < quota) {
    for (let i = 0; i < 90000; i++) {} // second part
  }
  return now() - start;
}
function main(until) {
  const parser = new Parser();
  const kinds = {
    'digest': [quota => parser.digest(quota), 40], 'step': [scan, 30],
    'first part': [firstPart, 18], 'second part': [secondPart, 12],
  };
  const used = {};
  for (const kind in kinds) used[kind] = 0;
  let sum = 0;
  while (sum < until) {
    for (const kind of Object.keys(kinds).sort(() => Math.random() - 0.5)) {
      const [work, part] = kinds[kind];
      const spent = work(part * (50000 + Math.random() * 100000));
      used[kind] += spent;
      sum += spent;
    }
  }
  return used;
}
function measured() {
  return main(1500e6);
}
main(200e6);
const used = measured();
for (const kind in used) console.log(kind, used[kind]);
",
    work: [
        ("digest", "digest"),
        ("step", "step"),
        ("first part", "firstPart"),
        ("second part", "secondPart"),
    ],
    recursions: "\
function a(depth) {
  return depth > 0 ? a(depth - 1) : [2, 1].sort((x, y) => x - y);
}
function b(depth) {
  return depth === 0 ? Number('1') : [depth].map(value => b(value - 1));
}
function used() {
  return process.cpuUsage().user / 1e6;
}
const start = used();
while (used() - start < 2) {
  for (let i = 0; i < 20; i++) {
    a(10);
    b(10);
  }
}
",
    outermost: "node:internal/main/run_main_module",
    complete: 97,
    // But in optimized code.
    has_lines: false,
};

/// JavaScript that is interpreted, or compiled without optimization.
const UNOPTIMIZED: Language = Language {
    command: &["node", "--single-threaded", "--no-opt", "--no-maglev"],
    has_lines: true,
    ..JAVASCRIPT
};

/// The same, compiled before it runs for the first time.
const COMPILED: Language = Language {
    command: &["node", "--single-threaded", "--no-opt", "--no-maglev", "--always-sparkplug"],
    has_lines: true,
    ..JAVASCRIPT
};

impl Language {
    /// The same with another command.
    pub fn with(self, command: &'static [&'static str]) -> Language {
        Language { command, ..self }
    }

    /// Records one of its programs. `None`, which is reported: it is not installed, or its functions
    /// are not read here.
    pub fn record(&self, dir: &Path, options: &str, program: &str) -> Option<Recorded> {
        if !needs_root() || !has_deep_stacks() || !needs(&self.command[..1]) {
            return None;
        }
        let file = dir.join(self.script);
        std::fs::write(&file, program).unwrap();
        let command = self.command.join(" ");
        let prof =
            Prof::new(dir, &format!("record --timestamps -e cpu-clock {options} -- {command}"));
        let out = prof.arg(&file).run().ok();
        let profile = read(dir.join("profile.pb.gz"));
        Some(Recorded { mapping: self.mapping, profile, file, figures: figures(&out) })
    }
}

/// A recording.
pub struct Recorded {
    mapping: &'static str,
    pub profile: Pprof,
    file: PathBuf,
    figures: BTreeMap<String, f64>,
}

impl Recorded {
    pub fn frames(&self, sample: &Sample) -> Vec<Frame<'_>> {
        interpreted::frames(&self.profile, sample, self.mapping)
    }

    /// The samples from the first one that has functions of the script.
    pub fn recognized(&self) -> Vec<&Sample> {
        let pids = self.profile.label_values("pid");
        let [pid] = pids.iter().collect::<Vec<_>>()[..] else { panic!("{pids:?}") };
        let is_script = |frame: &Frame| frame.file.ends_with(self.file.to_str().unwrap());
        let is_unknown = |sample: &&Sample| !self.frames(sample).iter().any(is_script);
        interpreted::in_order(&self.profile, pid).into_iter().skip_while(is_unknown).collect()
    }
}

/// Samples of the kinds of work, and what the program has measured of them.
#[derive(Default)]
struct Shares {
    found: [u64; 4],
    nanoseconds: [f64; 4],
    /// Samples in other lines.
    between: u64,
    is_skipped: bool,
}

impl Shares {
    fn add(&mut self, language: &Language) {
        let dir = temp_dir();
        let Some(recorded) = language.record(dir.path(), "-F 999", language.shares) else {
            self.is_skipped = true;
            return;
        };
        let lines = language.work.map(|(mark, _)| {
            let has = |line: &str| line.ends_with(&format!(" {mark}"));
            1 + language.shares.lines().position(has).unwrap() as i64
        });
        for (at, (mark, _)) in language.work.iter().enumerate() {
            self.nanoseconds[at] += recorded.figures[*mark];
        }
        for sample in recorded.recognized() {
            let frames = recorded.frames(sample);
            // What is called before warms up.
            let is_measured =
                |frame: &Frame| interpreted::plain(frame.function).ends_with("measured");
            let Some(innermost) = frames.first().filter(|_| frames.iter().any(is_measured)) else {
                continue;
            };
            let file = recorded.file.to_str().unwrap();
            let at = (0..4).find(|at| {
                innermost.function == language.work[*at].1
                    && (innermost.line == lines[*at] || innermost.line == 0 && !language.has_lines)
                    && innermost.file.ends_with(file)
            });
            match at {
                Some(at) => self.found[at] += 1,
                None => self.between += 1,
            }
        }
    }

    fn test(&self, what: &str) -> ChiSquared {
        let test = ChiSquared::new(&self.found, &self.nanoseconds);
        let (samples, all) = (self.found.iter().sum::<u64>(), self.nanoseconds.iter().sum::<f64>());
        let expected = self.nanoseconds.map(|time| (time * samples as f64 / all).round());
        println!("{what}: {:?}, expected {expected:?}, {} between", self.found, self.between);
        test
    }
}

#[track_caller]
fn assert_shares(language: &Language) {
    let what = language.command[0];
    let judge = |shares: &Shares| {
        if shares.is_skipped { Verdict::Accepted } else { shares.test(what).verdict() }
    };
    let shares = decide(what, |shares: &mut Shares| shares.add(language), judge);
    let samples: u64 = shares.found.iter().sum();
    // Reads of the clock take 2 % of the time.
    let most = most_by_chance(0.05 * samples as f64);
    let is_enough = shares.is_skipped || samples > 1000;
    assert!(is_enough && shares.between <= most, "{what}: {} of {samples} between", shares.between);
}

/// `a` calls only `a`, and `b` only `b`.
#[track_caller]
fn assert_one_moment(language: &Language) {
    let what = language.command[0];
    let dir = temp_dir();
    let recorded = language.record(dir.path(), "-F 1999", language.recursions);
    let Some(recorded) = recorded else { return };
    let (mut both, mut whole, mut deep) = (0, 0, 0);
    let samples = recorded.recognized();
    for sample in &samples {
        let frames = recorded.frames(sample);
        let count = |name: &str| {
            frames.iter().filter(|frame| interpreted::plain(frame.function) == name).count()
        };
        let (a, b) = (count("a"), count("b"));
        both += usize::from(a > 0 && b > 0);
        deep += usize::from(a.max(b) > 5);
        let outermost = frames.last().map_or("", |frame| frame.function);
        let is_whole = [outermost, frames.last().map_or("", |frame| frame.file)];
        whole += usize::from(is_whole.contains(&language.outermost));
        // With their blocks.
        assert!(a.max(b) <= 22, "{what}: {a}, {b}");
    }
    let all = samples.len();
    println!("{what}: {whole} of {all} samples reach {}, {deep} are deep", language.outermost);
    assert_eq!(both, 0, "{what}: of {all}");
    assert!(all > 2500 && deep * 5 > all, "{what}: {deep} of {all} are deep");
    assert!(whole * 100 >= all * language.complete, "{what}: {whole} of {all}");
}

#[test]
fn rubys_functions_and_lines_have_the_shares_that_the_program_measures() {
    assert_shares(&RUBY);
}

#[test]
fn phps_functions_and_lines_have_the_shares_that_the_program_measures() {
    assert_shares(&PHP);
}

#[test]
fn javascripts_functions_and_lines_have_the_shares_that_the_program_measures() {
    assert_shares(&JAVASCRIPT);
}

#[test]
fn unoptimized_javascript_has_its_lines() {
    assert_shares(&UNOPTIMIZED);
    assert_shares(&COMPILED);
}

#[test]
fn no_stack_of_ruby_has_functions_of_two_moments() {
    assert_one_moment(&RUBY);
}

#[test]
fn no_stack_of_php_has_functions_of_two_moments() {
    assert_one_moment(&PHP);
}

#[test]
fn no_stack_of_javascript_has_functions_of_two_moments() {
    assert_one_moment(&JAVASCRIPT);
}

/// Code that an interpreter has compiled keeps no frame pointers. It is shown as the functions that it
/// executes.
#[track_caller]
fn assert_compiled(language: &Language) {
    assert_one_moment(language);
    let dir = temp_dir();
    let recorded = language.record(dir.path(), "-F 999", language.recursions);
    let Some(recorded) = recorded else { return };
    let samples = recorded.recognized();
    let profile = &recorded.profile;
    let is_cut = |frame: &&str| frame.starts_with("[truncated");
    let cut = samples.iter().filter(|sample| profile.frames(sample).iter().any(is_cut)).count();
    let all = samples.len();
    println!("{:?}: {cut} of {all} stacks are truncated", language.command);
    assert!(all > 1000 && cut * 100 <= all * 3, "{cut} of {all}");
    let report = Prof::new(&dir, "report -n 0").run().ok().text();
    let is_run_time = |line: &&str| line.contains("anon+0x") || line.contains("zero+0x");
    let rows: Vec<&str> = report.lines().filter(is_run_time).collect();
    let share = |row: &&str| -> f64 {
        row.split_whitespace().find_map(|word| word.strip_suffix('%')?.parse().ok()).unwrap()
    };
    let shown: f64 = rows.iter().map(share).sum();
    assert!(shown < 2.0, "{report}");
}

#[test]
fn code_that_php_has_compiled_is_shown_as_its_functions() {
    const COMMAND: &[&str] = &[
        "php",
        "-d",
        "opcache.enable_cli=1",
        "-d",
        "opcache.jit=tracing",
        "-d",
        "opcache.jit_buffer_size=64M",
    ];
    let compiled = PHP.with(COMMAND);
    assert_compiled(&compiled);
    assert_shares(&Language { has_lines: false, ..compiled });
}

#[test]
fn code_that_ruby_has_compiled_is_shown_as_its_functions() {
    assert_compiled(&RUBY.with(&["ruby", "--yjit"]));
}

/// YJIT's code writes its place only before calls: else, the frame has that of an earlier one.
#[test]
fn ruby_that_is_compiled_has_no_line_of_an_earlier_call() {
    const PROGRAM: &str = "\
def work(count)
  i = sum = 0
  while i < count
    sum += i & 3
    sum = sum.clamp(0, 9) if i & 127 == 0
    i += 1
  end
  sum
end
start = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
work(10_000) while Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - start < 2
";
    let dir = temp_dir();
    let language = RUBY.with(&["ruby", "--yjit"]);
    let Some(recorded) = language.record(dir.path(), "-F 999", PROGRAM) else { return };
    let (mut without, mut calls, mut all) = (0, 0, 0);
    for sample in &recorded.recognized() {
        match &recorded.frames(sample)[..] {
            [work, ..] if work.function.ends_with("work") => {
                all += 1;
                without += usize::from(work.line == 0);
            }
            [clamp, work, ..] if clamp.function.ends_with("clamp") => {
                assert_eq!(work.line, 5);
                calls += 1;
            }
            _ => {}
        }
    }
    println!("{without} of {all} samples without a line, {calls} in a call");
    assert!(all > 500 && without * 100 > all * 95 && calls > 0, "{without} of {all}, {calls}");
}

/// The interpreter's instruction would make thousands of stacks of the same functions.
#[test]
fn the_function_that_executes_php_has_one_place() {
    let dir = temp_dir();
    let Some(recorded) = PHP.record(dir.path(), "-F 1999", PHP.recursions) else { return };
    let Recorded { profile, mapping, .. } = &recorded;
    let samples = recorded.recognized();
    let outside = |sample: &&Sample| interpreted::outside(profile, sample, mapping);
    let mut places: BTreeSet<u64> = samples.iter().flat_map(outside).collect();
    places.retain(|place| {
        profile.lines[place].first().is_none_or(|name| !name.starts_with("[truncated"))
    });
    assert_eq!(places.len(), 1, "{places:?}");
}
