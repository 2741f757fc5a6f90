//! Values and variances of each row in each recording.

use rustc_hash::FxHashMap;

use crate::quality::Variances;
use crate::{View, ViewSample, key_ids, label_text};

/// A row of one recording.
#[derive(Clone, Copy, Default)]
pub(super) struct Cell {
    /// Self value and total.
    pub(super) values: [i64; 2],
    /// Sampling variance of both.
    pub(super) variances: [f64; 2],
}

/// Rows × recordings.
pub(super) struct Cells {
    /// Label values of each group.
    pub(super) groups: Vec<Vec<Option<String>>>,
    /// Sum of the self values of each recording, with its variance.
    pub(super) all: Vec<Cell>,
    group_index: FxHashMap<Vec<Option<String>>, u32>,
    index: FxHashMap<(u32, u32), u32>,
    keys: Vec<(u32, u32)>,
    cells: Vec<Cell>,
    before: usize,
}

impl Cells {
    pub(super) fn new(before: usize, after: usize) -> Cells {
        Cells {
            groups: Vec::new(),
            group_index: FxHashMap::default(),
            all: vec![Cell::default(); before + after],
            index: FxHashMap::default(),
            keys: Vec::new(),
            cells: Vec::new(),
            before,
        }
    }

    /// Group and frame of each row.
    pub(super) fn keys(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.keys.iter().copied()
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The cells of a row: one for each recording, those before first.
    pub(super) fn runs(&self, row: usize) -> &[Cell] {
        let runs = self.all.len();
        &self.cells[row * runs..(row + 1) * runs]
    }

    /// Self values and totals before and after.
    pub(super) fn sums(&self, row: usize) -> [[i64; 2]; 2] {
        let (before, after) = self.runs(row).split_at(self.before);
        let sum = |cells: &[Cell], which: usize| {
            cells.iter().fold(0i64, |sum, cell| sum.saturating_add(cell.values[which]))
        };
        [0, 1].map(|which| [sum(before, which), sum(after, which)])
    }

    /// Adds recording number `run`, whose frames have these ids.
    pub(super) fn add(&mut self, run: usize, view: &View, ids: &[u32], labels: &[String]) {
        let variances = Variances::new(view.profile, view.type_index);
        let mut dense = Dense::new(ids);
        for (group, samples) in self.grouped(view, labels) {
            for sample in view.samples_of(&samples) {
                let variance = variances.get(view.profile.values_of(sample.row));
                dense.add(view, &sample, variance);
                let all = &mut self.all[run];
                all.values[0] = all.values[0].saturating_add(sample.value);
                all.variances[0] += variance;
            }
            for (frame, cell) in dense.take() {
                let row = self.row(group, frame);
                let runs = self.all.len();
                self.cells[row * runs + run] = cell;
            }
        }
    }

    fn row(&mut self, group: u32, frame: u32) -> usize {
        let next = self.keys.len() as u32;
        let row = *self.index.entry((group, frame)).or_insert(next);
        if row == next {
            self.keys.push((group, frame));
            self.cells.resize(self.cells.len() + self.all.len(), Cell::default());
        }
        row as usize
    }

    /// The samples by their label values.
    fn grouped(&mut self, view: &View, labels: &[String]) -> Vec<Group> {
        let keys = key_ids(view.profile, labels);
        let table = &view.profile.labels;
        let mut by_set: FxHashMap<u32, usize> = FxHashMap::default();
        let mut by_group: FxHashMap<u32, usize> = FxHashMap::default();
        let mut out: Vec<Group> = Vec::new();
        for sample in view.samples() {
            let at = *by_set.entry(sample.labels.0).or_insert_with(|| {
                let value = |key: &Option<profile::StrId>| {
                    let value = table.value(sample.labels, (*key)?)?;
                    Some(label_text(view.profile, value))
                };
                let values: Vec<Option<String>> = keys.iter().map(value).collect();
                let groups = &mut self.groups;
                let group = *self.group_index.entry(values).or_insert_with_key(|values| {
                    groups.push(values.clone());
                    groups.len() as u32 - 1
                });
                *by_group.entry(group).or_insert_with(|| {
                    out.push((group, Vec::new()));
                    out.len() - 1
                })
            });
            out[at].1.push(sample.row as u32);
        }
        out
    }
}

/// The number of a group, and the numbers of its samples.
type Group = (u32, Vec<u32>);

/// Sums by frame of one recording.
struct Dense<'a> {
    /// The frame of each frame of the recording's view: several may have one name.
    ids: &'a [u32],
    cells: Vec<Cell>,
    /// The last sample in which a frame was counted.
    stamps: Vec<u64>,
    stamp: u64,
    /// Frames with values.
    touched: Vec<u32>,
}

impl<'a> Dense<'a> {
    fn new(ids: &'a [u32]) -> Dense<'a> {
        let frames = ids.iter().max().map_or(0, |&id| id as usize + 1);
        let cells = vec![Cell::default(); frames];
        Dense { ids, cells, stamps: vec![0; frames], stamp: 0, touched: Vec::new() }
    }

    fn add(&mut self, view: &View, sample: &ViewSample, variance: f64) {
        self.stamp += 1;
        let mut is_leaf = true;
        let none = [view.frames.no_stack];
        let none: &[u32] = if sample.stack.is_empty() { &none } else { &[] };
        let frames = sample.stack.iter().flat_map(|&location| view.frames.at(location));
        for &frame in frames.chain(none) {
            let frame = self.ids[frame as usize];
            let index = frame as usize;
            let cell = &mut self.cells[index];
            if is_leaf {
                cell.values[0] = cell.values[0].saturating_add(sample.value);
                cell.variances[0] += variance;
                is_leaf = false;
            }
            if self.stamps[index] != self.stamp {
                if self.stamps[index] == 0 {
                    self.touched.push(frame);
                }
                self.stamps[index] = self.stamp;
                cell.values[1] = cell.values[1].saturating_add(sample.value);
                cell.variances[1] += variance;
            }
        }
    }

    /// The cells with values, which are then empty.
    fn take(&mut self) -> Vec<(u32, Cell)> {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        for &frame in &touched {
            self.stamps[frame as usize] = 0;
        }
        touched.into_iter().map(|f| (f, std::mem::take(&mut self.cells[f as usize]))).collect()
    }
}
