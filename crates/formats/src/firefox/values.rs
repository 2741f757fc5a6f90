//! Values and times of samples, and of allocations.

use std::collections::HashMap;

use super::file::{Column, FileContent, FileSamples, OwnMeta};
use super::invalid;
use super::tables::number;
use crate::assembly::{Assembly, ColumnValue};
use crate::error::ReadError;

/// What weights and times of the samples of a file mean.
pub(super) struct Values {
    /// Nanoseconds between two samples.
    interval: f64,
    /// Nanoseconds in a unit of CPU time; `None`: no sample has CPU time in a unit of time.
    cpu_unit: Option<f64>,
    own: Option<OwnMeta>,
}

/// A sample of a table.
pub(super) struct Row<'r> {
    pub number: usize,
    /// Row of the table of stacks.
    pub stack: Option<f64>,
    pub values: &'r [ColumnValue],
    /// In microseconds.
    pub time: Option<u64>,
}

/// The rows of a table of samples.
pub(super) struct Rows {
    next: usize,
    count: usize,
    weight: WeightType,
    /// The column of CPU time, and the nanoseconds in a unit of it.
    cpu: Option<ColumnUnit>,
    /// The column of the time that samples represent, and the nanoseconds of one.
    duration: Option<ColumnUnit>,
    has_times: bool,
    /// Milliseconds at the last row.
    time: f64,
    values: Vec<ColumnValue>,
}

/// A column whose values are numbers of a unit.
#[derive(Clone, Copy)]
struct ColumnUnit {
    column: usize,
    unit: f64,
}

/// The sample type of weights.
struct WeightType {
    column: usize,
    unit: f64,
}

impl Values {
    pub(super) fn new(file: &FileContent) -> Values {
        let meta = &file.meta;
        let has_cpu = |samples: &FileSamples| samples.cpu.iter().flatten().any(|&n| n > 0.0);
        let has_cpu = file.threads.iter().any(|thread| has_cpu(&thread.samples));
        let cpu_unit = meta.sample_units.as_ref().and_then(|units| match units.cpu.as_str() {
            "ns" => Some(1.0),
            "µs" | "μs" => Some(1e3),
            _ => None,
        });
        let cpu_unit = cpu_unit.filter(|_| has_cpu);
        let own = meta.prof.clone();
        Values { interval: meta.interval.unwrap_or_default() * 1e6, cpu_unit, own }
    }

    /// Nanoseconds of CPU time between two samples; `None`: the file has no CPU time.
    pub(super) fn period(&self) -> Option<i64> {
        self.cpu_unit.map(|_| self.interval as i64).filter(|&period| period > 0)
    }

    /// The rows of a table of samples.
    pub(super) fn rows(
        &self,
        samples: &FileSamples,
        all: &mut Assembly,
    ) -> Result<Rows, ReadError> {
        let count = samples.stack.len();
        for column in [&samples.weight, &samples.time, &samples.time_deltas, &samples.cpu] {
            check_length(column, count)?;
        }
        let weight = self.weight(samples, all);
        let cpu = self.cpu_unit.map(|unit| {
            let column = all.type_column("cpu", "nanoseconds");
            ColumnUnit { column, unit }
        });
        let is_count = samples.weight_type.as_deref().is_none_or(|kind| kind == "samples");
        let has_duration =
            is_count && self.cpu_unit.is_none() && self.own.is_none() && self.interval > 0.0;
        let duration = has_duration.then(|| {
            let column = all.type_column("time", "nanoseconds");
            ColumnUnit { column, unit: self.interval }
        });
        let has_times = self.own.as_ref().is_none_or(|own| own.has_times)
            && (!samples.time.is_empty() || !samples.time_deltas.is_empty());
        let (next, time, values) = (0, 0.0, Vec::new());
        Ok(Rows { next, count, weight, cpu, duration, has_times, time, values })
    }

    fn weight(&self, samples: &FileSamples, all: &mut Assembly) -> WeightType {
        let (kind, name, unit) = match samples.weight_type.as_deref() {
            Some("tracing-ms") => ("time", "nanoseconds", 1e6),
            Some("bytes") => ("space", "bytes", 1.0),
            _ => ("samples", "count", 1.0),
        };
        let column = match &self.own {
            Some(own) => all.type_column(&own.kind, &own.unit),
            None => all.type_column(kind, name),
        };
        WeightType { column, unit }
    }
}

