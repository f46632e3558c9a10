//! The CPUs that a measurement runs on, and pinning threads to them.

use core::fmt::Debug;
use std::collections::BTreeSet;
use std::fs;
use std::sync::{OnceLock, mpsc};
use std::thread;

use anyhow::{Context as _, anyhow};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// A logical CPU, by the kernel's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cpu(pub usize);

/// Two CPUs: one for the measuring side, one for its partner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuPair {
    /// CPU of the measuring thread.
    pub caller: Cpu,
    /// CPU of its partner.
    pub server: Cpu,
}

/// CPUs that this process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Two CPUs are allowed.
    Two(CpuPair),
    /// Only one CPU is allowed: rows that need two cores cannot be measured.
    One(Cpu),
}

impl Placement {
    /// Chooses from the affinity mask: the first CPU, and the first other one that is not its hyper-thread. If there
    /// are only hyper-threads, it chooses the first of them.
    ///
    /// # Errors
    /// If the affinity mask cannot be read.
    pub fn choose() -> anyhow::Result<Self> {
        let mask = affinity()?;
        let _first = ALLOWED.set(mask);
        let allowed = (0..CpuSet::count()).filter(|&cpu| mask.is_set(cpu) == Ok(true)).map(Cpu);
        Self::among(allowed, siblings).context("the affinity mask is empty")
    }

    /// Returns the CPU of a measurement with one thread.
    #[must_use]
    pub fn caller(self) -> Cpu {
        match self {
            Self::Two(pair) => pair.caller,
            Self::One(cpu) => cpu,
        }
    }

    /// Returns the two CPUs, if there are two.
    #[must_use]
    pub fn pair(self) -> Option<CpuPair> {
        match self {
            Self::Two(pair) => Some(pair),
            Self::One(_) => None,
        }
    }

    /// Returns the numbers of the chosen CPUs, caller first.
    #[must_use]
    pub fn numbers(self) -> Vec<usize> {
        match self {
            Self::Two(pair) => vec![pair.caller.0, pair.server.0],
            Self::One(cpu) => vec![cpu.0],
        }
    }

    fn among(
        allowed: impl Iterator<Item = Cpu> + Clone,
        siblings: impl Fn(Cpu) -> BTreeSet<Cpu>,
    ) -> Option<Self> {
        let caller = allowed.clone().next()?;
        let same_core = siblings(caller);
        let mut others = allowed.filter(|&cpu| cpu != caller);
        let server = others.clone().find(|cpu| !same_core.contains(cpu)).or_else(|| others.next());
        Some(server.map_or(Self::One(caller), |server| Self::Two(CpuPair { caller, server })))
    }
}

/// Note of an experiment, or of rows, that cannot run on one CPU.
pub(crate) const ONE_CPU: &str = "skipped: needs two CPUs, but this process may use only one";

/// Affinity of the process when the first placement was chosen, before it pinned any thread.
static ALLOWED: OnceLock<CpuSet> = OnceLock::new();

fn affinity() -> anyhow::Result<CpuSet> {
    sched_getaffinity(Pid::from_raw(0)).context("reading the affinity mask")
}

/// Runs `work` with the affinity with which the process was started, for processes that inherit it: they count CPUs, and measure
/// the cost of a wake-up, before they pin themselves.
pub(crate) fn unpinned<T>(work: impl FnOnce() -> T) -> anyhow::Result<T> {
    let Some(allowed) = ALLOWED.get() else { return Ok(work()) };
    let pinned = affinity()?;
    sched_setaffinity(Pid::from_raw(0), allowed).context("giving a thread its affinity back")?;
    let result = work();
    sched_setaffinity(Pid::from_raw(0), &pinned).context("pinning a thread again")?;
    Ok(result)
}

/// Pins the calling thread to `cpu`.
pub(crate) fn pin(cpu: Cpu) -> anyhow::Result<()> {
    let mut only = CpuSet::new();
    only.set(cpu.0).with_context(|| format!("CPU {} is beyond what a CPU set holds", cpu.0))?;
    sched_setaffinity(Pid::from_raw(0), &only).with_context(|| format!("pinning a thread to CPU {}", cpu.0))
}

/// Keeps the calling thread, and the threads that it starts later, off `cpu`. Returns the number of CPUs left to them.
pub(crate) fn keep_off(cpu: Cpu) -> anyhow::Result<usize> {
    let mut mask = affinity()?;
    mask.unset(cpu.0).with_context(|| format!("CPU {} is beyond what a CPU set holds", cpu.0))?;
    let left = (0..CpuSet::count()).filter(|&cpu| mask.is_set(cpu) == Ok(true)).count();
    sched_setaffinity(Pid::from_raw(0), &mask).with_context(|| format!("keeping off CPU {}", cpu.0))?;
    Ok(left)
}

/// Runs `work` in a thread pinned to `cpu`; the calling thread keeps its own affinity.
///
/// # Errors
/// If the thread cannot be pinned, and any error of `work`.
///
/// # Panics
/// If `work` does.
pub fn alone<T: Send>(cpu: Cpu, work: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
    in_thread(move || {
        pin(cpu)?;
        work()
    })
}

fn in_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join().expect("a measurement does not panic"))
}

/// Runs `work` in a thread that keeps off `cpu`, and passes it the number of CPUs left to it; the calling thread keeps its own
/// affinity.
pub(crate) fn apart<T: Send>(
    cpu: Cpu,
    work: impl FnOnce(usize) -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    in_thread(move || work(keep_off(cpu)?))
}

