//! The errors of `prof diff`: changes that it lists between two recordings of an unchanged program,
//! and changes that it misses.
//!
//! cargo bench --bench diff [-- --pairs 4 --seconds 2 --simulated 20 --long 1 --recordings DIR]
//!
//! Each of six programs is recorded `--pairs` times before and after nothing. Recordings are kept in
//! DIR, and those that are there are not repeated. From all recordings of a program, `--simulated`
//! pairs of 30 s at 999 Hz are then drawn at random, in which a function with a tenth of the time is
//! a fifth slower after. `--long` such pairs are recorded for 30 s, of a program that has such a
//! function. With `--pairs 17 --simulated 100 --long 100`, all are of about 100 pairs, which takes 2
//! hours.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use profile::Profile;
use support::units::count;
use support::{Figures, claim, option, prof};
use view::{Diff, DiffOptions, Granularity, Top, TopOptions, View};

/// Name of a program, and a shell command that runs it for minutes.
const PROGRAMS: [(&str, &str); 6] = [
    ("openssl", "exec openssl speed -seconds 60 sha256 aes-128-cbc"),
    ("gzip", "cat /dev/urandom | tr -dc 'a-z \\n' | exec gzip -c"),
    (
        "python3",
        "exec python3 -c 'import json\nd=[{\"a\":i,\"b\":str(i)*3,\"c\":[i*0.5]*5} for i in range(2000)]\n\
         while True: sorted(json.loads(json.dumps(d)), key=lambda x: x[\"b\"])'",
    ),
    (
        "perl",
        "exec perl -e 'while (1) { my %h; for my $i (1..20000) { $h{\"k\".($i%977)} .= \"x\"; \
         my $s = \"abc$i\"; $s =~ s/[0-9]+/z/g; } }'",
    ),
    (
        "sqlite3",
        "exec sqlite3 :memory: \"create table t(a integer primary key, b text); with recursive n(x) \
         as (select 1 union all select x+1 from n where x<30000) insert into t select x, \
         printf('%d-%d',x,x*7919%1009) from n; with recursive r(x) as (select 1 union all select \
         x+1 from r where x<10000000) select sum((select count(*) from t where b like \
         '%'||(r.x%100)||'%' and a<3000)) from r;\"",
    ),
    (
        "node",
        "exec node -e 'let o=[];for(let i=0;i<2000;i++)o.push({i,s:String(i)});\
         for(;;){JSON.parse(JSON.stringify(o));o.slice().sort((a,b)=>a.s<b.s?-1:1)}'",
    ),
];

/// Length of the pairs with a slower function.
const SECONDS: f64 = 30.0;

/// Samples of this length at 999 Hz.
const SAMPLES: f64 = SECONDS * 999.0;

/// Share of the time of the function that becomes slower.
const SHARE: f64 = 0.1;

/// Its time after, in times before.
const SLOWER: f64 = 1.2;