impl Rows {
    /// The next row.
    pub(super) fn next(&mut self, samples: &FileSamples) -> Result<Option<Row<'_>>, ReadError> {
        if self.next == self.count {
            return Ok(None);
        }
        let row = self.next;
        self.next += 1;
        self.values.clear();
        let weight = number(&samples.weight, row).unwrap_or(1.0);
        self.push(self.weight.column, weight * self.weight.unit);
        if let Some(ColumnUnit { column, unit }) = self.duration {
            self.push(column, weight * unit);
        }
        if let Some(ColumnUnit { column, unit }) = self.cpu {
            self.push(column, number(&samples.cpu, row).unwrap_or(0.0) * unit);
        }
        self.time = match number(&samples.time_deltas, row) {
            Some(delta) => self.time + delta,
            None => number(&samples.time, row).unwrap_or(self.time),
        };
        let time = self.has_times.then(|| (self.time * 1e3).round() as u64);
        let stack = number(&samples.stack, row);
        Ok(Some(Row { number: row, stack, values: &self.values, time }))
    }

    fn push(&mut self, column: usize, value: f64) {
        let value = value.round() as i64;
        if value != 0 {
            self.values.push(ColumnValue { column, value });
        }
    }
}

fn check_length(column: &Column, count: usize) -> Result<(), ReadError> {
    let length = column.len();
    if length == count || length == 0 {
        return Ok(());
    }
    Err(invalid(format!("a thread has {count} stacks of samples, but {length} values of them")))
}

/// The columns of allocations.
struct AllocationColumns {
    objects: usize,
    space: usize,
    /// Those of allocations that were not freed; `None`: the file does not tell.
    inuse_objects: Option<usize>,
    inuse_space: Option<usize>,
}

/// An allocation.
pub(super) struct Allocation {
    /// Row of the table of stacks.
    pub stack: Option<f64>,
    pub values: Vec<ColumnValue>,
}

/// The allocations of a table, which has the releases of memory, too: their weights are negative.
pub(super) struct Allocations<'f> {
    samples: &'f FileSamples,
    columns: AllocationColumns,
    next: usize,
    /// By rows.
    is_freed: Vec<bool>,
}

impl<'f> Allocations<'f> {
    pub(super) fn new(samples: &'f FileSamples, all: &mut Assembly) -> Result<Self, ReadError> {
        let count = samples.stack.len();
        check_length(&samples.weight, count)?;
        check_length(&samples.memory_address, count)?;
        let has_addresses = !samples.memory_address.is_empty();
        let mut column = |kind, unit| all.type_column(kind, unit);
        let columns = AllocationColumns {
            objects: column("alloc_objects", "count"),
            space: column("alloc_space", "bytes"),
            inuse_objects: has_addresses.then(|| column("inuse_objects", "count")),
            inuse_space: has_addresses.then(|| column("inuse_space", "bytes")),
        };
        let mut is_freed = vec![false; count];
        // By addresses: the rows of what is allocated.
        let mut allocated: HashMap<u64, usize> = HashMap::new();
        for row in 0..count {
            let Some(address) = number(&samples.memory_address, row) else { continue };
            if number(&samples.weight, row).unwrap_or_default() >= 0.0 {
                allocated.insert(address.to_bits(), row);
            } else if let Some(row) = allocated.remove(&address.to_bits()) {
                is_freed[row] = true;
            }
        }
        Ok(Allocations { samples, columns, next: 0, is_freed })
    }

    fn allocation(&self, row: usize, bytes: i64) -> Allocation {
        let AllocationColumns { objects, space, inuse_objects, inuse_space } = self.columns;
        let mut values = vec![
            ColumnValue { column: objects, value: 1 },
            ColumnValue { column: space, value: bytes },
        ];
        if !self.is_freed[row] {
            let objects = inuse_objects.map(|column| ColumnValue { column, value: 1 });
            let space = inuse_space.map(|column| ColumnValue { column, value: bytes });
            values.extend(objects.into_iter().chain(space));
        }
        Allocation { stack: number(&self.samples.stack, row), values }
    }
}

impl Iterator for Allocations<'_> {
    type Item = Allocation;

    fn next(&mut self) -> Option<Allocation> {
        while self.next < self.is_freed.len() {
            let row = self.next;
            self.next += 1;
            let bytes = number(&self.samples.weight, row).unwrap_or_default();
            if bytes > 0.0 {
                return Some(self.allocation(row, bytes as i64));
            }
        }
        None
    }
}
