//! k-means as a program of the mini distributed OS: the steps of one task, on shared memory, wherever it runs.

use std::sync::Arc;

use super::{Farthest, Partial, Progress, Task, combine};
use crate::messages::{Registers, TaskId};
use crate::os::{MemoryMap, Os, OsError, Process, Step};
use crate::page::{Access, Address, PAGE_SIZE};

/// Addresses of the program's data, and the parameters of the computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The rows, one after the other.
    pub(crate) points: Address,
    /// The centres.
    pub(crate) centres: Address,
    /// Number of iterations and [`Progress`], as two words.
    state: Address,
    /// For each task, the address of its partial sums.
    table: Address,
    /// A lock, followed by the data that it protects: the row that lies farthest from its centre.
    lock: Address,
    /// The barrier.
    barrier: Address,
    tasks: u32,
    task: Task,
}

/// Maps all memory at the origin and writes the data that the first iteration reads.
pub(crate) fn create_layout(
    os: &Arc<Os>,
    task: Task,
    tasks: u32,
    title: &str,
) -> Result<(Layout, Process), OsError> {
    let bytes = |count: usize| (count * 8) as u64;
    let map = |length, access, name: &str| os.map_here(length, access, name).map(|range| range.start);
    let layout = Layout {
        points: map(bytes(task.rows * task.dims), Access::Read, title)?,
        centres: map(bytes(task.clusters * task.dims), Access::Write, "centres")?,
        state: map(bytes(1), Access::Write, "state")?,
        table: map(bytes(tasks as usize), Access::Write, "table of partial sums")?,
        lock: map(bytes(3), Access::Write, "lock")?,
        barrier: map(bytes(1), Access::Write, "barrier")?,
        tasks,
        task,
    };
    let me = TaskId(0);
    for (cluster, row) in task.first_centres().enumerate() {
        let centre = layout.read_rows(os, me, row, 1)?;
        let address = layout.centres.plus(bytes(cluster * task.dims));
        os.write(me, address, &to_bytes(&centre))?;
    }
    os.write(me, layout.farthest(), &farthest_to_bytes(Farthest::NONE))?;
    let process = Process { name: "kmeans", memory_map: layout.to_map(), tasks };
    Ok((layout, process))
}

/// Runs a task at one node: iterations until it moves on or the work is done.
pub(crate) fn work(
    os: &Arc<Os>,
    task: TaskId,
    map: &MemoryMap,
    registers: Registers,
) -> Result<Step, OsError> {
    let layout = Layout::from_map(map);
    let Registers([mut iteration, mut partials, ..]) = registers;
    if partials == 0 {
        partials = layout.map_partials(os, task)?.0;
    }
    loop {
        if let Some(signal) = os.take_signal(task) {
            return Ok(Step::End(SIGNALLED + i32::try_from(signal).unwrap_or(0)));
        }
        layout.sum_blocks(os, task, Address(partials))?;
        os.barrier(task, layout.barrier, layout.tasks)?;
        if task == LEADER {
            layout.move_centres(os, task)?;
        }
        os.barrier(task, layout.barrier, layout.tasks)?;
        if layout.read_state(os, task)?.1 != MOVING {
            return Ok(Step::End(0));
        }
        iteration += 1;
        if iteration.is_multiple_of(STAY) {
            let mut registers = Registers::default();
            (registers.0[0], registers.0[1]) = (iteration, partials);
            return Ok(Step::Move(registers));
        }
    }
}

impl Layout {
    fn to_map(self) -> MemoryMap {
        let Task { rows, dims, clusters, blocks, max_iterations } = self.task;
        let numbers = [rows, dims, clusters, blocks].map(|number| number as u64);
        let [rows, dims, clusters, blocks] = numbers;
        let Self { points, centres, state, table, lock, barrier, tasks, .. } = self;
        let [points, centres, state, table, lock, barrier] =
            [points, centres, state, table, lock, barrier].map(|address| address.0);
        let (tasks, max) = (u64::from(tasks), u64::from(max_iterations));
        [points, centres, state, table, lock, barrier, rows, dims, clusters, blocks, max, tasks]
    }

