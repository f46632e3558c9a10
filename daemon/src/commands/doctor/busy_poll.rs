//! Busy polling of network devices: the system-wide settings, and what the kernel permits a node to request.

use pronto::progress::{BusyPollError, busy_poll_offered};
use pronto_fabric_tcp::{SocketOffers, socket_offers};

use super::finding::Finding;
use super::machine::Machine;

const SUBJECT: &str = "busy poll";

pub(super) fn probe(machine: &Machine) -> Vec<Finding> {
    let mut found = vec![sysctls(machine)];
    found.extend(sockets(socket_offers()));
    found.push(epoll(busy_poll_offered()));
    found
}

/// Checks the system-wide settings (Documentation/admin-guide/sysctl/net.rst).
fn sysctls(machine: &Machine) -> Finding {
    let value = |name: &str| machine.number(&format!("proc/sys/net/core/{name}"));
    match (value("busy_poll"), value("busy_read")) {
        (Some(0), Some(0)) => Finding::ok(
            SUBJECT,
            "off for all sockets (net.core.busy_poll, busy_read); nodes request it for their own sockets",
        ),
        (Some(poll), Some(read)) => Finding::note(
            SUBJECT,
            format!("on for every process: net.core.busy_poll {poll} us, busy_read {read} us"),
            "sysctl net.core.busy_poll=0 net.core.busy_read=0, and [tcp] busy_poll_us for the nodes that want it",
        ),
        _ => Finding::note(
            SUBJECT,
            "this kernel has no busy polling",
            "use a kernel with CONFIG_NET_RX_BUSY_POLL, for [tcp] busy_poll_us",
        ),
    }
}

fn sockets(offers: SocketOffers) -> Vec<Finding> {
    let SocketOffers { busy_poll, prefer, incoming_napi } = offers;
    let each = [
        (
            "SO_BUSY_POLL",
            busy_poll,
            "give the node CAP_NET_ADMIN, or use a newer kernel, for [tcp] busy_poll_us",
        ),
        ("SO_PREFER_BUSY_POLL", prefer, "give the node CAP_NET_ADMIN, for [tcp] prefer_busy_poll"),
        ("SO_INCOMING_NAPI_ID", incoming_napi, "Linux 4.12 or newer with CONFIG_NET_RX_BUSY_POLL"),
    ];
    let finding = |(option, tried, advice): (&str, Result<(), _>, &str)| match tried {
        Ok(()) => Finding::ok(SUBJECT, format!("sockets: {option} is permitted")),
        Err(errno) => Finding::note(SUBJECT, format!("sockets: {option} is refused: {errno}"), advice),
    };
    each.map(finding).into()
}

fn epoll(offered: Result<(), BusyPollError>) -> Finding {
    match offered {
        Ok(()) => Finding::ok(
            SUBJECT,
            "epoll: EPIOCSPARAMS is supported, so the serving thread can poll devices while it sleeps",
        ),
        Err(why) => Finding::note(
            SUBJECT,
            format!("epoll: no EPIOCSPARAMS: {why}"),
            "Linux 6.9 or newer, for [tcp] busy_poll_us",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn system_wide_polling_is_noted() {
        let level = |poll: &str, read: &str| {
            let files = [("proc/sys/net/core/busy_poll", poll), ("proc/sys/net/core/busy_read", read)];
            sysctls(&Machine::recorded("sysctls", &files)).level
        };
        assert_eq!(level("0", "0"), Level::Ok);
        assert_eq!(level("0", "50"), Level::Note);
    }

    #[test]
    fn a_refusal_has_a_reason() {
        let why = epoll(Err(BusyPollError::TooOld));
        assert!(why.level == Level::Note && why.text.contains("needs Linux 6.9 or later"), "{why:?}");
        assert_eq!(epoll(Ok(())).level, Level::Ok);
    }
}
