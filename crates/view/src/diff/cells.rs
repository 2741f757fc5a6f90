//! Values and variances of each row in each recording.

use rustc_hash::FxHashMap;

use crate::quality::Variances;
use crate::row_sums::{RowSums, Sum};
use crate::{View, key_ids, label_text};

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

    /// Adds recording number `run`; `ids`: the frame of each frame of its view, as several may have
    /// one name.
    pub(super) fn add(&mut self, run: usize, view: &View, ids: &[u32], labels: &[String]) {
        let variances = Variances::new(view.profile, view.type_index);
        let mut sums = RowSums::<Cell>::new(ids.iter().max().map_or(0, |&id| id as usize + 1));
        for (group, samples) in self.grouped(view, labels) {
            for sample in view.samples_of(&samples) {
                let variance = variances.get(view.profile.values_of(sample.row));
                let amount = Estimate { value: sample.value, variance };
                sums.add_sample(&view.frames, &sample, amount, |f| Some(ids[f as usize]));
                self.all[run].add_self(amount);
            }
            for (frame, cell) in sums.take() {
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

/// The value of a sample.
#[derive(Clone, Copy)]
struct Estimate {
    value: i64,
    variance: f64,
}

impl Sum<Estimate> for Cell {
    fn add_self(&mut self, amount: Estimate) {
        self.values[0] = self.values[0].saturating_add(amount.value);
        self.variances[0] += amount.variance;
    }

    fn add_total(&mut self, amount: Estimate) {
        self.values[1] = self.values[1].saturating_add(amount.value);
        self.variances[1] += amount.variance;
    }
}
