//! perf's options of reading, on a recording of real programs.

use std::path::Path;

use crate::common::{Prof, needs, temp_dir};

/// Records three programs with `perf`'s options, and returns false if one is missing.
fn record(dir: &Path) -> bool {
    if !needs(&["gzip", "python3"]) {
        return false;
    }
    let line =
        "gzip -c /usr/bin/python3 | gzip -dc | python3 -c 'import sys; sys.stdin.buffer.read()'";
    Prof::new(dir, "record -q -F 999 -o f.pb.gz --").args("sh -c").arg(line).run().ok();
    true
}

/// The text of a report.
fn report(dir: &Path, args: &str) -> String {
    Prof::new(dir, "report --stdio -i f.pb.gz").args(args).run().ok().text()
}

#[test]
fn options_of_perf_print_what_those_of_prof_do() {
    let dir = temp_dir();
    if !record(dir.path()) {
        return;
    }
    for (perf, prof) in [
        ("-g caller,0.5", "-g --percent-limit 0.5"),
        ("-g graph,2,callee", "-g callee --percent-limit 2"),
        ("--call-graph=fractal,0.5,10,caller,function,percent", "-g --percent-limit 0.5 -n 10"),
        ("-g none", ""),
        ("-F overhead,comm,dso,sym -g none", "--columns self% --sort process,binary,symbol"),
        ("-F overhead_children,period", "--columns total%,self"),
        ("-F sample,pid -g none", "--columns samples:self --sort pid"),
        ("--show-nr-samples", "--columns self,self%,total,total%,samples:self"),
        ("--show-nr-samples --no-children", "--columns self,self%,samples:self"),
        ("--comms gzip", "--process gzip"),
        ("--dsos libc.so.6 -s dso", "--binary libc.so.6 -s binary"),
        ("--symbols __libc_start_main", "--focus ^__libc_start_main$"),
        ("-s overhead_children", "--cum"),
    ] {
        assert_eq!(report(dir.path(), perf), report(dir.path(), prof), "{perf}");
    }
}

#[test]
fn lists_of_names_are_exact() {
    let dir = temp_dir();
    if !record(dir.path()) {
        return;
    }
    let rows = report(dir.path(), "-s comm --comms python3,gzi -F overhead");
    assert!(rows.contains("python3") && !rows.contains("  gzip"), "{rows}");
    let none = Prof::new(dir.path(), "report --stdio -i f.pb.gz --comms gzi").run().ok();
    assert!(none.stderr.contains("no process"), "{}", none.stderr);
}

#[test]
fn files_and_text_are_options_of_perf_where_perf_has_them() {
    let dir = temp_dir();
    if !record(dir.path()) {
        return;
    }
    let run = |args: &str| Prof::new(dir.path(), args).run().ok().text();
    assert_eq!(
        run("annotate --stdio --asm -i f.pb.gz -s __libc_start_main"),
        run("annotate --asm __libc_start_main f.pb.gz")
    );
    assert_eq!(
        run("annotate --asm -s __libc_start_main f.pb.gz"),
        run("annotate --asm __libc_start_main f.pb.gz")
    );
    assert_eq!(run("export --to collapsed -i f.pb.gz"), run("export --to collapsed f.pb.gz"));
    assert_eq!(run("graph --input f.pb.gz"), run("graph f.pb.gz"));
    assert!(run("top --stdio --iterations 1 -n 1").contains("self%"));
}

#[test]
fn options_that_prof_does_not_have_name_those_that_it_has() {
    let dir = temp_dir();
    for (args, instead) in [
        ("report -D", "--traces"),
        ("report --stats", "--header"),
        ("report --tasks", "--sort process"),
        ("report -w 10,20", "as wide as their contents"),
        ("report --max-stack 10", "--show-from"),
        ("report -g graph,0.5,caller,address", "--granularity addresses"),
        ("report -F overhead,comm -g", "-g none"),
        ("report -n", "a value is required"),
        ("report -n f.pb.gz", "--show-nr-samples"),
        ("annotate -M intel main", "AT&T"),
        ("diff -c ratio a b", "the change"),
        ("top -K", "--hide"),
    ] {
        Prof::new(dir.path(), args).run().refused(2, &[instead]);
    }
}
