//! A node on a machine with two NUMA nodes, whose network card is near the second.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use core::time::Duration;
use std::process::Command;

use pronto_node::Node;
use pronto_node::topology::{Wish, allowed};
use pronto_rpc::Message;

const SOON: Duration = Duration::from_secs(30);
/// Address of the card.
const ADDRESS: &str = "10.99.0.1";

/// Asks for the CPUs on which the handler's thread may run.
#[derive(Debug, Message)]
#[message(name = "lab.where", reply = Here)]
struct Where {}

#[derive(Debug, Message)]
#[message(name = "lab.here")]
struct Here {
    cpus: String,
}

fn run(words: &str) {
    let mut words = words.split(' ');
    assert!(Command::new(words.next().unwrap()).args(words).status().unwrap().success());
}

/// Shows: operations.serving-place
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_serving_thread_is_near_the_card() {
    run("modprobe virtio_net");
    run("ip link set eth0 up");
    run("ip address replace 10.99.0.1/24 dev eth0");
    let serve = |node: u16, wish| {
        let builder = Node::builder(node).listen(&format!("tcp:{ADDRESS}:0")).plaintext_i_understand();
        builder.handle_inline(|_, _: Where| Here { cpus: allowed().unwrap().to_string() }).serve_on(wish)
    };
    let ask = |wish| {
        let server = serve(1, wish).start().unwrap();
        let address = server.listening()[0].to_string();
        let client = Node::builder(2).peer(1, &address).plaintext_i_understand().start().unwrap();
        let here = client.wait_for_peer(1, SOON).unwrap().call(&Where {}).unwrap();
        (server.status().placement, here.cpus)
    };
    let (placement, cpus) = ask(Wish::Auto);
    assert_eq!((&*placement, &*cpus), ("on CPUs 1: node 1, near eth0", "1"));
    let (placement, cpus) = ask(Wish::Off);
    assert_eq!((&*placement, &*cpus), ("anywhere: as configured", "0-1"));
}
