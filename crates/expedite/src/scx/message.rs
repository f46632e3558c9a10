//! Requests to the loader, and its replies.

use nix::errno::Errno;

use super::counters::Counters;
use super::prediction::{Prediction, PredictionTerms};

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
    /// Let the weight of the process of the main thread whose descriptor follows follow its queues. Only root may do this. `Weigh(100)` ends
    /// it, and another weight replaces it.
    Predict(PredictionTerms),
    /// Return the prediction for the process of the main thread whose descriptor follows, for which this connection has asked.
    Prediction,
}

impl Request {
    /// Largest number of bytes of a request.
    pub const LENGTH: usize = 1 + PredictionTerms::LENGTH;

    /// Returns the bytes of the request, in the byte order of the machine.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        match self {
            Self::Flag => vec![1],
            Self::Unflag => vec![2],
            Self::Counters => vec![3],
            Self::Weigh(hundredths) => [&[4], &hundredths.to_ne_bytes()[..]].concat(),
            Self::Predict(terms) => [&[5], &terms.to_bytes()[..]].concat(),
            Self::Prediction => vec![6],
        }
    }

    /// Returns the request in these bytes, if they are one.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [1] => Some(Self::Flag),
            [2] => Some(Self::Unflag),
            [3] => Some(Self::Counters),
            [4, low, high] => Some(Self::Weigh(u16::from_ne_bytes([*low, *high]))),
            [5, terms @ ..] => PredictionTerms::from_bytes(terms.try_into().ok()?).map(Self::Predict),
            [6] => Some(Self::Prediction),
            _ => None,
        }
    }
}

/// Reply to each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The result of a request, which is an error number of the system, and the counters of the scheduler.
    Done(Result<(), Errno>, Counters),
    /// The prediction that the request asked for.
    Prediction(Prediction),
}

/// Bytes of the values of a reply.
const COUNTERS: usize = Counters::NUMBER * size_of::<u64>();
const PREDICTION: usize = Prediction::NUMBER * size_of::<u64>();

impl Reply {
    /// Largest number of bytes of a reply.
    pub const LENGTH: usize = size_of::<u64>() + PREDICTION;

    /// Returns the bytes of the reply, in the byte order of the machine.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let with = |result: u64, values: &[u64]| {
            core::iter::once(&result).chain(values).flat_map(|word| word.to_ne_bytes()).collect()
        };
        match self {
            Self::Done(result, counters) => {
                let number = result.err().map_or(0, |errno| u64::from((errno as i32).unsigned_abs()));
                with(number, &counters.values())
            }
            Self::Prediction(prediction) => with(0, &prediction.values()),
        }
    }

    /// Returns the reply in these bytes, unless their number is wrong.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (number, values) = bytes.split_first_chunk()?;
        let result = match i32::try_from(u64::from_ne_bytes(*number)).ok()? {
            0 => Ok(()),
            errno => Err(Errno::from_raw(errno)),
        };
        match values.len() {
            COUNTERS => Some(Self::Done(result, Counters::from_values(words(values)))),
            PREDICTION => Some(Self::Prediction(Prediction::from_values(words(values)))),
            _ => None,
        }
    }
}

/// Returns the words in these bytes; zeros if there are fewer.
fn words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut words = [0; N];
    for (place, bytes) in words.iter_mut().zip(bytes.chunks_exact(size_of::<u64>())) {
        *place = u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
    }
    words
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use pronto_sched_policy::policy::share::Share;
    use pronto_sched_policy::policy::weight::Weight;

    use super::*;

    #[test]
    fn replies_survive_the_socket() {
        let value = |index| u64::try_from(index).unwrap() * 10;
        let counters = Counters::from_values(core::array::from_fn(value));
        let replies = [
            Reply::Done(Ok(()), counters),
            Reply::Done(Err(Errno::EPERM), counters),
            Reply::Prediction(Prediction::from_values(core::array::from_fn(value))),
        ];
        for reply in replies {
            assert_eq!(Reply::from_bytes(&reply.to_bytes()), Some(reply));
            assert!(reply.to_bytes().len() <= Reply::LENGTH);
            assert_eq!(Reply::from_bytes(&reply.to_bytes()[1..]), None);
        }
        // The length of loaders without predictions.
        assert_eq!(replies[0].to_bytes().len(), 80);
    }

    #[test]
    fn requests_have_their_own_bytes() {
        let terms = PredictionTerms {
            past: Share::HALF,
            most: Weight::LIMIT,
            counts_sent: false,
            period: Duration::from_millis(1),
        };
        let requests = [
            Request::Flag,
            Request::Unflag,
            Request::Counters,
            Request::Weigh(250),
            Request::Predict(terms),
            Request::Prediction,
        ];
        for request in requests {
            let bytes = request.to_bytes();
            assert!(bytes.len() <= Request::LENGTH, "{request:?}");
            assert_eq!(Request::from_bytes(&bytes), Some(request));
        }
        for other in [&[][..], &[0], &[1, 0], &[4, 0], &[5], &[6, 0]] {
            assert_eq!(Request::from_bytes(other), None);
        }
    }
}
