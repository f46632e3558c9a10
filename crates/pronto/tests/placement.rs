//! Placement of a node on its machine: it is applied as configured, reported, and affects no other thread.

use core::time::Duration;
use std::path::Path;

use pronto::topology::{Cpus, Wish, allowed};
use pronto::{Config, Message, Node};

const TIMEOUT: Duration = Duration::from_secs(10);

/// Request for the CPUs on which the inline handler may run.
#[derive(Debug, Message)]
#[message(name = "test.where", reply = Here)]
struct Where {}

/// Request for the CPUs on which a handler on the pool may run.
#[derive(Debug, Message)]
#[message(name = "test.where_pooled", reply = Here)]
struct WherePooled {}

#[derive(Debug, Message)]
#[message(name = "test.here")]
struct Here {
    thread: String,
    cpus: String,
}

fn here() -> Here {
    let thread = std::thread::current().name().unwrap_or_default().to_owned();
    Here { thread, cpus: allowed().expect("the kernel reports its CPUs").to_string() }
}

fn one_of(all: &Cpus) -> Cpus {
    all.iter().take(1).collect()
}

/// Shows: calls.handle, calls.inline, operations.placement-status, operations.workers-place
#[test]
fn only_the_serving_thread_is_bound() {
    let all = allowed().expect("the kernel reports its CPUs");
    let one = one_of(&all);
    let server = Node::builder(1)
        .listen("tcp:127.0.0.1:0")
        .wait(pronto::WaitPolicy::Block)
        .handle_inline(|_, _: Where| here())
        .handle(|_, _: WherePooled| here())
        .serve_on(Wish::On(one.clone()))
        .start()
        .expect("the node starts");
    assert_eq!(server.status().placement.split(';').next(), Some(&*format!("on CPUs {one}, as configured")));
    let address = server.listening()[0].to_string();
    let client = Node::builder(2).peer(1, &address).start().expect("the node starts");
    let peer = client.wait_for_peer(1, TIMEOUT).expect("the nodes connect");
    let inline = peer.call(&Where {}).expect("a reply");
    assert_eq!((&*inline.thread, inline.cpus), ("pronto-serve", one.to_string()));
    // The serving thread starts the worker, which must not inherit its affinity.
    let pooled = peer.call(&WherePooled {}).expect("a reply");
    assert!(pooled.thread.starts_with("pronto-worker"), "{}", pooled.thread);
    assert_eq!(pooled.cpus, all.to_string());
    assert_eq!(allowed(), Ok(all), "the thread that started the node must keep its affinity");
}

/// Shows: operations.one-numa-node, operations.serving-set
#[test]
fn placement_does_nothing_if_off_or_with_a_single_numa_node() {
    let all = allowed().expect("the kernel reports its CPUs");
    let placed = |wish| {
        let node =
            Node::builder(1).listen("tcp:127.0.0.1:0").handle_inline(|_, _: Where| here()).serve_on(wish);
        let node = node.start().expect("the node starts");
        let address = node.listening()[0].to_string();
        let client = Node::builder(2).peer(1, &address).start().expect("the node starts");
        let reply =
            client.wait_for_peer(1, TIMEOUT).expect("the nodes connect").call(&Where {}).expect("a reply");
        assert_eq!(reply.cpus, all.to_string());
        node.status().placement
    };
    let off = placed(Wish::Off);
    assert!(off.starts_with("anywhere: as configured"), "{off}");
    // The node is reached through the loopback interface, which is near every CPU.
    let auto = placed(Wish::Auto);
    assert!(auto.starts_with("anywhere: "), "{auto}");
    let nodes = std::fs::read_dir(Path::new("/sys/devices/system/node")).map_or(0, |entries| {
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter(|name| name.strip_prefix("node").is_some_and(|id| id.parse::<u32>().is_ok())).count()
    });
    if nodes < 2 {
        assert_eq!(auto, "anywhere: this machine has one NUMA node, so there is nothing to choose");
        assert_eq!(off, "anywhere: as configured; this machine has one NUMA node");
    }
}

/// Shows: operations.listed-cpus
#[test]
fn an_invalid_placement_is_refused_at_the_start() {
    let start = |placement: &str| {
        let config = Config::parse(&format!("node = 1\n[placement]\n{placement}"));
        let builder = || {
            Node::from_config(config.as_ref().expect("the configuration parses"))
                .expect("the configuration is valid")
        };
        let error = builder().start().expect_err("the placement is invalid").to_string();
        assert_eq!(builder().check().expect_err("the check finds it too").to_string(), error);
        error
    };
    let here = allowed().expect("the kernel reports its CPUs");
    for far in ["8191", "0-8191"] {
        let error = start(&format!("serving = \"{far}\""));
        assert!(
            error.starts_with(&format!("placement.serving = \"{far}\": this process may not")),
            "{error}"
        );
        assert!(error.ends_with(&format!("name some of {here}")), "{error}");
    }
    assert!(start("serving = \"auto\"\ndevice = \"none0\"").contains("no network interface or RDMA device"));
}
