use super::*;

#[test]
fn rows_far_from_values_are_left_out() {
    let shown = |with_value: &[usize]| -> String {
        let rows = shown_rows(20, with_value, 1, 3);
        rows.into_iter().map(|shown| if shown { '#' } else { '.' }).collect()
    };
    assert_eq!(shown(&[]), "....................");
    assert_eq!(shown(&[0, 19]), "##................##");
    assert_eq!(shown(&[3, 8]), "..########..........");
    assert_eq!(shown(&[3, 10]), "..###....###........");
    assert_eq!(shown(&[3, 3, 99]), "..###...............");
}

#[test]
fn values_of_precise_events_are_not_moved() {
    assert!(skids("cpu", "nanoseconds") && skids("cycles", "count") && skids("cycles:u", "count"));
    assert!(!skids("cycles:pp", "count") && !skids("alloc_space", "bytes"));
}
