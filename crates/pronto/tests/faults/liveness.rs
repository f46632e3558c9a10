//! Liveness: no false PeerDown under load, and almost no work when idle.

use core::time::Duration;

use pronto::Node;

use crate::child::Child;
use crate::rig::{TIMEOUT, TRANSPORTS, add, address, all, client, exclusive_run, pause, server};

/// Shows: protocol.lateness
#[test]
fn hogs_cause_no_false_peer_down() {
    let _exclusive = exclusive_run();
    let span = if std::env::var_os("PRONTO_SOAK").is_some() { 60 } else { 15 };
    let pairs = TRANSPORTS.map(|transport| {
        let (child, listening) = Child::node(1, &address(transport, "hogs"));
        let (node, peer) = client(2, &listening);
        add(&peer);
        (child, node.events(), node, peer)
    });
    let cpus = std::thread::available_parallelism().unwrap().get();
    let hogs: Vec<_> = (0..10 * cpus).map(|_| Child::start("hog", &[])).collect();
    for second in 0..span {
        pause(Duration::from_secs(1));
        // The nodes are quiet half of the time and call each other in the other half.
        if second % 10 >= 5 {
            pairs.iter().for_each(|(_, _, _, peer)| add(peer));
        }
    }
    drop(hogs);
    for (_child, events, _node, peer) in &pairs {
        assert_eq!(all(events), [], "load must cause no event");
        add(peer);
    }
}

/// Returns the voluntary context switches and the CPU time (ns) of all threads of a process.
fn activity(process: u32) -> (u64, u64) {
    let (mut switches, mut time) = (0, 0);
    for task in std::fs::read_dir(format!("/proc/{process}/task")).unwrap() {
        // A thread may end between the two reads.
        let task = task.unwrap().path();
        let Ok(status) = std::fs::read_to_string(task.join("status")) else { continue };
        let Ok(ran) = std::fs::read_to_string(task.join("schedstat")) else { continue };
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        switches += line.trim().parse::<u64>().unwrap();
        time += ran.split(' ').next().unwrap().parse::<u64>().unwrap();
    }
    (switches, time)
}

#[test]
fn an_idle_node_with_many_sources_sleeps_after_a_peer_has_left() {
    let _exclusive = exclusive_run();
    for transport in TRANSPORTS {
        let peers: Vec<Node> = (1..4)
            .map(|id| server(id, &address(transport, &format!("idle-{id}"))).start().unwrap())
            .collect();
        let mut arguments = vec!["9".to_owned(), address(transport, "idle-9")];
        arguments.extend(peers.iter().map(|node| format!("{}={}", node.id(), node.listening()[0])));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut child = Child::start("node", &arguments);
        let listening = child.expect_line("listening ");
        for id in 1..4 {
            child.send_command(&format!("call {id} 100"));
            assert_eq!(child.expect_line("called "), "100 []");
        }
        for node in &peers {
            node.wait_for_peer(9, TIMEOUT).unwrap();
        }
        let visitor = Node::builder(7).peer(9, &listening).start().unwrap();
        add(&visitor.wait_for_peer(9, TIMEOUT).unwrap());
        drop(visitor);
        child.send_command("register 1000");
        // Each peer is a source, including the one that has left.
        let registered: usize = child.expect_line("registered ").parse().unwrap();
        assert!((1003..=1004).contains(&registered), "{registered}");
        pause(Duration::from_secs(1));
        let span = Duration::from_secs(12);
        let before = activity(child.id());
        pause(span);
        let after = activity(child.id());
        let (switches, busy) = (after.0 - before.0, Duration::from_nanos(after.1 - before.1));
        println!("{transport}: {switches} wake-ups and {busy:?} in {span:?}");
        // Heartbeats wake the node about once a second if those of its peers fall together. If they do not, each of the three causes a wake-up
        // in either direction, at most every 0.9 s. A node that does not sleep wakes up 250 times a second.
        assert!(switches <= 7 * span.as_secs(), "{transport}: {switches} wake-ups in {span:?}");
        assert!(busy < span / 200, "{transport}: {busy:?} of CPU time in {span:?}");
        // The node still works.
        child.send_command("call 1 1");
        assert_eq!(child.expect_line("called "), "1 []");
        drop(peers);
    }
}
