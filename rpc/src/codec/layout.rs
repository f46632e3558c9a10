//! Constant functions that compute encoded lengths of structs, enums and arrays.

/// Returns the length of all parts together, or `None` if one part is unbounded or the sum overflows.
pub const fn sum(parts: &[Option<usize>]) -> Option<usize> {
    let mut total = 0_usize;
    let mut i = 0;
    while i < parts.len() {
        let Some(part) = parts[i] else { return None };
        let Some(sum) = total.checked_add(part) else { return None };
        total = sum;
        i += 1;
    }
    Some(total)
}

/// Returns the longest of the choices, or `None` if one is unbounded.
pub const fn largest(choices: &[Option<usize>]) -> Option<usize> {
    let mut longest = 0;
    let mut i = 0;
    while i < choices.len() {
        let Some(choice) = choices[i] else { return None };
        if choice > longest {
            longest = choice;
        }
        i += 1;
    }
    Some(longest)
}

/// Returns the shortest of the choices, or 0 if there are none.
pub const fn smallest(choices: &[usize]) -> usize {
    let mut shortest = if choices.is_empty() { 0 } else { usize::MAX };
    let mut i = 0;
    while i < choices.len() {
        if choices[i] < shortest {
            shortest = choices[i];
        }
        i += 1;
    }
    shortest
}

/// Returns the length of `count` parts, or `None` if the part is unbounded or the product overflows.
pub const fn times(part: Option<usize>, count: usize) -> Option<usize> {
    match part {
        Some(part) => part.checked_mul(count),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unbounded_parts_make_unbounded_wholes() {
        assert_eq!(sum(&[Some(4), None]), None);
        assert_eq!(largest(&[Some(4), None]), None);
        assert_eq!(times(None, 3), None);
    }

    #[test]
    fn bounds_add_up() {
        assert_eq!(sum(&[Some(4), Some(8)]), Some(12));
        assert_eq!(sum(&[Some(usize::MAX), Some(1)]), None);
        assert_eq!(largest(&[Some(4), Some(8), Some(2)]), Some(8));
        assert_eq!(smallest(&[4, 2, 8]), 2);
        assert_eq!(smallest(&[]), 0);
        assert_eq!(times(Some(4), 3), Some(12));
        assert_eq!(times(Some(usize::MAX), 2), None);
    }
}
