use super::*;

#[test]
fn relocations_of_all_sections_together_are_limited() {
    let of = |offset: u64, addend: i64| {
        let mut relocation = Rela64 {
            r_offset: object::U64::new(LittleEndian, offset),
            r_info: object::U64::default(),
            r_addend: object::I64::new(LittleEndian, addend),
        };
        relocation.set_r_info(LittleEndian, false, 0, RELATIVE);
        relocation
    };
    let (other, right) = (of(8, 1), of(16, 2));
    let among = |n| {
        let all = std::iter::repeat_n(&other, n).chain([&right]);
        relocated(all, 0, 16..17, &FOR_FRAMES).unwrap().get(&16).copied()
    };
    assert_eq!(among(FOR_FRAMES.searched - 1), Some(2));
    assert_eq!(among(FOR_FRAMES.searched), None);
    // A table of which more words are relocations takes no memory of a recorder.
    let both = |limits| relocated([&other, &right].into_iter(), 0, 0..100, limits);
    assert!(both(&FOR_FRAMES).is_none());
    assert_eq!(both(&FOR_NAMES).unwrap().len(), 2);
}
