use super::*;

const NONE: FileId = FileId { device: 0, inode: 0 };

fn own_hit() -> (Hit, String, FileId) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let exe = std::fs::read_link("/proc/self/exe").unwrap();
    let exe = exe.to_str().unwrap().to_owned();
    let line = maps
        .lines()
        .filter_map(super::super::maps::parse_line)
        .find(|m| m.path == exe && m.executable)
        .unwrap();
    let hit = Hit { pid: std::process::id() as i32, start: line.start, end: line.end };
    (hit, exe.clone(), line.file)
}

#[test]
fn a_file_found_in_two_ways_is_one_image() {
    let (hit, exe, inode) = own_hit();
    let mut images = Images::default();
    let by_inode = images.intern(hit.pid, &exe, &[], inode);
    assert_eq!(images.load(by_inode, hit), by_inode);
    let build_id = images.get(by_inode).build_id.clone();
    if build_id.is_empty() {
        return crate::testing::skip("this test was built without a build ID");
    }
    let by_id = images.intern(hit.pid, &exe, &build_id, NONE);
    assert_ne!(by_id, by_inode);
    assert_eq!(images.load(by_id, hit), by_inode);
    assert!(images.get(by_inode).path_now().is_none());
}

#[test]
fn another_build_is_not_taken_for_the_file() {
    let (mut hit, exe, _) = own_hit();
    let mut images = Images::default();
    let id = images.intern(hit.pid, &exe, &[1, 2, 3], NONE);
    hit.start = 0; // so that map_files does not have it
    images.load(id, hit);
    assert!(matches!(images.get(id).state, State::Unreadable(_)));
}

#[test]
fn another_file_of_the_same_name_is_not_taken_for_it() {
    let (_, exe, id) = own_hit();
    // No such process: only the path is left.
    let gone = Hit { pid: i32::MAX, start: 0, end: 0 };
    let other = [FileId { inode: id.inode + 1, ..id }, FileId { device: id.device + 1, ..id }];
    for id in other {
        let mut images = Images::default();
        let image = images.intern(gone.pid, &exe, &[], id);
        images.load(image, gone);
        assert!(matches!(images.get(image).state, State::Unreadable(_)), "{id:?}");
    }
}

#[test]
fn another_file_at_the_addresses_is_not_taken_for_it() {
    let (hit, exe, id) = own_hit();
    let other = FileId { inode: id.inode + 1, ..id };
    for (build_id, id) in [(&[1, 2, 3][..], NONE), (&[], other)] {
        let mut images = Images::default();
        let image = images.intern(hit.pid, &exe, build_id, id);
        images.load(image, hit);
        assert!(matches!(images.get(image).state, State::Unreadable(_)), "{id:?}");
    }
}

#[test]
fn a_file_that_one_process_does_not_lead_to_is_tried_through_the_next() {
    let (hit, _, id) = own_hit();
    let mut images = Images::default();
    // Only the addresses lead to it.
    let image = images.intern(1, "/removed", &[], id);
    for gone in 0..2 {
        images.load(image, Hit { pid: i32::MAX - gone, start: 0, end: 0 });
        assert!(matches!(images.get(image).state, State::Unreadable(_)));
    }
    images.load(image, hit);
    assert!(matches!(images.get(image).state, State::Elf(_)));
    assert!(!images.get(image).has_changed());
}

#[test]
fn a_file_that_has_come_back_is_tried_again_after_a_while() {
    let (hit, _, id) = own_hit();
    let mut images = Images::default();
    let image = images.intern(hit.pid, "/removed", &[], id);
    images.load(image, Hit { start: 0, end: 0, ..hit });
    assert!(!images.get(image).attempts.may_succeed(hit.pid));
    let last = &mut images.images[image as usize].attempts.time;
    *last = last.and_then(|time| time.checked_sub(Duration::from_secs(1)));
    images.load(image, hit);
    assert!(matches!(images.get(image).state, State::Elf(_)));
}

#[test]
fn files_that_are_not_kept_open_are_found_again() {
    let (hit, _, id) = own_hit();
    let mut images = Images { spare_files: Some(0), ..Images::default() };
    // Its path leads nowhere: only the mapping is left.
    let image = images.intern(hit.pid, "/removed", &[], id);
    images.load(image, hit);
    let State::Elf(loaded) = &images.get(image).state else { panic!("not opened") };
    assert!(loaded.file.is_none());
    assert!(!images.get(image).has_changed());
    match images.get(image).path_now() {
        Some(path) => assert!(loaded.is(&foreign::resolve_link(&path).unwrap())),
        None => crate::testing::skip("only root may open the files of mappings"),
    }
}

#[test]
fn a_file_that_is_not_there_is_no_file_that_was_replaced() {
    let of = |path: &str, id| {
        let mut images = Images::default();
        let image = images.intern(i32::MAX, path, &[], id);
        images.load(image, Hit { pid: i32::MAX, start: 0, end: 0 });
        match images.get(image).state {
            State::Unreadable(why) => (why, images.get(image).has_changed()),
            _ => panic!("opened"),
        }
    };
    let (_, exe, id) = own_hit();
    assert_eq!(of("/nowhere", id), (NotOpened::Gone, false));
    assert_eq!(of(&exe, FileId { inode: id.inode + 1, ..id }), (NotOpened::Replaced, true));
}

#[test]
fn the_vdso_unwinds() {
    let mut images = Images::default();
    let id = images.intern(1, "[vdso]", &[], NONE);
    assert_eq!(images.intern(2, "[vdso]", &[], NONE), id);
    images.load(id, Hit { pid: 1, start: 0, end: 0 });
    let State::Elf(loaded) = &images.get(id).state else { panic!("no vdso") };
    assert!(loaded.elf.can_unwind());
}

#[test]
fn memory_without_a_file_belongs_to_its_process() {
    let mut images = Images::default();
    assert_ne!(images.intern(1, "", &[], NONE), images.intern(2, "", &[], NONE));
    let id = FileId { device: 1, inode: 7 };
    assert_eq!(images.intern(1, "/lib/x", &[], id), images.intern(2, "/lib/x", &[], id));
}
