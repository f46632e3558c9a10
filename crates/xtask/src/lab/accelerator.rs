//! How QEMU executes the machine's instructions, and the clock that follows from it. docs/measuring.md describes the consequences.

use std::fs::OpenOptions;

use anyhow::{Context, Result};
use clap::Args;
use serde::Deserialize;

/// The device of a kernel with KVM.
const KVM: &str = "/dev/kvm";

/// Nanoseconds of virtual time per instruction, as a power of two: 2 ns, or 500 million instructions per second.
const SHIFT: u32 = 1;

/// The variable that contains the name of the accelerator for programs in the machine.
pub(super) const VARIABLE: &str = "PRONTO_LAB_ACCELERATOR";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Accelerator {
    /// QEMU translates instructions, with one thread per CPU. The clock is that of the host.
    #[default]
    Emulation,
    /// QEMU translates instructions, in one thread for all CPUs. The clock counts instructions.
    VirtualTime,
    /// The host's CPUs execute the instructions and provide the clock.
    Kvm,
}

/// The options of the command line that choose the accelerator.
#[derive(Debug, Args)]
pub(super) struct Choice {
    /// Count instructions instead of time, so that the load of the host has no influence (see docs/measuring.md)
    #[arg(long)]
    virtual_time: bool,
    /// Run on the host's CPUs with KVM; the results do not compare with those of the emulation
    #[arg(long, conflicts_with = "virtual_time")]
    kvm: bool,
}

impl Choice {
    /// Returns the chosen accelerator.
    ///
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
    /// Returns QEMU's options.
    pub(super) fn options(self) -> Vec<String> {
        let words: &[&str] = match self {
            Self::Emulation => &["-accel", "tcg,thread=multi", "-cpu", "max"],
            // Without sleep=off, an idle machine would wait for the host's clock.
            Self::VirtualTime => &["-accel", "tcg,thread=single", "-cpu", "max", "-icount", "sleep=off"],
            // The register of that name cannot be set in a machine that itself runs in a machine.
            Self::Kvm => &["-accel", "kvm", "-cpu", "host,arch-capabilities=off"],
        };
        let mut options: Vec<_> = words.iter().copied().map(str::to_owned).collect();
        if self == Self::VirtualTime {
            options.last_mut().expect("there are words").push_str(&format!(",shift={SHIFT}"));
        }
        options
    }

    /// Returns the name that marks a result. `version` is that of QEMU.
    pub(super) fn name(self, version: Option<&str>) -> String {
        let kind = match self {
            Self::Emulation => "emulation".to_owned(),
            Self::VirtualTime => format!("virtual time, {} ns an instruction", 1 << SHIFT),
            Self::Kvm => "KVM".to_owned(),
        };
        format!("QEMU {}, {kind}", version.unwrap_or("of unknown version"))
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
        assert_eq!(
            Accelerator::VirtualTime.name(Some("10.0.2")),
            "QEMU 10.0.2, virtual time, 2 ns an instruction"
        );
        assert!(!Accelerator::Emulation.options().contains(&"-icount".to_owned()));
    }
}
