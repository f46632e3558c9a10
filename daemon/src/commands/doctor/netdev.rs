//! Queues of network devices (NAPI instances), and whether their interrupts can be suspended during busy polling.

mod link;

use super::finding::Finding;
use super::machine::Machine;
use link::Napi;

const SUBJECT: &str = "napi";

pub(super) fn probe(machine: &Machine) -> Vec<Finding> {
    match link::open().and_then(|socket| link::napis(&socket)) {
        Ok(napis) => findings(machine, &napis),
        Err(why) => vec![Finding::note(
            SUBJECT,
            format!("cannot list the queues: {why}"),
            "Linux 6.8 lists queues, 6.13 can suspend their interrupts",
        )],
    }
}

fn findings(machine: &Machine, napis: &[Napi]) -> Vec<Finding> {
    const DEVICES: &str = "sys/class/net";
    let mut found = Vec::new();
    for name in machine.names(DEVICES) {
        let number = |file: &str| machine.number(&format!("{DEVICES}/{name}/{file}"));
        let Some(index) = number("ifindex") else { continue };
        let of_device: Vec<_> = napis.iter().filter(|napi| i64::from(napi.interface) == index).collect();
        let Some(first) = of_device.first() else { continue };
        let text = format!("{name}, queues: {}", of_device.len());
        let deferred =
            number("napi_defer_hard_irqs").unwrap_or(0) > 0 && number("gro_flush_timeout").unwrap_or(0) > 0;
        let suspends = of_device.iter().any(|napi| napi.suspend_ns.is_some_and(|nanos| nanos > 0));
        found.push(match first.suspend_ns {
            _ if suspends => Finding::ok(SUBJECT, format!("{text}, with interrupts suspended during busy polling")),
            _ if deferred => Finding::ok(SUBJECT, format!("{text}, with interrupts deferred during busy polling")),
            Some(_) => Finding::note(
                SUBJECT,
                format!("{text}; their interrupts can be suspended, but are not"),
                format!(
                    "only for [tcp] prefer_busy_poll: ynl --family netdev --do napi-set --json \
                     '{{\"id\": {}, \"irq-suspend-timeout\": 20000000}}'",
                    first.id
                ),
            ),
            None => Finding::note(
                SUBJECT,
                format!("{text}; this kernel cannot suspend their interrupts"),
                "Linux 6.13, or for [tcp] prefer_busy_poll: napi_defer_hard_irqs and gro_flush_timeout in /sys/class/net",
            ),
        });
    }
    if found.is_empty() {
        found.push(Finding::ok(SUBJECT, "no device with NAPI: nothing to poll"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn of(name: &str, files: &[(&str, &str)], suspend_ns: Option<u32>) -> Vec<Finding> {
        let files =
            [&[("sys/class/net/eth0/ifindex", "2"), ("sys/class/net/lo/ifindex", "1")], files].concat();
        let napis = [8193, 8194].map(|id| Napi { interface: 2, id, suspend_ns });
        findings(&Machine::recorded(name, &files), &napis)
    }

    /// Shows: operations.doctor-napi
    #[test]
    fn an_unused_feature_is_noted() {
        let offered = of("offered", &[], Some(0));
        assert!(offered.len() == 1 && offered[0].level == Level::Note, "{offered:?}");
        assert!(offered[0].text.starts_with("eth0, queues: 2; their interrupts can be"), "{offered:?}");
        assert!(
            offered[0].advice.as_ref().is_some_and(|advice| advice.contains("\"id\": 8193,")),
            "{offered:?}"
        );
        assert!(of("offered", &[], None)[0].text.contains("this kernel cannot"));
        assert_eq!(of("offered", &[], Some(20_000_000))[0].level, Level::Ok);
    }

    /// Shows: operations.doctor-napi
    #[test]
    fn deferred_interrupts_are_sufficient() {
        let files = [
            ("sys/class/net/eth0/napi_defer_hard_irqs", "100"),
            ("sys/class/net/eth0/gro_flush_timeout", "200000"),
        ];
        assert_eq!(of("deferred", &files, None)[0].level, Level::Ok);
        assert_eq!(of("deferred", &files[..1], None)[0].level, Level::Note, "one of the two has no effect");
    }

    /// Linux 6.8 and newer list queues. An older kernel refuses with a reason.
    #[test]
    fn this_kernel_lists_queues_or_refuses() {
        match link::open().and_then(|socket| link::napis(&socket)) {
            Ok(napis) => assert!(napis.iter().all(|napi| napi.interface != 0 && napi.id != 0), "{napis:?}"),
            Err(why) => assert_ne!(why.to_string(), link::MALFORMED),
        }
    }
}
