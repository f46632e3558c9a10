//! Memory for messages: regions that are used again, by the logarithm of their length.

use pronto::{NodeError, Region};

/// Shortest region, bytes.
const SHORTEST: usize = 4096;

/// Regions that no message uses.
#[derive(Debug, Default)]
pub(super) struct Regions {
    /// Regions of `SHORTEST << i` bytes at index `i`.
    free: Vec<Vec<Region>>,
}

impl Regions {
    /// Returns a region of at least `len` bytes.
    pub(super) fn take(&mut self, len: usize) -> Result<Region, NodeError> {
        let len = len.next_power_of_two().max(SHORTEST);
        match self.class(len).pop() {
            Some(region) => Ok(region),
            None => pronto::region(len),
        }
    }

    /// Takes back a region that no message uses any more.
    pub(super) fn put(&mut self, region: Region) {
        self.class(region.len()).push(region);
    }

    fn class(&mut self, len: usize) -> &mut Vec<Region> {
        let index = usize::try_from(len.ilog2() - SHORTEST.ilog2()).expect("fewer than 64");
        if self.free.len() <= index {
            self.free.resize_with(index + 1, Vec::new);
        }
        &mut self.free[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_used_again_for_messages_of_similar_length() {
        let mut regions = Regions::default();
        let region = regions.take(5000).unwrap();
        assert_eq!(region.len(), 8192);
        region.write(0, b"mark").unwrap();
        regions.put(region);
        let mut seen = [0; 4];
        regions.take(4096).unwrap().read(0, &mut seen).unwrap();
        assert_eq!(seen, [0; 4], "a shorter message gets another region");
        regions.take(6000).unwrap().read(0, &mut seen).unwrap();
        assert_eq!(&seen, b"mark");
    }
}
