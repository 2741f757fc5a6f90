use super::super::testing::skip_programs;
use super::*;
use sys::testing::skip_hardware;

#[test]
fn what_is_copied_costs_no_more_than_its_share() {
    assert_eq!(cap(99), Some(DEEPEST));
    assert_eq!(cap(1), Some(DEEPEST));
    assert_eq!(cap(999), Some(256 << 10));
    assert_eq!(cap(4000), Some(64 << 10));
    assert_eq!(cap(0), Some(64 << 10));
    assert_eq!(cap(10_000), None);
    for hertz in [1, 99, 199, 999, 4999, 9999] {
        let cap = u64::from(cap(hertz).unwrap_or(0));
        assert!(cap / 1024 * NANOS_PER_KIB * hertz <= SHARE, "{hertz}");
    }
}

/// True if this user may load programs, on a kernel with the features that they need.
fn may_load() -> bool {
    match check() {
        Ok(()) => return true,
        Err(why) if why.raw_os_error() == Some(libc::EPERM) => {
            skip_programs("this user may not load programs into the kernel");
        }
        Err(why) if why.kind() == io::ErrorKind::NotFound => skip_programs(&why.to_string()),
        Err(why) => panic!("{why}"),
    }
    false
}

/// Also for the largest copy, whose iterations the verifier may have to follow one by one.
#[test]
fn the_kernel_accepts_the_program_with_each_end_of_the_loop() {
    if !may_load() {
        return;
    }
    let deep = Deep::new(DEEPEST).unwrap();
    let load = |end| {
        let program = deep.program(sys::record::MAX_DUMP, None, end);
        syscall::load_for_samples("prof_deep", &program)
    };
    load(LoopEnd::Counter).unwrap();
    if let Err(why) = load(LoopEnd::MayGoto) {
        // Linux 6.9.
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = release.split(['.', '-']).map(|n| n.parse::<u32>().unwrap());
        let version = (numbers.next().unwrap(), numbers.next().unwrap());
        assert!(version < (6, 9), "{why}");
        skip_hardware("the kernel has no may_goto");
    }
}

/// Number of instructions that the verifier has followed, of a program that is loaded.
fn verified(program: &OwnedFd) -> u64 {
    let info = format!("/proc/self/fdinfo/{}", program.as_raw_fd());
    let info = std::fs::read_to_string(info).unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix("verified_insns:"));
    line.unwrap().trim().parse().unwrap()
}

/// Loops over frames of unknown number must not be followed round by round.
#[test]
fn walks_add_less_than_20_000_instructions_to_verify() {
    if !may_load() {
        return;
    }
    let mut deep = Deep::new(DEEPEST).unwrap();
    let load = |deep: &Deep| {
        let program = deep.program(sys::record::MAX_DUMP, None, LoopEnd::MayGoto);
        let begun = std::time::Instant::now();
        let loaded = syscall::load_for_samples("prof_deep", &program);
        (loaded, program.len(), begun.elapsed())
    };
    let (Ok(without), length, _) = load(&deep) else {
        return skip_hardware("the kernel has no may_goto");
    };
    deep.set_walks(Arc::new(WalkMaps::new(4096).unwrap()));
    let (with, whole, took) = load(&deep);
    let added = verified(&with.unwrap()).saturating_sub(verified(&without));
    eprintln!("{} instructions, {added} verified, {took:?} for the program", whole - length);
    assert!((1..20_000).contains(&added), "{added}");
}
