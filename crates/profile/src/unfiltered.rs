//! Figures of a profile from before a filter.

/// Figures of a profile before samples were filtered out: the 100 % of all views.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unfiltered {
    /// Number of samples.
    pub samples: usize,
    /// Figures of each sample type.
    pub types: Vec<UnfilteredType>,
}

/// Figures of one sample type.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UnfilteredType {
    /// Sum of the values.
    pub sum: i64,
    /// Sum of the magnitudes of the values.
    pub magnitude: i64,
    /// Sum of the positive values.
    pub positive: i64,
    /// Number of events that were sampled.
    pub events: f64,
    /// Number of events of equal weight with the same confidence.
    pub effective: f64,
}
