//! The shortest period of a clock. No other test runs with it: at 100 kHz a clock can keep the CPU
//! of a virtual machine from anything else for seconds.

use crate::common::{MachineLock, Prof, read, temp_dir};

/// A clock cannot tick as often as that; each sample weighs what the kernel made of it.
#[test]
fn a_period_below_the_minimum_of_the_kernel_is_raised() {
    let _lock = MachineLock::take();
    let dir = temp_dir();
    let prof = Prof::new(&dir, "record -e cpu-clock -c 1 -g none");
    let out = prof.target("sh", "-c :").run().ok().says(&["1 ns", "10000 ns"]);
    assert_eq!(out.stderr.matches("10000 ns").count(), 1, "{}", out.stderr);
    let p = read(dir.path().join("profile.pb.gz"));
    assert_eq!(p.period, 10_000);
    assert_eq!(p.total(p.column("cpu")), 10_000 * p.total(p.column("samples")));
}
