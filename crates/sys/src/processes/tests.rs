use super::*;
use crate::record::FileId;

#[test]
fn an_unknown_process_comes_from_proc() {
    let pid = std::process::id() as i32;
    let mut table = ProcessTable::default();
    let here = an_unknown_process_comes_from_proc as fn() as usize as u64;
    assert!(table.process(pid).regions.find(ProcessAddress(here)).is_some());
    assert!(table.process(pid).main_image.is_some());
    assert!(!table.thread_mut(ThreadId::main_thread(pid)).name.is_empty());
}

#[test]
fn a_process_that_ends_keeps_the_state_it_had_at_the_start() {
    let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = child.id() as i32;
    let sleeps = || procfs::stat(pid).is_some_and(|s| s.comm == "sleep" && s.state == 'S');
    let began = Instant::now();
    while !sleeps() {
        assert!(began.elapsed() < Duration::from_secs(60), "it never slept");
    }
    let mut table = ProcessTable::default();
    table.expect(AtStart::read(&[1, pid]));
    child.kill().unwrap();
    child.wait().unwrap();
    let thread = table.thread_mut(ThreadId::main_thread(pid));
    assert_eq!(&*thread.name, "sleep");
    let process = table.process(pid);
    assert!(!process.unread && process.main_image.is_some() && !process.regions.is_empty());
    // Another process may have its number.
    let own = std::process::id() as i32;
    for forgets in [
        Record::Lost(1),
        Record::Comm { pid: own, tid: own, exec: true, name: b"x" },
        Record::Fork { pid: own, parent: 1, tid: own, parent_tid: 1, time: 0 },
    ] {
        let mut table = ProcessTable::default();
        table.expect(AtStart::read(&[own]));
        table.apply(&forgets);
        assert!(table.at_start.take(own).is_none(), "{forgets:?}");
    }
}

#[test]
fn a_process_that_is_gone_has_unread_mappings() {
    let mut table = ProcessTable::default();
    let gone = table.process(i32::MAX);
    assert!(gone.unread && !gone.hidden);
    assert!(!table.process(std::process::id() as i32).unread);
}

#[test]
fn a_process_is_read_again_when_records_were_lost() {
    let pid = std::process::id() as i32;
    let here = a_process_is_read_again_when_records_were_lost as fn() as usize as u64;
    let mut table = ProcessTable::default();
    table.apply(&Record::Comm { pid, tid: pid, exec: true, name: b"before" });
    assert!(table.process(pid).regions.find(ProcessAddress(here)).is_none());
    assert_eq!(&*table.thread_mut(ThreadId::main_thread(pid)).name, "before");
    table.apply(&Record::Lost(1));
    assert!(table.process(pid).regions.find(ProcessAddress(here)).is_some());
    assert_ne!(&*table.thread_mut(ThreadId::main_thread(pid)).name, "before");
    // Of one that has ended, the recorded state stays.
    let gone = i32::MAX;
    table.apply(&Record::Comm { pid: gone, tid: gone, exec: true, name: b"gone" });
    table.counted = None;
    table.apply(&Record::Lost(1));
    assert_eq!(&*table.process(gone).name, "gone");
    assert!(table.may_lack_mappings(gone) && !table.may_lack_mappings(pid));
    // Right after a loss the next one is delayed, but not forgotten.
    let before = table.losses;
    table.apply(&Record::Lost(1));
    table.process(gone);
    assert_eq!((table.losses, table.lost), (before, true));
    table.counted = None;
    table.process(gone);
    assert_eq!((table.losses, table.lost), (before + 1, false));
}

/// Counters of a command start within its `execve`, before the record of it.
#[test]
fn samples_before_the_record_of_an_expected_execve_are_of_the_program_before() {
    let mut table = ProcessTable::default();
    let pid = std::process::id() as i32;
    let ip = std::process::id as fn() -> u32 as usize as u64;
    table.expect_exec(pid);
    assert!(!table.is_current(pid, ip, true));
    table.apply(&Record::Comm { pid, tid: pid, exec: true, name: b"sh" });
    assert!(!table.is_current(pid, ip, true));
    assert!(table.is_current(pid, ip, false), "a sample of user code");
    assert!(table.is_current(pid, ip, true));
}

#[test]
fn exec_forgets_and_fork_copies() {
    let mut table = ProcessTable::default();
    let parent = i32::MAX - 1;
    let child = i32::MAX;
    table.apply(&Record::Comm { pid: parent, tid: parent, exec: true, name: b"sh" });
    let mmap = Mmap {
        pid: parent,
        tid: parent,
        start: 0x1000,
        len: 0x1000,
        offset: 0,
        prot: 5,
        build_id: None,
        file: FileId { device: 1, inode: 3 },
        path: b"/bin/sh",
    };
    table.apply(&Record::Mmap(mmap));
    table.apply(&Record::Fork { pid: child, parent, tid: child, parent_tid: parent, time: 1 });
    assert!(table.process(child).regions.find(ProcessAddress(0x1800)).is_some());
    assert_eq!(table.born_alive().collect::<Vec<_>>(), [child]);
    table.apply(&Record::Comm { pid: child, tid: child, exec: true, name: b"ls" });
    assert!(table.process(child).regions.find(ProcessAddress(0x1800)).is_none());
    assert!(table.process(parent).regions.find(ProcessAddress(0x1800)).is_some());
    assert_eq!(&*table.thread_mut(ThreadId::main_thread(child)).name, "ls");
    let before = table.thread_mut(ThreadId::main_thread(child)).version;
    assert_eq!(table.thread_mut(ThreadId::main_thread(child)).version, before);
    table.apply(&Record::Comm { pid: child, tid: child, exec: false, name: b"renamed" });
    assert_ne!(table.thread_mut(ThreadId::main_thread(child)).version, before);
    table.apply(&Record::Exit { pid: child, tid: child, time: 2 });
    assert_eq!(table.born_alive().count(), 0);
}

#[test]
fn a_program_started_by_the_dynamic_linker_is_the_main_binary() {
    let mut table = ProcessTable::default();
    let pid = i32::MAX;
    table.apply(&Record::Comm { pid, tid: pid, exec: true, name: b"ld-linux-x86-64" });
    let before = table.thread_mut(ThreadId::main_thread(pid)).version;
    let mut start = 0x1000;
    let mut map = |table: &mut ProcessTable, path: &[u8]| {
        start += 0x1000;
        let file = FileId { device: 1, inode: start };
        let (len, offset, prot, build_id) = (0x1000, 0, 5, None);
        let mmap = Mmap { pid, tid: pid, start, len, offset, prot, build_id, file, path };
        table.apply(&Record::Mmap(mmap));
        let main = table.process(pid).main_image.unwrap();
        table.images.get(main).path.clone()
    };
    let linker = "/lib64/ld-linux-x86-64.so.2";
    assert_eq!(map(&mut table, linker.as_bytes()), linker);
    assert_eq!(map(&mut table, b"[vdso]"), linker);
    assert_eq!(map(&mut table, b"/home/a/prog"), "/home/a/prog");
    assert_eq!(map(&mut table, b"/lib/libc.so.6"), "/home/a/prog");
    assert_eq!(&*table.process(pid).name, "prog");
    assert_ne!(table.thread_mut(ThreadId::main_thread(pid)).version, before);
}
