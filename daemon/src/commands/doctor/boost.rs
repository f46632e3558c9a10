//! Boost: the tiers that are available to this process.

use pronto_expedite::{Missing, Tier, available};

use super::finding::Finding;
use super::machine::Machine;

const SUBJECT: &str = "boost";

/// The version of the loaded module, and its form (kernel/expedite/README.md).
const VERSION: &str = "sys/module/expedite/version";

/// Tries each tier on a short-lived thread of its own.
pub(super) fn probe(machine: &Machine) -> Vec<Finding> {
    let tiers = [Tier::Module, Tier::Fifo, Tier::Slice, Tier::Scx];
    tiers.map(|tier| finding(machine, tier, available(tier))).into()
}

fn finding(machine: &Machine, tier: Tier, tried: Result<(), Missing>) -> Finding {
    match tried {
        Ok(()) => {
            let version = machine.text(VERSION).filter(|_| tier == Tier::Module);
            let version = version.map(|version| format!(" ({version})")).unwrap_or_default();
            let text = format!("{tier} is available{version}; enable it with boost = \"{tier}\"");
            Finding::ok(SUBJECT, text)
        }
        Err(why) => {
            let advice = match tier {
                Tier::Module => "or use another tier: those need no module",
                Tier::Scx => {
                    "for machines that forbid modules: kernel/scx/README.md says which kernels have it, and how to load it"
                }
                Tier::Fifo => "LimitRTPRIO=2 in the systemd unit, or CAP_SYS_NICE",
                _ => "Linux 6.12 or newer, with its default scheduler",
            };
            Finding::note(SUBJECT, format!("{tier} is not available: {why}"), advice)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_the_module_is_named() {
        let machine = Machine::recorded("form", &[(VERSION, "0.1.0 portable")]);
        let text = |tier| finding(&machine, tier, Ok(())).text;
        assert_eq!(
            text(Tier::Module),
            "module is available (0.1.0 portable); enable it with boost = \"module\""
        );
        assert_eq!(text(Tier::Fifo), "fifo is available; enable it with boost = \"fifo\"");
    }
}
