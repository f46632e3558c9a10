//! Liveness: no false PeerDown under load, and next to nothing to do when idle.

use core::time::Duration;

use pronto::Node;

use crate::child::Child;
use crate::rig::{SOON, TRANSPORTS, add, address, all, alone, client, lasts, server};

#[test]
fn hogs_cause_no_false_peer_down() {
    let _alone = alone();
    let span = if std::env::var_os("PRONTO_SOAK").is_some() { 60 } else { 15 };
    let pairs = TRANSPORTS.map(|transport| {
        let (child, listening) = Child::node(1, &address(transport, "hogs"));
        let (node, peer) = client(2, &listening);
        add(&peer);
        (child, node.events(), node, peer)
    });
    let cores = std::thread::available_parallelism().unwrap().get();
    let hogs: Vec<_> = (0..10 * cores).map(|_| Child::start("hog", &[])).collect();
    for second in 0..span {
        lasts(Duration::from_secs(1));
        // Half of the time the nodes are quiet, half of the time they talk.
        if second % 10 >= 5 {
            pairs.iter().for_each(|(_, _, _, peer)| add(peer));
        }
    }
    drop(hogs);
    for (_child, events, _node, peer) in &pairs {
        assert_eq!(all(events), [], "a hog is not a fault");
        add(peer);
    }
}

/// Voluntary context switches and CPU time (ns) of all threads of a process.
fn activity(process: u32) -> (u64, u64) {
    let (mut switches, mut time) = (0, 0);
    for task in std::fs::read_dir(format!("/proc/{process}/task")).unwrap() {
        // A thread may end between the two looks.
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
fn an_idle_node_with_three_peers_and_a_thousand_sources_sleeps_also_after_a_peer_has_gone() {
    let _alone = alone();
    for transport in TRANSPORTS {
        let peers: Vec<Node> = (1..4)
            .map(|id| server(id, &address(transport, &format!("idle-{id}"))).start().unwrap())
            .collect();
        let mut arguments = vec!["9".to_owned(), address(transport, "idle-9")];
        arguments.extend(peers.iter().map(|node| format!("{}={}", node.id(), node.listening()[0])));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut child = Child::start("node", &arguments);
        let listening = child.hears("listening ");
        for id in 1..4 {
            child.tell(&format!("call {id} 100"));
            assert_eq!(child.hears("called "), "100 []");
        }
        for node in &peers {
            node.wait_for_peer(9, SOON).unwrap();
        }
        let visitor = Node::builder(7).peer(9, &listening).start().unwrap();
        add(&visitor.wait_for_peer(9, SOON).unwrap());
        drop(visitor);
        child.tell("register 1000");
        // Each peer is a source, too, also the one that has gone.
        let registered: usize = child.hears("registered ").parse().unwrap();
        assert!((1003..=1004).contains(&registered), "{registered}");
        lasts(Duration::from_secs(1));
        // A busy machine adds wake-ups (a lock that is held by a thread without a processor), and takes none away: the
        // quietest of six spans counts.
        let span = 6;
        let (switches, busy) = (0..6)
            .map(|_| {
                let before = activity(child.id());
                lasts(Duration::from_secs(span));
                let after = activity(child.id());
                (after.0 - before.0, Duration::from_nanos(after.1 - before.1))
            })
            .find(|(switches, busy)| *switches <= 2 * span && *busy < Duration::from_secs(span) / 1000)
            .unwrap_or_else(|| {
                panic!("{transport}: never at most {} wake-ups and 0.1 % in {span} s", 2 * span)
            });
        println!("{transport}: {switches} wake-ups and {busy:?} in {span} s");
        // It lives all the same.
        child.tell("call 1 1");
        assert_eq!(child.hears("called "), "1 []");
        drop(peers);
    }
}
