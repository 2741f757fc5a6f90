//! Where the stacks of interpreted programs begin: greenlets of Python, and threads of Ruby, which have
//! a megabyte between their first function and the others. And that they are known from the first
//! sample on.

use std::path::Path;

use crate::common::pprof::Sample;
use crate::common::python;
use crate::common::system::{has_deep_stacks, has_kernel_programs, needs_root};
use crate::common::{Pprof, Prof, Running, needs, read, skip, temp_dir};

/// Greenlets that are started by frames which are gone when they run on, and by each other.
const GREENLETS: &str = "\
import os, time
from greenlet import greenlet
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        for i in range(1000): pass
def in_greenlet(other):
    while True:
        burn(0.02)
        other.switch()
def start(depth, lets):
    if depth: return start(depth - 1, lets)
    for let in lets: let.switch(main)
def shallow(lets):
    for i in range(40):
        for let in lets: let.switch(main)
main = greenlet.getcurrent()
lets = [greenlet(in_greenlet) for i in range(3)]
sorted([1], key=lambda _: start(20, lets))
shallow(lets)
os._exit(0)
";

/// greenlet copies the stacks of greenlets that wait away: what lies above their first function is of
/// another one.
#[test]
fn the_stack_of_a_greenlet_is_whole_and_ends_with_its_own_first_function() {
    let Some(python) = python::python() else { return };
    if !Path::new("/usr/lib/python3/dist-packages/greenlet").exists() {
        return skip("python3-greenlet is not installed");
    }
    let dir = temp_dir();
    let p = python.record(dir.path(), "-F 499 -e cpu-clock", GREENLETS);
    let (mut all, mut whole) = (0, 0);
    for sample in &p.samples {
        let functions = python::functions(&p, sample);
        if !functions.contains(&"in_greenlet") {
            continue;
        }
        all += sample.times.len();
        let root = *p.frames(sample).last().unwrap();
        let is_own = functions.last() == Some(&"in_greenlet");
        let is_whole = is_own && root.contains("UserGreenlet::inner_bootstrap");
        whole += if is_whole { sample.times.len() } else { 0 };
    }
    println!("{whole} of {all} stacks of greenlets end with their first function");
    // In the middle of a switch, its frames are of two greenlets.
    assert!(all > 500 && whole * 100 >= all * 99, "{whole} of {all}");
}

/// Threads that wait for each other and for locks.
const RUBY_THREADS: &str = "\
def fib(n) = n < 2 ? n : fib(n - 1) + fib(n - 2)
def take(queue) = queue.pop
def produce(queue) = queue.push(fib(20))
def locked(mutex) = mutex.synchronize { sleep 0.001; fib(12) }
def nap = sleep(0.01)
queue, mutex = Queue.new, Mutex.new
4.times { Thread.new { loop { take(queue) } } }
2.times { Thread.new { loop { produce(queue); nap } } }
3.times { Thread.new { loop { locked(mutex) } } }
sleep 1.5
exit!(true)
";

/// Records the program. Returns the samples with one of these functions, in threads of their own, and
/// how many of them are truncated.
fn record_ruby(options: &str, functions: &[&str]) -> Option<(usize, usize)> {
    if !needs_root() || !has_deep_stacks() || !needs(&["ruby"]) {
        return None;
    }
    let dir = temp_dir();
    let file = dir.path().join("threads.rb");
    std::fs::write(&file, RUBY_THREADS).unwrap();
    Prof::new(&dir, &format!("record --timestamps {options} -- ruby")).arg(&file).run().ok();
    let p: Pprof = read(dir.path().join("profile.pb.gz"));
    let plain = |name: &str| name.rsplit(['#', '.']).next().unwrap().to_owned();
    let is_of_thread = |sample: &&Sample| {
        let frames = p.frames(sample);
        let has = frames.iter().any(|frame| functions.contains(&plain(frame).as_str()));
        has && sample.labels["tid"] != sample.labels["pid"]
    };
    let samples: Vec<&Sample> = p.samples.iter().filter(is_of_thread).collect();
    let is_cut =
        |sample: &&&Sample| p.frames(sample).iter().any(|frame| frame.starts_with("[truncated"));
    let count = |samples: &mut dyn Iterator<Item = &&Sample>| -> usize {
        samples.map(|sample| sample.times.len()).sum()
    };
    let (all, cut) = (count(&mut samples.iter()), count(&mut samples.iter().filter(is_cut)));
    println!("{options}: {cut} of {all} stacks are truncated");
    Some((all, cut))
}

#[test]
fn waits_of_ruby_threads_have_whole_stacks() {
    if !has_kernel_programs() {
        return skip("waits are not measured by programs in the kernel");
    }
    for options in ["-T wall", "-T lock"] {
        let found = record_ruby(options, &["take", "locked", "produce", "nap"]);
        let Some((all, cut)) = found else { return };
        assert!(all > 50 && cut * 50 <= all, "{options}: {cut} of {all}");
    }
}

/// At this rate, 256 KiB of each stack are copied.
#[test]
fn ruby_threads_have_whole_stacks_at_a_high_rate() {
    let Some((all, cut)) = record_ruby("-F 999 -e cpu-clock", &["fib"]) else { return };
    assert!(all > 100 && cut * 50 <= all, "{cut} of {all}");
}

/// To recognize node takes 0.1 s and more, as its file has 200,000 symbols.
#[test]
fn a_running_interpreter_is_recognized_before_the_first_sample() {
    const SCRIPT: &str = "function busy() { for (let i = 0; i < 1e6; i++); }
        console.log('ready');
        for (;;) busy();";
    if !needs_root() || !has_deep_stacks() || !needs(&["node"]) {
        return;
    }
    let dir = temp_dir();
    let mut command = std::process::Command::new("node");
    let (node, _) = Running::start(command.args(["-e", SCRIPT])).wait_for("ready");
    let args = format!("record -F 499 -e cpu-clock -d 1 -p {}", node.pid());
    Prof::new(&dir, &args).run().ok();
    let p: Pprof = read(dir.path().join("profile.pb.gz"));
    let of_main = |sample: &&Sample| sample.labels["tid"] == sample.labels["pid"];
    let main: Vec<&Sample> = p.samples.iter().filter(of_main).collect();
    let count = |samples: &[&Sample]| -> i64 { samples.iter().map(|s| s.values[0]).sum() };
    let has_function = |sample: &&Sample| p.frames(sample).contains(&"busy");
    let named = count(&main.iter().copied().filter(has_function).collect::<Vec<_>>());
    let all = count(&main);
    println!("{named} of {all} samples have the function");
    // One that is recognized at its first samples only is known 0.1 to 0.3 s later.
    assert!(named * 2 >= all && named > 0, "{named} of {all}");
}
