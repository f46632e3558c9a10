//! The synthetic application `master-slave` of the coscheduling paper (section 4.2).
//!
//! In each iteration the master, rank 0, sends a message to all slaves. Each slave then computes. A slave of kind `rs_slave` sends the result
//! to the master, one of kind `r_slave` does not. When the master has all results, the next iteration begins. Slaves with odd ranks are of
//! kind `rs_slave`, so that two slaves of a host, with successive ranks, are of different kinds.

use zerocopy::IntoBytes as _;

use crate::calcula;
use crate::comm::{Comm, CommError, Incoming, Rank, Reduction, Tag};
use crate::outcome::{Clock, Outcome, Watch};
use crate::usage::Meter;

/// Tag of messages from the master.
const WORK: Tag = Tag(4);
/// Tag of results.
const RESULT: Tag = Tag(5);

/// Parameters of the application. The paper gives no numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MasterSlave {
    /// Messages to each slave.
    pub iterations: u32,
    /// Length of each message, at least 8 bytes.
    pub bytes: usize,
    /// Computation of a slave for each message, as units of [`calcula::unit`].
    pub units: u32,
}

impl MasterSlave {
    /// Runs the application. It is verified if every result is that of the iteration's message.
    ///
    /// # Errors
    /// A rank has ended.
    ///
    /// # Panics
    /// Panics if `bytes` is less than 8.
    pub fn run(
        &self,
        comm: &mut impl Comm,
        clock: &impl Clock,
        watch: &dyn Watch,
    ) -> Result<Outcome, CommError> {
        assert!(self.bytes >= size_of::<f64>(), "a message has at least 8 bytes");
        comm.barrier()?;
        let meter = Meter::start(clock, comm.traffic());
        let right = if comm.rank() == Rank(0) { self.master(comm, watch)? } else { self.slave(comm)? };
        let mut wrong = [u32::from(!right)];
        comm.allreduce(Reduction::SumU32(&mut wrong))?;
        Ok(Outcome {
            usage: meter.stop(clock, comm.traffic()),
            verified: wrong == [0],
            detail: format!("{} ranks with a wrong value", wrong[0]),
            work: f64::from(self.iterations),
            unit: "iterations",
        })
    }

    fn master(&self, comm: &mut impl Comm, watch: &dyn Watch) -> Result<bool, CommError> {
        let slaves: Vec<Rank> = (1..comm.size()).map(Rank).collect();
        let mut message = vec![0; self.bytes];
        let mut results = vec![vec![0; self.bytes]; slaves.iter().filter(|rank| replies(**rank)).count()];
        let mut right = true;
        for iteration in 1..=self.iterations {
            watch.reached(iteration, self.iterations);
            message[..8].copy_from_slice(f64::from(iteration).as_bytes());
            for slave in &slaves {
                comm.send(*slave, WORK, &message)?;
            }
            let repliers = slaves.iter().filter(|rank| replies(**rank));
            let mut incoming: Vec<_> = repliers
                .zip(&mut results)
                .map(|(from, bytes)| Incoming { from: *from, tag: RESULT, bytes })
                .collect();
            comm.exchange(&[], &mut incoming)?;
            let expected = self.result(f64::from(iteration));
            right &= results.iter().all(|result| result[..8] == *expected.as_bytes());
        }
        Ok(right)
    }

    fn slave(&self, comm: &mut impl Comm) -> Result<bool, CommError> {
        let mut message = vec![0; self.bytes];
        let mut right = true;
        for iteration in 1..=self.iterations {
            comm.receive(Rank(0), WORK, &mut message)?;
            right &= message[..8] == *f64::from(iteration).as_bytes();
            let result = self.compute(f64::from(iteration));
            if replies(comm.rank()) {
                message[..8].copy_from_slice(result.as_bytes());
                comm.send(Rank(0), RESULT, &message)?;
            }
        }
        Ok(right)
    }

    /// Computes, and returns the result for a message with this value.
    fn compute(&self, value: f64) -> f64 {
        (0..self.units).for_each(|_| {
            core::hint::black_box(calcula::unit(value));
        });
        self.result(value)
    }

    /// Returns the result for a message with this value, which the master also knows.
    fn result(&self, value: f64) -> f64 {
        value.mul_add(2.0, f64::from(self.units))
    }
}

/// Returns whether a slave is of kind `rs_slave`.
const fn replies(slave: Rank) -> bool {
    slave.0 % 2 == 1
}