    fn from_map(map: &MemoryMap) -> Self {
        let [points, centres, state, table, lock, barrier, rows, dims, clusters, blocks, max, tasks] = *map;
        let [points, centres, state, table, lock, barrier] =
            [points, centres, state, table, lock, barrier].map(Address);
        let [rows, dims, clusters, blocks] =
            [rows, dims, clusters, blocks].map(|number| usize::try_from(number).unwrap_or(usize::MAX));
        let [max_iterations, tasks] = [max, tasks].map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        let task = Task { rows, dims, clusters, blocks, max_iterations };
        Self { points, centres, state, table, lock, barrier, tasks, task }
    }

    /// Maps a task's partial sums and publishes their address in the table. Each partial begins on a page of its own.
    fn map_partials(&self, os: &Arc<Os>, task: TaskId) -> Result<Address, OsError> {
        let count = self.blocks_of(task).count() as u64;
        let start = os.map(task, count * self.partial_stride(), "partial sums")?;
        os.write(task, self.table_entry(task), &start.0.to_le_bytes())?;
        Ok(start)
    }

    /// Runs the first half of an iteration: sums the task's blocks, and updates the farthest row.
    fn sum_blocks(&self, os: &Arc<Os>, task: TaskId, partials: Address) -> Result<(), OsError> {
        let centres = self.read_centres(os, task)?;
        let mut farthest = Farthest::NONE;
        let mut address = partials;
        for block in self.blocks_of(task) {
            let rows = self.task.block(block);
            let values = self.read_rows(os, task, rows.start, rows.len())?;
            let mut partial = Partial::new(&self.task);
            farthest = farthest.or(partial.take(rows.start, &values, &centres));
            os.write(task, address, &partial.to_bytes())?;
            address = address.plus(self.partial_stride());
        }
        os.lock(task, self.lock)?;
        let others = self.read_farthest(os, task)?;
        if others.or(farthest) != others {
            os.write(task, self.farthest(), &farthest_to_bytes(farthest))?;
        }
        os.unlock(task, self.lock)
    }

    /// Runs the second half of an iteration, in one task: combines all partials in the order of their blocks.
    fn move_centres(&self, os: &Arc<Os>, task: TaskId) -> Result<(), OsError> {
        let mut partials = Vec::with_capacity(self.task.blocks);
        let mut bytes = vec![0; Partial::len(&self.task)];
        for block in 0..self.task.blocks {
            let (owner, position) = self.owner_of(block);
            let mut start = [0; 8];
            os.read(task, self.table_entry(owner), &mut start)?;
            let start = Address(u64::from_le_bytes(start)).plus(position * self.partial_stride());
            os.read(task, start, &mut bytes)?;
            partials.push(Partial::from_bytes(&self.task, &bytes));
        }
        let farthest = usize::try_from(self.read_farthest(os, task)?.row).unwrap_or(0);
        let farthest = self.read_rows(os, task, farthest, 1)?;
        let before = self.read_centres(os, task)?;
        let after = combine(&self.task, partials.iter(), &farthest);
        os.write(task, self.centres, &to_bytes(&after))?;
        os.write(task, self.farthest(), &farthest_to_bytes(Farthest::NONE))?;
        let iteration = self.read_state(os, task)?.0 + 1;
        let progress = match Progress::after(&self.task, iteration, &before, &after) {
            Progress::Moving => MOVING,
            Progress::Settled | Progress::Stopped => DONE,
        };
        let [a, b, c, d] = iteration.to_le_bytes();
        let [e, f, g, h] = progress.to_le_bytes();
        os.write(task, self.state, &[a, b, c, d, e, f, g, h])?;
        os.iterated(iteration);
        Ok(())
    }

