//! The places of boxes that lie on each other: the layout of all flame graphs.

/// Things with a width, and other ones on each of them.
pub(crate) trait Stacked {
    /// One of them.
    type Id: Copy;

    /// Its width.
    fn width(&self, id: Self::Id) -> i64;

    /// Those on it, from left to right.
    fn on(&self, id: Self::Id) -> impl Iterator<Item = Self::Id>;
}

/// The lowest boxes of a layout.
pub(crate) struct Lowest<I, L> {
    /// Boxes on each other, each as wide as the whole, lowest first.
    pub(crate) path: Vec<I>,
    /// The boxes on these, from left to right.
    pub(crate) on_path: L,
    /// Width of the whole.
    pub(crate) whole: i64,
    /// Boxes narrower than this are omitted, and everything on them.
    pub(crate) least: f64,
}

/// A box.
#[derive(Clone, Copy)]
pub(crate) struct Place<I> {
    pub(crate) id: I,
    /// Index of the box that it lies on.
    pub(crate) below: Option<u32>,
    /// Number of boxes below it.
    pub(crate) depth: u32,
    /// Left end.
    pub(crate) left: i64,
    /// Its width, or that of the boxes on it if gains and losses make it larger.
    pub(crate) width: i64,
    /// The part of the width without a box on it, at its left end.
    pub(crate) rest: i64,
}

/// The boxes, each before those on it, from left to right.
pub(crate) struct Layout<I> {
    pub(crate) places: Vec<Place<I>>,
    /// Width of the whole.
    pub(crate) width: i64,
    /// Number of boxes above each other.
    pub(crate) levels: u32,
}

/// Fewest units of a box that is at least `percent` of `whole` wide.
pub(crate) fn least_width(whole: i64, percent: f64) -> f64 {
    (whole as f64 * percent / 100.0).max(1.0)
}

impl<I: Copy> Layout<I> {
    /// The boxes that are wide enough. No others are visited, but those on a wide one.
    pub(crate) fn new<T: Stacked<Id = I>>(
        stacked: &T,
        lowest: Lowest<I, impl Iterator<Item = I>>,
    ) -> Layout<I> {
        let Lowest { path, on_path, whole, least } = lowest;
        let mut layout = Layout { places: Vec::new(), width: whole, levels: 0 };
        let mut below = None;
        for id in path {
            below = Some(layout.add(id, whole, below));
        }
        let is_wide = |id: &I| stacked.width(*id) as f64 >= least;
        // The last of these is the next.
        let mut pending: Vec<(I, Option<u32>)> = Vec::new();
        pending.extend(on_path.filter(is_wide).map(|id| (id, below)));
        pending.reverse();
        while let Some((id, below)) = pending.pop() {
            let at = layout.add(id, stacked.width(id), below);
            let first = pending.len();
            pending.extend(stacked.on(id).filter(is_wide).map(|id| (id, Some(at))));
            pending[first..].reverse();
        }
        layout.place();
        layout
    }

    fn add(&mut self, id: I, width: i64, below: Option<u32>) -> u32 {
        let depth = below.map_or(0, |b| self.places[b as usize].depth + 1);
        self.places.push(Place { id, below, depth, left: 0, width, rest: 0 });
        self.levels = self.levels.max(depth + 1);
        self.places.len() as u32 - 1
    }

    /// Widths from the top down, then left ends from the bottom up.
    fn place(&mut self) {
        let mut on_it = vec![0i64; self.places.len()];
        let mut on_root = 0i64;
        for (i, at) in self.places.iter_mut().enumerate().rev() {
            at.width = at.width.max(on_it[i]);
            at.rest = at.width.saturating_sub(on_it[i]);
            let sum = at.below.map_or(&mut on_root, |b| &mut on_it[b as usize]);
            *sum = sum.saturating_add(at.width);
        }
        self.width = self.width.max(on_root);
        // Left end of the next box on each box.
        let mut next = on_it;
        let mut next_on_root = self.width.saturating_sub(on_root);
        for (i, at) in self.places.iter_mut().enumerate() {
            let left = at.below.map_or(&mut next_on_root, |b| &mut next[b as usize]);
            at.left = *left;
            *left = left.saturating_add(at.width);
            next[i] = at.left.saturating_add(at.rest);
        }
    }
}
