//! Measurements.

mod pipeline;
mod policy;
mod tcp;

pub use pipeline::pipeline;
pub use tcp::tcp;

/// The middle of some values, or the mean of the two in the middle; 0 of none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        n if n.is_multiple_of(2) => (values[middle - 1] + values[middle]) / 2.0,
        _ => values[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_the_middle_one() {
        for (values, expected) in
            [(vec![], 0.0), (vec![3.0], 3.0), (vec![9.0, 1.0, 2.0], 2.0), (vec![4.0, 1.0, 9.0, 2.0], 3.0)]
        {
            assert_eq!(median(values), expected);
        }
    }
}
