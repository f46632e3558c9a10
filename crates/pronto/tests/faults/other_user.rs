//! Shared memory and a process of another user: neither end establishes a link with it, unless it is configured as the user of a peer.

use core::time::Duration;
use std::io::IoSlice;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, sendmsg, socket,
};
use nix::unistd::{Uid, geteuid, setresuid};
use pronto::{Epoch, Node, NodeId, WaitPolicy};
use pronto_core::session::{Evidence, Identity, Limits, greet};
use pronto_fabric_shm::{Listener, SetupError};
use pronto_wire::Greeting;
use pronto_wire::greeting::MAX_GREETING;

use crate::child::{Child, command, report};
use crate::rig::{add, address, client, refused, server, shared_run, started, until};

/// A user without files or processes here (`nobody`).
const STRANGER: u32 = 65_534;

/// Reason to skip a test.
const ONLY_ROOT: &str = "only root can start a process of another user";

fn become_stranger() {
    let stranger = Uid::from_raw(STRANGER);
    setresuid(stranger, stranger, stranger).unwrap();
    assert_eq!(geteuid(), stranger);
}

/// Shows: operations.not-permitted, operations.same-user
#[test]
fn a_node_does_not_dial_a_socket_of_another_user() {
    let _shared = shared_run();
    if !geteuid().is_root() {
        return pronto_skip::because(ONLY_ROOT);
    }
    let address = address("shm", "squatted");
    let squatter = Child::start("squat", &[address.strip_prefix("shm:").unwrap()]);
    squatter.expect_line("listening");
    let node = Node::builder(2).wait(WaitPolicy::Block).peer(1, &address).start().unwrap();
    let received = squatter.expect_line("received ");
    assert_eq!(received, "Closed", "the dialler has greeted a process of another user");
    let has_reason =
        |node: &Node| node.status().failed_dials.iter().any(|(reason, _)| *reason == "not_permitted");
    until("the reason is counted", || has_reason(&node));
    let why = node.status().peers[0].last_failure.clone().unwrap_or_default();
    assert!(
        why.contains(&format!("user {STRANGER}")),
        "the error does not name the owner of the socket: {why}"
    );
    assert!(node.status().peers.iter().all(|peer| !peer.linked));
}

/// Runs the child that listens at a name as another user, and reports what its first visitor sends.
pub(crate) fn squat(name: &str) {
    become_stranger();
    let listener = Listener::bind(Path::new(name)).unwrap();
    report("listening");
    let mut visitor = listener.accept().unwrap();
    match visitor.receive(MAX_GREETING) {
        Ok(greeting) => report(&format!("received a greeting of {} bytes", greeting.len())),
        Err(SetupError::Closed) => report("received Closed"),
        Err(error) => report(&format!("received {error}")),
    }
    while !command().is_empty() {}
}

/// Shows: operations.not-permitted, operations.same-user
#[test]
fn a_node_refuses_a_visitor_of_another_user() {
    let _shared = shared_run();
    if !geteuid().is_root() {
        return pronto_skip::because(ONLY_ROOT);
    }
    let (node, address) = started(1, "shm", "visited");
    let (_good, peer) = client(2, &address);
    let visitor = Child::start("visit", &[address.strip_prefix("shm:@").unwrap()]);
    assert_eq!(visitor.expect_line("reply "), "Err(Refused { refusal: NotPermitted, by: NodeId(1) })");
    until("the reason is counted", || refused(&node, "not_permitted") == 1);
    assert!(node.status().peers.iter().all(|known| known.node != NodeId(9)));
    add(&peer);
}

/// Runs the child that greets a node as another user, with the packets of a real handshake. Reports the reply.
pub(crate) fn visit(name: &str) {
    become_stranger();
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
    connect(socket.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes()).unwrap()).unwrap();
    let me = Identity { node: NodeId(9), epoch: Epoch(5), name: String::new(), types: Vec::new() };
    let greeting = greet(&me, &Limits::default(), NodeId(1), None).encode();
    for packet in [&u32::try_from(greeting.len()).unwrap().to_le_bytes()[..], &greeting] {
        // The node may have refused this process before it has sent anything.
        let flags = MsgFlags::MSG_NOSIGNAL;
        let _refused = sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(packet)], &[], flags, None);
    }
    let mut reply = vec![0; 1 << 16];
    let mut receive = || match recv(socket.as_raw_fd(), &mut reply, MsgFlags::empty()) {
        // The node has left packets unread. The socket reports this once, before the node's reply.
        Err(Errno::ECONNRESET) => recv(socket.as_raw_fd(), &mut reply, MsgFlags::empty()),
        received => received,
    };
    assert_eq!(receive(), Ok(4));
    let len = receive().unwrap();
    report(&format!("reply {:?}", Greeting::decode(&reply[..len]).map(|greeting| greeting.node)));
    while !command().is_empty() {}
}

/// Two nodes of different users, each with the other one as a peer of its user. The node of this test listens.
///
/// Shows: operations.peer-user, operations.allow-users
#[test]
fn nodes_of_configured_users_link_over_shared_memory() {
    let _shared = shared_run();
    if !geteuid().is_root() {
        return pronto_skip::because(ONLY_ROOT);
    }
    let folder = std::env::temp_dir().join(format!("pronto-users-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let address = format!("shm:{}", folder.join("1.sock").display());
    let rules = |builder: pronto::Builder| builder.allow(&["uid:65534"], &["faults.*"]);
    let node = rules(server(1, &address)).peer_user(2, STRANGER).start().unwrap();
    // The other user has the id of its own peer, and no other one.
    let visitor = Child::start("call-as-stranger", &["3", &address]);
    let called = visitor.expect_line("called ");
    assert!(called.starts_with("false") && called.contains("may not connect with its id"), "{called}");
    until("the reason is counted", || refused(&node, "not_permitted") != 0);
    let peer = Child::start("call-as-stranger", &["2", &address]);
    let called = peer.expect_line("called ");
    assert!(called.starts_with("true"), "{called}");
    let info = node.status().peers.iter().find(|peer| peer.node == NodeId(2)).and_then(|peer| peer.info);
    assert_eq!(info.unwrap().evidence, Evidence::User);
    // A process of this user is not node 2.
    drop(peer);
    let own = Node::builder(2).wait(WaitPolicy::Block).peer(1, &address).start().unwrap();
    until("the id is refused", || {
        let why = own.status().peers[0].last_failure.clone().unwrap_or_default();
        why.contains("may not connect with its id")
    });
    std::fs::remove_dir_all(folder).unwrap();
}

/// Runs the child that calls a node as another user.
pub(crate) fn call_as_stranger(id: &str, address: &str) {
    become_stranger();
    let node =
        Node::builder(id.parse::<u16>().unwrap()).wait(WaitPolicy::Block).peer(1, address).peer_user(1, 0);
    let node = node.start().unwrap();
    let called = node.wait_for_peer(1, Duration::from_secs(2)).is_ok_and(|peer| {
        add(&peer);
        true
    });
    let why = node.status().peers[0].last_failure.clone().unwrap_or_default();
    report(&format!("called {called} {why}"));
    while !command().is_empty() {}
}