/// Runs `caller` against `partner`, each in a thread of this process pinned to its own CPU.
///
/// `caller` starts once the partner is pinned, and must make the partner return before it returns itself.
pub(crate) fn face_to_face<T: Send>(
    cpus: CpuPair,
    partner: impl FnOnce() -> anyhow::Result<()> + Send,
    caller: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    alone(cpus.caller, || {
        thread::scope(|scope| {
            let (ready, pinned) = mpsc::channel();
            let partner = scope.spawn(move || {
                pin(cpus.server)?;
                // A failed send means the caller is gone; then its side reports why.
                let _ = ready.send(());
                partner()
            });
            // A partner that was not pinned drops its sender, and its own error is the one to report.
            let result = match pinned.recv() {
                Ok(()) => caller(),
                Err(mpsc::RecvError) => Err(anyhow!("the partner thread did not start")),
            };
            let partner = partner.join().expect("a partner does not panic");
            match (result, partner) {
                (Ok(value), partner) => partner.map(|()| value),
                (Err(error), Ok(())) => Err(error),
                (Err(error), Err(partner)) => Err(partner.context(error)),
            }
        })
    })
}

/// Returns the hyper-threads of `cpu`'s core, including `cpu`; empty if the kernel does not report them.
fn siblings(cpu: Cpu) -> BTreeSet<Cpu> {
    let path = format!("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu.0);
    fs::read_to_string(path).map(|list| parse_cpu_list(&list)).unwrap_or_default()
}

/// Parses the kernel's list format, as in `0-3,8`; ignores malformed parts.
pub(crate) fn parse_cpu_list(list: &str) -> BTreeSet<Cpu> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
    };
    list.trim().split(',').filter_map(range).flatten().map(Cpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn among(allowed: &[usize], pairs_of_two: bool) -> Option<Placement> {
        Placement::among(allowed.iter().copied().map(Cpu), |cpu| {
            if pairs_of_two { [Cpu(cpu.0 & !1), Cpu(cpu.0 | 1)].into() } else { BTreeSet::new() }
        })
    }

    #[test]
    fn the_partner_is_not_a_hyper_thread_of_the_caller_if_it_can_be_avoided() {
        let two = |caller, server| Some(Placement::Two(CpuPair { caller: Cpu(caller), server: Cpu(server) }));
        assert_eq!(among(&[0, 1, 2, 3], true), two(0, 2));
        assert_eq!(among(&[0, 1], true), two(0, 1));
        assert_eq!(among(&[3, 7], false), two(3, 7));
    }

    #[test]
    fn one_allowed_cpu_is_not_a_pair() {
        assert_eq!(among(&[5], true), Some(Placement::One(Cpu(5))));
        assert_eq!(among(&[], true), None);
    }

    #[test]
    fn cpu_lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_cpu_list("0-2,8\n"), [Cpu(0), Cpu(1), Cpu(2), Cpu(8)].into());
        assert_eq!(parse_cpu_list(""), BTreeSet::new());
    }

    #[test]
    fn pinned_work_runs_on_its_cpu_and_the_caller_keeps_its_mask() {
        let before = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let cpu = Placement::choose().unwrap().caller();
        let seen = alone(cpu, || Ok(nix::sched::sched_getcpu()?)).unwrap();
        assert_eq!(seen, cpu.0);
        assert_eq!(sched_getaffinity(Pid::from_raw(0)).unwrap(), before);
    }

    #[test]
    fn children_of_a_pinned_thread_have_the_affinity_of_the_process() {
        let before = affinity().unwrap();
        let cpu = Placement::choose().unwrap().caller();
        let (within, after) = alone(cpu, || Ok((unpinned(affinity)??, affinity()?))).unwrap();
        let mut only = CpuSet::new();
        only.set(cpu.0).unwrap();
        assert_eq!((within, after), (before, only));
    }

    #[test]
    fn only_the_calling_thread_keeps_off_a_cpu() {
        let Some(cpus) = Placement::choose().unwrap().pair() else {
            return pronto_skip::because(pronto_skip::ONE_CPU);
        };
        let before = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let kept = thread::spawn(move || {
            let left = keep_off(cpus.server).unwrap();
            (left, sched_getaffinity(Pid::from_raw(0)).unwrap())
        });
        let (left, mask) = kept.join().unwrap();
        let count = |mask: &CpuSet| (0..CpuSet::count()).filter(|&cpu| mask.is_set(cpu) == Ok(true)).count();
        assert_eq!((left, mask.is_set(cpus.server.0)), (count(&before) - 1, Ok(false)));
        assert_eq!(count(&mask), left);
        assert_eq!(sched_getaffinity(Pid::from_raw(0)).unwrap(), before);
    }

    #[test]
    fn an_error_of_either_side_is_reported() {
        let Some(cpus) = Placement::choose().unwrap().pair() else {
            return pronto_skip::because(pronto_skip::ONE_CPU);
        };
        let partner = face_to_face(cpus, || Err(anyhow!("partner")), || Ok(())).unwrap_err();
        assert_eq!(partner.to_string(), "partner");
        let caller = face_to_face(cpus, || Ok(()), || Err::<(), _>(anyhow!("caller"))).unwrap_err();
        assert_eq!(caller.to_string(), "caller");
    }
}
