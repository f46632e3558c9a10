//! Where on its machine a node is: what is asked for is done, told, and done to nobody else.

use core::time::Duration;
use std::path::Path;

use pronto::topology::{Cpus, Wish, allowed};
use pronto::{Config, Message, Node};

const SOON: Duration = Duration::from_secs(10);

/// Where a thread that runs a handler may run.
#[derive(Debug, Message)]
#[message(name = "test.where", reply = Here)]
struct Where {}

/// The same, asked of the pool.
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
    Here { thread, cpus: allowed().expect("the kernel tells").to_string() }
}

fn one_of(all: &Cpus) -> Cpus {
    all.iter().take(1).collect()
}

#[test]
fn the_serving_thread_is_put_and_no_other() {
    let all = allowed().expect("the kernel tells");
    let one = one_of(&all);
    let server = Node::builder(1)
        .listen("tcp:127.0.0.1:0")
        .wait(pronto::WaitPolicy::Block)
        .handle_inline(|_, _: Where| here())
        .handle(|_, _: WherePooled| here())
        .serve_on(Wish::On(one.clone()))
        .start()
        .expect("it starts");
    assert_eq!(server.status().placement.split(';').next(), Some(&*format!("on CPUs {one}, as configured")));
    let address = server.listening()[0].to_string();
    let client = Node::builder(2).peer(1, &address).start().expect("it starts");
    let peer = client.wait_for_peer(1, SOON).expect("they meet");
    let inline = peer.call(&Where {}).expect("an answer");
    assert_eq!((&*inline.thread, inline.cpus), ("pronto-serve", one.to_string()));
    // The serving thread starts the worker, which must not be bound by it.
    let pooled = peer.call(&WherePooled {}).expect("an answer");
    assert!(pooled.thread.starts_with("pronto-worker"), "{}", pooled.thread);
    assert_eq!(pooled.cpus, all.to_string());
    assert_eq!(allowed(), Ok(all), "nor must who started the node");
}

#[test]
fn nothing_is_done_where_nothing_is_asked_for_and_where_there_is_one_node() {
    let all = allowed().expect("the kernel tells");
    let placed = |wish| {
        let node =
            Node::builder(1).listen("tcp:127.0.0.1:0").handle_inline(|_, _: Where| here()).serve_on(wish);
        let node = node.start().expect("it starts");
        let address = node.listening()[0].to_string();
        let client = Node::builder(2).peer(1, &address).start().expect("it starts");
        let answer = client.wait_for_peer(1, SOON).expect("they meet").call(&Where {}).expect("an answer");
        assert_eq!(answer.cpus, all.to_string());
        node.status().placement
    };
    let off = placed(Wish::Off);
    assert!(off.starts_with("anywhere: as configured"), "{off}");
    // The node is reached by the loopback interface, which is near everything.
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

#[test]
fn what_cannot_be_is_refused_at_the_start() {
    let start = |placement: &str| {
        let config = Config::parse(&format!("node = 1\n[placement]\n{placement}"));
        let builder = || Node::from_config(config.as_ref().expect("it is well written")).expect("it is good");
        let said = builder().start().expect_err("it cannot be").to_string();
        assert_eq!(builder().check().expect_err("and is found before").to_string(), said);
        said
    };
    let here = allowed().expect("the kernel tells");
    for far in ["8191", "0-8191"] {
        let said = start(&format!("serving = \"{far}\""));
        assert!(said.starts_with(&format!("placement.serving = \"{far}\": this process may not")), "{said}");
        assert!(said.ends_with(&format!("name some of {here}")), "{said}");
    }
    assert!(start("serving = \"auto\"\ndevice = \"none0\"").contains("no network interface or RDMA device"));
}
