use super::*;

#[test]
fn root_is_not_advised_to_be_root() {
    assert!(!hidden_mappings(0).contains("root") && !too_small(0).contains("root"));
    assert!(hidden_mappings(1000).contains("record as root"));
}

fn of(file: &str, missing: &Missing<'_>) -> Vec<String> {
    Advisor::new(&[file], &Profile::default(), None).remedies(file, "abc", missing)
}

#[test]
fn a_binary_without_gaps_has_no_remedies() {
    assert!(of("/bin/ls", &Missing::default()).is_empty());
}

#[test]
fn programs_are_built_with_debug_information_and_packages_get_theirs_installed() {
    let missing =
        Missing { names: true, lines: true, ends: vec![Truncation::SmallDump], why: Vec::new() };
    let own = of("/no/such/program", &missing);
    assert!(own[0].contains("-g") && own[0].contains("do not strip"), "{own:?}");
    assert!(own[1].contains("-g dwarf"), "{own:?}");
    let lines = Missing { lines: true, ..Missing::default() };
    let url = "https://symbols.example";
    let add = "apt-get update";
    let mut debian = Advisor {
        profile: Some("x.pb.gz".into()),
        distribution: Distribution {
            servers: Some(Servers::Url(url.to_owned())),
            archive: Archive::Add(add.to_owned()),
        },
        ..Advisor::default()
    };
    let package = |name: &str, is_distributed| Package {
        name: name.to_owned(),
        version: "1.2-3x".to_owned(),
        maintainer: "Their Vendor".to_owned(),
        is_distributed,
    };
    debian.packages.insert("/bin/x".into(), package("dpkg", true));
    assert_eq!(
        debian.remedies("/bin/x", "abc", &lines),
        [
            "once, as root: apt-get update",
            "for source lines: apt-get install dpkg-dbgsym && prof symbolize --force x.pb.gz",
            "or, for all such: prof symbolize --force \
             --debuginfod=https://symbols.example x.pb.gz"
        ]
    );
    let best = |debian: &Advisor| debian.for_names("/bin/x", "abc", &missing).unwrap();
    assert_eq!(
        best(&debian),
        "prof symbolize --force --debuginfod=https://symbols.example x.pb.gz"
    );
    debian.distribution.servers = Some(Servers::Environment);
    assert_eq!(best(&debian), "prof symbolize --force x.pb.gz --debuginfod");
    debian.distribution.servers = None;
    assert_eq!(
        best(&debian),
        "apt-get install dpkg-dbgsym, once its repository is enabled \
         (prof report --coverage x.pb.gz)"
    );
    debian.distribution.archive = Archive::Unknown;
    let unknown = debian.remedies("/bin/x", "abc", &lines);
    assert!(unknown[0].starts_with("once: enable your distribution's"), "{unknown:?}");
    assert!(unknown[1].contains("apt-get install dpkg-dbgsym"), "{unknown:?}");
    debian.distribution.archive = Archive::Enabled;
    let install = "apt-get install dpkg-dbgsym && prof symbolize --force x.pb.gz";
    assert_eq!(best(&debian), install);
    debian.packages.insert("/bin/x".into(), package("libc6", true));
    let libc = debian.remedies("/bin/x", "", &lines);
    let install = "for source lines: apt-get install libc6-dbg && \
                   prof symbolize --force x.pb.gz";
    assert_eq!(libc, [install]);
    // Debian has no debug symbols of packages from others.
    debian.packages.insert("/bin/x".into(), package("nodejs", false));
    let vendor = debian.remedies("/bin/x", "abc", &lines);
    assert_eq!(
        vendor,
        ["for source lines: the debug symbols of nodejs 1.2-3x come from its vendor (Their \
          Vendor); when they are in a directory: \
          prof symbolize --force --symbol-path DIR x.pb.gz"]
    );
}

