//! Requests to the loader, and its replies.

use nix::errno::Errno;

use super::counters::Counters;

/// A request to the loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Flag the thread whose descriptor follows.
    Flag,
    /// Remove the flag of the thread whose descriptor follows.
    Unflag,
    /// Return the counters.
    Counters,
    /// Give the process of the main thread whose descriptor follows this weight, in hundredths of the one that the nice values of its
    /// threads give. 100 removes it. Only root may do this.
    Weigh(u16),
}

impl Request {
    /// Largest number of bytes of a request.
    pub const LENGTH: usize = 3;

    /// Returns the bytes of the request, in the byte order of the machine.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        match self {
            Self::Flag => vec![1],
            Self::Unflag => vec![2],
            Self::Counters => vec![3],
            Self::Weigh(hundredths) => [&[4], &hundredths.to_ne_bytes()[..]].concat(),
        }
    }

    /// Returns the request in these bytes, if they are one.
    #[must_use]
    pub const fn from_bytes(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [1] => Some(Self::Flag),
            [2] => Some(Self::Unflag),
            [3] => Some(Self::Counters),
            [4, low, high] => Some(Self::Weigh(u16::from_ne_bytes([*low, *high]))),
            _ => None,
        }
    }
}

/// Reply to each request: the result, and the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Result of the request; an error number of the system.
    pub result: Result<(), Errno>,
    /// Counters of the scheduler.
    pub counters: Counters,
}

impl Reply {
    /// Number of bytes of a reply.
    pub const LENGTH: usize = (1 + Counters::NUMBER) * size_of::<u64>();

    /// Returns the bytes of the reply, in the byte order of the machine.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        let result = self.result.err().map_or(0, |errno| u64::from((errno as i32).unsigned_abs()));
        let words = core::iter::once(result).chain(self.counters.values());
        for (place, word) in bytes.chunks_exact_mut(size_of::<u64>()).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Returns the reply in these bytes, unless their number is wrong.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LENGTH] = bytes.try_into().ok()?;
        let mut words = bytes
            .chunks_exact(size_of::<u64>())
            .map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
        let result = match i32::try_from(words.next()?).ok()? {
            0 => Ok(()),
            errno => Err(Errno::from_raw(errno)),
        };
        let mut values = [0; Counters::NUMBER];
        values.iter_mut().zip(words).for_each(|(place, word)| *place = word);
        Some(Self { result, counters: Counters::from_values(values) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_survive_the_socket() {
        let values = core::array::from_fn(|index| u64::try_from(index).unwrap() * 10);
        for result in [Ok(()), Err(Errno::EPERM)] {
            let reply = Reply { result, counters: Counters::from_values(values) };
            assert_eq!(Reply::from_bytes(&reply.to_bytes()), Some(reply));
            assert_eq!(Reply::from_bytes(&reply.to_bytes()[1..]), None);
        }
    }

    #[test]
    fn requests_have_their_own_bytes() {
        for request in [Request::Flag, Request::Unflag, Request::Counters, Request::Weigh(250)] {
            let bytes = request.to_bytes();
            assert!(bytes.len() <= Request::LENGTH, "{request:?}");
            assert_eq!(Request::from_bytes(&bytes), Some(request));
        }
        for other in [&[][..], &[0], &[1, 0], &[4, 0]] {
            assert_eq!(Request::from_bytes(other), None);
        }
    }
}
