//! The shortest period of a clock. No other test runs at the same time: at 100 kHz a clock can take
//! all the time of a virtual machine's CPU for seconds.

use crate::common::{Prof, read, temp_dir};

/// A clock cannot tick at this rate; each sample has the period that the kernel chose.
#[test]
fn a_period_below_the_minimum_of_the_kernel_is_raised() {
    let dir = temp_dir();
    let prof = Prof::new(&dir, "record -e cpu-clock -c 1 -g none");
    let out = prof.target("sh", "-c :").run().ok().says(&["1 ns", "10000 ns"]);
    assert_eq!(out.stderr.matches("10000 ns").count(), 1, "{}", out.stderr);
    let p = read(dir.path().join("profile.pb.gz"));
    assert_eq!(p.period, 10_000);
    assert_eq!(p.total(p.column("cpu")), 10_000 * p.total(p.column("samples")));
}