#[test]
fn each_compiler_of_run_time_code_has_its_own_advice() {
    let missing =
        Missing { names: true, ends: vec![Truncation::RunTimeCode], ..Missing::default() };
    let of = |run_times: Vec<RunTime>| {
        let run_times = [("//anon".to_owned(), run_times)].into_iter().collect();
        let advisor = Advisor { run_times, ..Advisor::default() };
        advisor.remedies("//anon", "", &missing).join("; ")
    };
    for (run_time, remedies) in [
        (RunTime::Java, &["-XX:+PreserveFramePointer", "jcmd"][..]),
        (RunTime::Php, &["opcache.jit_debug=0x10", "opcache.jit=disable"]),
        (RunTime::LuaJit, &["-joff"]),
        (RunTime::Node, &["--perf-basic-prof"]),
        (RunTime::Python, &["-X perf", "record as root"]),
    ] {
        let all = of(vec![run_time]);
        assert!(remedies.iter().all(|remedy| all.contains(remedy)), "{run_time:?}: {all}");
        let is_java = all.contains("java") || all.contains("XX:") || all.contains("jcmd");
        assert_eq!(is_java, run_time == RunTime::Java, "{run_time:?}: {all}");
    }
    // Its functions were read.
    let run_times = [("//anon".to_owned(), vec![RunTime::Node])].into_iter().collect();
    let read = Some(RunTime::Node);
    let advisor = Advisor { run_times, read, ..Advisor::default() };
    assert_eq!(advisor.remedies("//anon", "", &missing), [""; 0]);
    // Of a perf map that is missing now.
    let map = "/tmp/perf-7.map";
    let run_times = [(map.to_owned(), vec![RunTime::Php])].into_iter().collect();
    let advisor = Advisor { run_times, ..Advisor::default() };
    let missing = Missing { names: true, why: vec![&Cause::PerfMapMissing], ..Missing::default() };
    assert_eq!(
        advisor.remedies(map, "", &missing),
        ["for names: run php with -d opcache.jit_debug=0x10"]
    );
    let unknown = of(Vec::new());
    assert!(unknown.contains("keep frame pointers") && !unknown.contains("java"), "{unknown}");
}

#[test]
fn debug_symbols_of_an_interpreter_are_not_offered_as_names_of_the_program() {
    let file = "/usr/bin/php8.2";
    let package = Package {
        name: "php8.2-cli".to_owned(),
        version: "8.2".to_owned(),
        maintainer: "Debian".to_owned(),
        is_distributed: true,
    };
    let advisor = Advisor {
        packages: [(file.to_owned(), package)].into_iter().collect(),
        hiding: [file.to_owned()].into_iter().collect(),
        distribution: Distribution { servers: None, archive: Archive::Enabled },
        ..Advisor::default()
    };
    let missing = Missing { names: true, ..Missing::default() };
    let all = advisor.remedies(file, "abc", &missing);
    assert!(all[0].starts_with("PHP's functions are not shown"), "{all:?}");
    let install = "for names of the interpreter's own functions: \
                   apt-get install php8.2-cli-dbgsym (then record again)";
    assert_eq!(all[1], install);
}

#[test]
fn code_without_unwind_information_is_built_with_it() {
    let missing = Missing { ends: vec![Truncation::Uncovered], ..Missing::default() };
    let all = of("/no/such/program", &missing);
    assert!(all[0].contains("-fasynchronous-unwind-tables"), "{all:?}");
}

#[test]
fn a_recorded_reason_has_a_remedy_of_its_own() {
    let reasons = [
        (Cause::PartMissing("x.dwo".into()), "put the missing file"),
        (Cause::OtherDebugFile("/x.debug".into()), "(build ID abc)"),
        (Cause::FileMissing, "put the recorded build (build ID abc)"),
        (Cause::Changed, "record again"),
        (Cause::Damaged(".debug_line: version 7".into()), "it is damaged"),
    ];
    for (why, way) in reasons {
        let missing = Missing { lines: true, why: vec![&why], ..Missing::default() };
        let found = of("/no/such/program", &missing);
        assert!(found.len() == 1 && found[0].contains(way), "{found:?}");
        assert!(!found[0].contains("-g"), "{found:?}");
    }
}

#[test]
fn a_binary_that_was_replaced_is_searched_for_and_not_built_again() {
    let why = Cause::BuildIdDiffers { found: String::new() };
    let missing = Missing { names: true, lines: true, ends: Vec::new(), why: vec![&why] };
    assert_eq!(
        of("/no/such/program", &missing),
        ["for names: put the recorded build (build ID abc) into a directory: record again with \
          --symbol-path DIR"]
    );
}

/// Their copies do not become larger by -g dwarf,BYTES.
#[test]
fn cut_stacks_of_waits_have_a_remedy_of_their_own() {
    let remedy = |kind| {
        let profile =
            profile::Builder::new(&[("samples", "count"), (kind, "nanoseconds")]).finish(None);
        let missing = Missing { ends: vec![Truncation::SmallDump], ..Missing::default() };
        let of_binary = Advisor::new(&["/a"], &profile, None).remedies("/a", "", &missing);
        let remedy = whole_stacks_of(&profile, Truncation::SmallDump).unwrap();
        assert_eq!(of_binary.last(), Some(&remedy));
        remedy
    };
    assert!(remedy("cpu").contains("-g dwarf,65528"));
    for kind in ["wall", "delay", "syscall_time"] {
        assert!(remedy(kind).contains("-g fp") && !remedy(kind).contains("dwarf"), "{kind}");
    }
}
