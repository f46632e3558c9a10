//! BOOST-ON-UNBLOCK: everybody who unblocks goes before those who did not, and loses that as it runs.
//!
//! Expedite, section 2: "or to give a priority boost upon unblocking as employed by Windows". No difference is made between
//! what was waited for; that is the paper's point. For schedulers that count ticks only.

use pronto_sched_policy::policy::coschedule::{self, Prediction};
use pronto_sched_policy::policy::frequency::Frequency;
use pronto_sched_policy::policy::level::Level;

use super::{Cause, Context, Policy, View};
use crate::id::{CpuId, TaskId};

/// Levels gained by unblocking. Two, as Windows gives for the completion of network I/O (`IO_NETWORK_INCREMENT` of
/// `wdm.h`); here for whatever was waited for.
const LEVELS: u8 = 2;

/// Ticks of running after which a level is lost: a quantum of Windows workstations is two ticks of the clock.
const TICKS_PER_LEVEL: u8 = 2;

/// One level in goodness: more than counter, nice value and shared memory can make, as levels are strict.
const LEVEL: Level = Level::packets(100);

/// The policy: for each task, ticks of boost left.
#[derive(Clone, Debug, Default)]
pub struct BoostOnUnblock {
    left: Vec<u8>,
}

impl Policy for BoostOnUnblock {
    fn start(&mut self, context: &mut Context<'_>) {
        self.left.resize(context.view.tasks().count(), 0);
    }

    fn woken(&mut self, _context: &mut Context<'_>, task: TaskId, cause: Cause) {
        if matches!(cause, Cause::Timer | Cause::Message | Cause::Room) {
            self.left[task.index()] = LEVELS * TICKS_PER_LEVEL;
        }
    }

    /// A level that is lost may let somebody else go first.
    fn ticked(&mut self, context: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        let left = &mut self.left[task.index()];
        if *left > 0 {
            *left -= 1;
            if left.is_multiple_of(TICKS_PER_LEVEL) {
                context.reschedule(cpu);
            }
        }
    }

    fn goodness(&mut self, _view: &View<'_>, task: TaskId, fields: coschedule::Task) -> Level {
        let weight = coschedule::goodness(fields, Frequency::NEW, &[], &Prediction::default()).1;
        let spent = matches!(fields, coschedule::Task::Normal { counter: 0, .. });
        let levels = self.left[task.index()].div_ceil(TICKS_PER_LEVEL);
        if spent { weight } else { weight.plus(LEVEL.times(levels.into())) }
    }
}