fn main() {
    let pairs: usize = option("pairs", 4);
    let seconds: f64 = option("seconds", 2.0);
    let simulated: usize = option("simulated", 20);
    let long: usize = option("long", 1);
    let kept: String = option("recordings", String::new());
    let temporary = support::temp_dir();
    let dir = if kept.is_empty() { temporary.path().to_owned() } else { PathBuf::from(&kept) };
    std::fs::create_dir_all(&dir).expect("the directory of recordings");
    let mut figures = Figures::new(&[
        "Program",
        "pairs of recordings",
        "that list a change",
        "pairs with a slower function",
        "in which it is found",
        "other changes listed",
    ]);
    figures.conditions(&format!(
        "Recordings of {seconds} s at 999 Hz. Pairs with a slower function are of 30 s: drawn from \
         the recordings, and recorded (last row)."
    ));
    let mut all = Errors::default();
    for (name, command) in PROGRAMS {
        if !support::has(name) {
            println!("{name}: not installed");
            continue;
        }
        let recordings: Vec<[Profile; 2]> = (0..pairs)
            .map(|pair| {
                ["a", "b"].map(|side| {
                    let file = dir.join(format!("{name}.{pair}.{side}.pb.gz"));
                    record(command, &file, seconds);
                    formats::read_file(&file).expect("a recording")
                })
            })
            .collect();
        let mut errors = Errors::default();
        for [before, after] in &recordings {
            errors.pairs += 1;
            errors.listed += usize::from(compare(before, after).changed() > 0);
        }
        let whole = profile::merge(recordings.into_iter().flatten().collect());
        simulate(&whole.expect("recordings of one type"), simulated, &mut errors);
        println!("{name}: {errors:?}");
        figures.row(name, errors.cells());
        all.add(&errors);
    }
    figures.row("all", all.cells());
    if long > 0 && support::has("cc") {
        let errors = long_pairs(&dir, long);
        println!("30 s: {errors:?}");
        let [.., pairs, found, others] = errors.cells();
        let none = || "n/a".to_owned();
        figures.row("C, recorded for 30 s", [none(), none(), pairs, found, others]);
        claim(
            errors.found * 100 >= 95 * errors.simulated,
            "a slower function is found in 95 of 100 recorded pairs",
        );
    }
    claim(all.listed * 100 <= 5 * all.pairs, "at most 5 of 100 pairs list a change");
    claim(all.found * 100 >= 95 * all.simulated, "a slower function is found in 95 of 100 pairs");
    figures.publish();
}

/// Numbers of pairs, and what was listed in them.
#[derive(Debug, Default)]
struct Errors {
    pairs: usize,
    listed: usize,
    simulated: usize,
    found: usize,
    others: usize,
}

impl Errors {
    fn cells(&self) -> [String; 5] {
        [self.pairs, self.listed, self.simulated, self.found, self.others]
            .map(|number| count(number as u64))
    }

    /// Counts a pair in which the function `slow` is slower after.
    fn judge(&mut self, diff: &Diff, slow: &str) {
        let changed = |row: &&view::DiffRow| row.itself.is_significant();
        let names = diff.rows.iter().filter(changed);
        let names: Vec<&str> = names.map(|row| &*diff.frames[row.frame as usize].name).collect();
        self.simulated += 1;
        self.found += usize::from(names.contains(&slow));
        self.others += usize::from(names.iter().any(|other| *other != slow));
    }

    fn add(&mut self, other: &Errors) {
        self.pairs += other.pairs;
        self.listed += other.listed;
        self.simulated += other.simulated;
        self.found += other.found;
        self.others += other.others;
    }
}

/// Records the command for some seconds, unless that has been done.
fn record(command: &str, file: &Path, seconds: f64) {
    if file.exists() {
        return;
    }
    let mut target = Command::new("sh");
    target.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut target = std::os::unix::process::CommandExt::process_group(&mut target, 0)
        .spawn()
        .expect("sh is installed");
    // Without the start of the program, and the compilations of node.
    support::settle(2000);
    let pid = target.id().to_string();
    let window = format!("{seconds}s");
    let options = ["record", "-q", "-F", "999", "-d", &window, "--tree", "-p", &pid, "-o"];
    let recorded = prof().args(options).arg(file).status();
    let group = format!("-{pid}");
    Command::new("kill").args(["-KILL", "--", &group]).status().expect("kill is installed");
    target.wait().expect("the program ended");
    assert!(recorded.is_ok_and(|status| status.success()), "{command}: prof record failed");
}

/// A program with the function `tenth`, whose time is a tenth times the argument.
const LONG: &str = r"
#include <stdlib.h>
static volatile unsigned long sum;
#define WORK(name, key) \
    __attribute__((noinline)) static void name(long n) { for (long i = 0; i < n; i++) sum += i ^ key; }
