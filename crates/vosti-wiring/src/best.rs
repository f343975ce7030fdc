//! The rule of greedy choice over a row of logits on the host.

/// The first index whose value is the largest. NaN counts as minus infinity, and a denormal as zero, of either sign: so
/// processors and GPUs agree, whatever their mode.
pub fn first_largest(row: &[f32]) -> u32 {
    const LANES: usize = 16;
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for block in row.chunks(LANES) {
        for (lane, value) in lanes.iter_mut().zip(block) {
            *lane = larger(*lane, *value);
        }
    }
    let largest = lanes.into_iter().fold(f32::NEG_INFINITY, larger);
    let seen = |x: f32| if x.abs() < f32::MIN_POSITIVE { 0.0 } else { x };
    match seen(largest) {
        f32::NEG_INFINITY => 0,
        largest => row.iter().position(|x| seen(*x) == largest).unwrap_or(0) as u32,
    }
}
