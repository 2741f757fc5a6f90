//! Estimates of allocations from sampled ones.

/// The number and size of allocations of which samples have the number `count` and the size `size`
/// in bytes, where a sample was taken every `rate` bytes on average.
///
/// An allocation of S bytes is sampled with the probability 1 - exp(-S/rate).
pub(super) fn unsampled(count: i64, size: i64, rate: i64) -> Allocations {
    if count == 0 || size == 0 {
        return Allocations::default();
    }
    if rate <= 1 {
        return Allocations { count, size };
    }
    let average = size as f64 / count as f64;
    let scale = 1.0 / (1.0 - (-average / rate as f64).exp());
    Allocations { count: (count as f64 * scale) as i64, size: (size as f64 * scale) as i64 }
}

/// A number of allocations, and their size in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Allocations {
    pub count: i64,
    pub size: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_allocations_represent_many() {
        assert_eq!(unsampled(1, 9216, 524_288), Allocations { count: 57, size: 528_909 });
        assert_eq!(unsampled(2, 0, 524_288), Allocations::default());
        assert_eq!(unsampled(3, 9, 1), Allocations { count: 3, size: 9 });
        let largest = Allocations { count: i64::MAX, size: i64::MIN };
        assert_eq!(unsampled(i64::MAX, i64::MIN, i64::MAX), largest);
    }
}
