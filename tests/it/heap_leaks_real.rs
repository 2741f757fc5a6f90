//! Leaks of programs of the distribution, as valgrind reports them.

use std::process::Command;

use crate::common::{Prof, needs, read, run, temp_dir};

/// The numbers of a line such as `definitely lost: 8,325 bytes in 30 blocks`: bytes, blocks.
fn numbers(line: &str) -> [i64; 2] {
    let line = line.split_once("lost:").expect("a line of the summary").1.replace(',', "");
    let mut numbers = line.split_whitespace().filter_map(|word| word.parse().ok());
    [(); 2].map(|()| numbers.next().expect("two numbers"))
}

/// Bytes and blocks to which nothing points when a command ends, as valgrind reports them.
fn by_valgrind(command: &[&str], dir: &std::path::Path) -> [i64; 2] {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--leak-check=full", "--undef-value-errors=no"]).args(command);
    valgrind.current_dir(dir);
    let err = run::run(valgrind).ok().stderr;
    if err.contains("no leaks are possible") {
        return [0, 0];
    }
    let mut lines = err.lines();
    let mut of =
        |kind| numbers(lines.find(|l| l.contains(kind)).unwrap_or_else(|| panic!("{err}")));
    let (alone, behind) = (of("definitely lost:"), of("indirectly lost:"));
    [alone[0] + behind[0], alone[1] + behind[1]]
}

/// The same by prof.
fn by_prof(command: &[&str], dir: &std::path::Path) -> [i64; 2] {
    let args = "record --no-symbolize -T heap --leaks --heap-interval 1 --";
    let prof = command.iter().fold(Prof::new(dir, args), |prof, word| prof.arg(word));
    prof.run().ok().says(&[" 0 lost"]);
    let p = read(dir.join("profile.pb.gz"));
    ["leaked_space", "leaked_objects"].map(|kind| {
        let column = p.column(kind);
        let lost = p.samples.iter().filter(|s| s.labels.get("leak").is_some_and(|l| l == "lost"));
        lost.map(|s| s.values[column]).sum()
    })
}

/// Programs that leak nothing, a little, and structures that hang together: nothing is a leak for
/// prof that is none for valgrind. An old pointer that lies on the stack or in a register may hide
/// a block.
#[test]
fn leaks_are_at_most_those_of_valgrind() {
    if !needs(&["valgrind", "perl", "sqlite3", "openssl", "dpkg-query", "python3"]) {
        return;
    }
    let dir = temp_dir();
    let lines: String = (0..2000).map(|i| format!("{i}\n")).collect();
    std::fs::write(dir.path().join("lines"), lines).unwrap();
    let commands: [&[&str]; 11] = [
        &["perl", "-e", "my %h; $h{$_} = [$_] for 1..500; print scalar keys %h"],
        &["bash", "-c", "a=(1 2 3); for i in {1..200}; do b=$((i * 2)); done; echo ${a[1]} $b"],
        &["sed", "-n", "-e", "s/1/one/gp", "lines"],
        &["grep", "-c", "1", "lines"],
        &["sort", "-r", "lines"],
        &["tar", "cf", "lines.tar", "lines"],
        &["dpkg-query", "-l", "bash"],
        &["awk", "{ s += $1; a[$1 % 7] += 1 } END { print s, length(a) }", "lines"],
        &["openssl", "dgst", "-sha256", "lines"],
        &["sqlite3", ":memory:", "create table t(a); insert into t values(1); select * from t"],
        &[
            "/usr/bin/python3",
            "-I",
            "-S",
            "-c",
            "print(sorted({str(i): i for i in range(99)})[:3])",
        ],
    ];
    let mut leaked = 0;
    for command in commands {
        let [theirs, ours] = [by_valgrind(command, dir.path()), by_prof(command, dir.path())];
        let hidden = [0, 1].map(|i| theirs[i] - ours[i]);
        assert!(hidden.iter().all(|n| *n >= 0), "{command:?}: {ours:?} of {theirs:?}");
        assert!(hidden[1] <= 1 + theirs[1] / 20, "{command:?}: {ours:?} of {theirs:?}");
        leaked += i64::from(theirs[1] > 0);
    }
    assert!(leaked > 0, "none of them leaks: nothing was compared");
}