WORK(tenth, 1) WORK(second, 2) WORK(third, 3) WORK(fourth, 4)
int main(int count, char **words) {
    long n = 100000 * atof(words[count - 1]);
    for (;;) { tenth(n); second(200000); third(300000); fourth(400000); }
}
";

/// Records pairs of 30 s of a program in which one function is slower after.
fn long_pairs(dir: &Path, pairs: usize) -> Errors {
    let source = dir.join("long.c");
    std::fs::write(&source, LONG).expect("the directory of recordings");
    let program = support::compile(&source, "cc", &["-O2", "-g"]);
    let mut errors = Errors::default();
    for pair in 0..pairs {
        let [before, after] = [1.0, SLOWER].map(|slower| {
            let file = dir.join(format!("long.{pair}.{slower}.pb.gz"));
            let command = format!("exec '{}' {slower}", program.display());
            record(&command, &file, SECONDS);
            formats::read_file(&file).expect("a recording")
        });
        errors.judge(&compare(&before, &after), "tenth");
    }
    errors
}

fn compare(before: &Profile, after: &Profile) -> Diff {
    let view = |profile| View::new(profile, 1, Granularity::FUNCTION);
    Diff::new(&[view(before)], &[view(after)], &DiffOptions::default())
}

/// Draws pairs of recordings from `whole`, one function of which is slower after.
fn simulate(whole: &Profile, pairs: usize, errors: &mut Errors) {
    let view = View::new(whole, 1, Granularity::FUNCTION);
    let top = Top::new(&view, &TopOptions::default());
    let distance = |value: i64| (value as f64 / view.total as f64 - SHARE).abs();
    let named = top
        .rows
        .iter()
        .filter(|row| matches!(view.frames.get(row.frame).name, view::Name::Function(_)));
    let slow = named.min_by(|a, b| distance(a.self_value).total_cmp(&distance(b.self_value)));
    let slow = slow.expect("a function with a name");
    let name = view.frames.get(slow.frame).display(whole).into_owned();
    // The weight that makes its share a tenth, among the samples that have it as their leaf.
    let share = slow.self_value as f64 / view.total as f64;
    let weight = SHARE * (1.0 - share) / ((1.0 - SHARE) * share);
    let mut is_slow = vec![false; whole.samples.len()];
    for sample in view.samples() {
        let mut frames = sample.stack.iter().flat_map(|&location| view.frames.at(location));
        is_slow[sample.row] = frames.next() == Some(&slow.frame);
    }
    let sum: f64 = (0..whole.samples.len()).map(|row| whole.values_of(row)[0] as f64).sum();
    let scale = SAMPLES / sum * (1.0 - SHARE) / (1.0 - share);
    let mut random = Random(1);
    for _ in 0..pairs {
        let [before, after] = [1.0, SLOWER].map(|slower| {
            let mut drawn = whole.clone();
            for (row, slow) in is_slow.iter().enumerate() {
                let values = &mut drawn.values[2 * row..2 * row + 2];
                let weight = if *slow { weight * slower } else { 1.0 };
                let samples = random.poisson(values[0] as f64 * scale * weight);
                values[0] = samples;
                values[1] = samples * whole.period;
            }
            drawn
        });
        let diff = compare(&before, &after);
        errors.judge(&diff, &name);
    }
}

/// Random numbers, the same in each run.
struct Random(u64);

impl Random {
    /// Uniform between 0 and 1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((self.0 >> 33) as f64 + 0.5) / f64::from(1u32 << 31)
    }

    /// A number of events whose mean is known.
    fn poisson(&mut self, mean: f64) -> i64 {
        let mut rest = mean;
        let mut number = 0;
        // The sum of Poisson numbers is one, and the exponential of a large number is 0.
        while rest > 0.0 {
            let part = rest.min(100.0);
            rest -= part;
            let mut product = self.unit();
            while product > (-part).exp() {
                product *= self.unit();
                number += 1;
            }
        }
        number
    }
}
