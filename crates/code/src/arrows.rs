//! Placement of arrows for the jumps of a piece of code.

use std::collections::BTreeMap;

/// A jump with the lane that its arrow is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrow {
    /// Index of the instruction that jumps.
    pub from: u32,
    /// Index of the instruction that it jumps to.
    pub to: u32,
    /// Distance from the code, from 0.
    pub lane: usize,
}

/// Arrows of jumps (from, to) in at most `lanes` lanes, by their first instruction. Short ones are
/// next to the code. Those for which no lane is free, and jumps of an instruction to itself, are
/// left out.
pub fn arrows(jumps: &[(u32, u32)], lanes: usize) -> Vec<Arrow> {
    let bounds = |&(from, to): &(u32, u32)| (from.min(to), from.max(to));
    let mut sorted: Vec<(u32, u32)> = jumps.iter().copied().filter(|(a, b)| a != b).collect();
    sorted.sort_unstable_by_key(|jump| {
        let (first, last) = bounds(jump);
        (last - first, first, *jump)
    });
    sorted.dedup();
    // Of each lane: last instruction by the first one.
    let mut taken: Vec<BTreeMap<u32, u32>> = vec![BTreeMap::new(); lanes];
    let mut arrows = Vec::new();
    for jump in sorted {
        let (first, last) = bounds(&jump);
        let is_free = |lane: &BTreeMap<u32, u32>| {
            lane.range(..=last).next_back().is_none_or(|(_, end)| *end < first)
        };
        // An arrow around others is in a lane beyond theirs.
        let beyond = (0..lanes).rev().find(|&lane| !is_free(&taken[lane]));
        let lane = beyond.map_or(0, |lane| lane + 1);
        if lane < lanes {
            taken[lane].insert(first, last);
            arrows.push(Arrow { from: jump.0, to: jump.1, lane });
        }
    }
    arrows.sort_unstable_by_key(|arrow| (arrow.from.min(arrow.to), arrow.lane));
    arrows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_arrows_are_next_to_the_code() {
        let lane = |jumps: &[(u32, u32)]| -> Vec<(u32, u32, usize)> {
            arrows(jumps, 2).iter().map(|a| (a.from, a.to, a.lane)).collect()
        };
        assert_eq!(lane(&[(9, 0), (2, 4), (6, 7)]), [(9, 0, 1), (2, 4, 0), (6, 7, 0)]);
        assert_eq!(lane(&[(3, 3)]), []);
        // The third would cross both lanes.
        assert_eq!(lane(&[(0, 10), (1, 9), (2, 8)]), [(1, 9, 1), (2, 8, 0)]);
        assert_eq!(lane(&[(0, 4), (4, 6)]), [(0, 4, 1), (4, 6, 0)]);
    }

    #[test]
    fn any_number_of_jumps_is_placed() {
        let jumps: Vec<(u32, u32)> = (0..20_000).map(|i| (i, 19_999 - i)).collect();
        assert!(arrows(&jumps, 4).len() <= 4);
    }
}