    /// Returns the number of iterations, and [`MOVING`] or [`DONE`].
    fn read_state(&self, os: &Arc<Os>, task: TaskId) -> Result<(u32, u32), OsError> {
        let mut bytes = [0; 8];
        os.read(task, self.state, &mut bytes)?;
        let [a, b, c, d, e, f, g, h] = bytes;
        Ok((u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])))
    }

    /// Returns the result after the computation has ended.
    pub(crate) fn outcome(&self, os: &Arc<Os>) -> Result<super::Outcome, OsError> {
        let me = TaskId(0);
        Ok(super::Outcome { centres: self.read_centres(os, me)?, iterations: self.read_state(os, me)?.0 })
    }

    fn read_centres(&self, os: &Arc<Os>, task: TaskId) -> Result<Vec<f64>, OsError> {
        let mut bytes = vec![0; self.task.clusters * self.task.dims * 8];
        os.read(task, self.centres, &mut bytes)?;
        Ok(from_bytes(&bytes))
    }

    fn read_rows(&self, os: &Arc<Os>, task: TaskId, first: usize, count: usize) -> Result<Vec<f64>, OsError> {
        let row = self.task.dims * 8;
        let mut bytes = vec![0; count * row];
        os.read(task, self.points.plus((first * row) as u64), &mut bytes)?;
        Ok(from_bytes(&bytes))
    }

    fn read_farthest(&self, os: &Arc<Os>, task: TaskId) -> Result<Farthest, OsError> {
        let mut bytes = [[0; 8]; 2];
        os.read(task, self.farthest(), bytes.as_flattened_mut())?;
        let [distance, row] = bytes;
        Ok(Farthest { distance: f64::from_le_bytes(distance), row: u64::from_le_bytes(row) })
    }

    /// Returns the address of the farthest row, next to the lock that protects it.
    fn farthest(&self) -> Address {
        self.lock.plus(8)
    }

    fn table_entry(&self, task: TaskId) -> Address {
        self.table.plus(u64::from(task.0 - 1) * 8)
    }

    fn partial_stride(&self) -> u64 {
        Partial::len(&self.task).next_multiple_of(PAGE_SIZE) as u64
    }

    fn blocks_of(&self, task: TaskId) -> impl Iterator<Item = usize> + use<> {
        (task.0 as usize - 1..self.task.blocks).step_by(self.tasks as usize)
    }

    /// Returns the task that owns a block, and the block's position among those of this task.
    fn owner_of(&self, block: usize) -> (TaskId, u64) {
        let tasks = self.tasks as usize;
        (
            TaskId(u32::try_from(block % tasks).expect("less than the number of tasks") + 1),
            (block / tasks) as u64,
        )
    }
}

fn to_bytes(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn from_bytes(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks().0.iter().map(|value| f64::from_le_bytes(*value)).collect()
}

fn farthest_to_bytes(farthest: Farthest) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&farthest.distance.to_le_bytes());
    bytes[8..].copy_from_slice(&farthest.row.to_le_bytes());
    bytes
}

/// The task that moves the centres.
const LEADER: TaskId = TaskId(1);

/// Iterations of a task at one node before it moves to the next and its pages have to follow.
const STAY: u64 = 3;

const MOVING: u32 = 0;
const DONE: u32 = 1;

/// Base of the exit code of a task that was ended by a signal, as in shells.
const SIGNALLED: i32 = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        let address = |page: u64| Address(page * 4096);
        Layout {
            points: address(1),
            centres: address(2),
            state: address(3),
            table: address(4),
            lock: address(5),
            barrier: address(6),
            tasks: 3,
            task: Task { rows: 100, dims: 7, clusters: 5, blocks: 32, max_iterations: 9 },
        }
    }

    #[test]
    fn a_layout_travels_in_twelve_numbers() {
        assert_eq!(Layout::from_map(&layout().to_map()), layout());
    }

    #[test]
    fn every_block_has_one_owner_and_one_position() {
        let layout = layout();
        for task in (1..=3).map(TaskId) {
            for (position, block) in layout.blocks_of(task).enumerate() {
                assert_eq!(layout.owner_of(block), (task, position as u64));
            }
        }
        let all: usize = (1..=3).map(|task| layout.blocks_of(TaskId(task)).count()).sum();
        assert_eq!(all, 32);
    }
}
