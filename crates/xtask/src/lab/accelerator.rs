//! Who carries out the machine's instructions, and with that, what its clock says. docs/measuring.md has what follows.

use std::fs::OpenOptions;

use anyhow::{Context, Result};
use clap::Args;
use serde::Deserialize;

/// The device of a kernel that runs machines.
const KVM: &str = "/dev/kvm";

/// Nanoseconds of virtual time for each instruction, as a power of two: 2 ns, 500 million instructions a second.
const SHIFT: u32 = 1;

/// Variable by which programs in the machine learn of it.
pub(super) const VARIABLE: &str = "PRONTO_LAB_ACCELERATOR";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Accelerator {
    /// QEMU translates instructions, with a thread for each processor; the clock is the host's.
    #[default]
    Emulation,
    /// QEMU translates instructions, in one thread for all processors; the clock counts instructions.
    VirtualTime,
    /// The host's processors; the clock is theirs.
    Kvm,
}

/// How it is chosen on the command line.
#[derive(Debug, Args)]
pub(super) struct Choice {
    /// Count instructions instead of time: what the host does beside it has no influence, but see docs/measuring.md.
    #[arg(long)]
    virtual_time: bool,
    /// Run on the host's processors. Results do not compare with those of the emulation.
    #[arg(long, conflicts_with = "virtual_time")]
    kvm: bool,
}

impl Choice {
    /// # Errors
    /// The host has no KVM, or this user may not use it.
    pub(super) fn accelerator(&self) -> Result<Accelerator> {
        if self.kvm {
            OpenOptions::new()
                .read(true)
                .write(true)
                .open(KVM)
                .with_context(|| format!("cannot open {KVM}"))?;
        }
        Ok(match (self.virtual_time, self.kvm) {
            (true, _) => Accelerator::VirtualTime,
            (false, true) => Accelerator::Kvm,
            (false, false) => Accelerator::Emulation,
        })
    }
}

impl Accelerator {
    /// QEMU's options.
    pub(super) fn options(self) -> Vec<String> {
        let words: &[&str] = match self {
            Self::Emulation => &["-accel", "tcg,thread=multi", "-cpu", "max"],
            // Without sleep=off, a machine in which nothing runs would wait for the host's clock.
            Self::VirtualTime => &["-accel", "tcg,thread=single", "-cpu", "max", "-icount", "sleep=off"],
            // The register of that name cannot be set in a machine that itself runs in one.
            Self::Kvm => &["-accel", "kvm", "-cpu", "host,arch-capabilities=off"],
        };
        let mut options: Vec<_> = words.iter().copied().map(str::to_owned).collect();
        if self == Self::VirtualTime {
            options.last_mut().expect("there are words").push_str(&format!(",shift={SHIFT}"));
        }
        options
    }

    /// What a result is marked with.
    pub(super) fn name(self) -> String {
        match self {
            Self::Emulation => "QEMU, emulation".to_owned(),
            Self::VirtualTime => format!("QEMU, virtual time, {} ns an instruction", 1 << SHIFT),
            Self::Kvm => "KVM".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_time_has_one_thread_and_counts() {
        let options = Accelerator::VirtualTime.options();
        assert!(options.contains(&"tcg,thread=single".to_owned()), "{options:?}");
        assert!(options.contains(&"sleep=off,shift=1".to_owned()), "{options:?}");
        assert!(!Accelerator::Emulation.options().contains(&"-icount".to_owned()));
    }
}
