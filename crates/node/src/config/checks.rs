//! Checks of node ids and addresses that need more than the type of one value: ranges, duplicates, existing folders.

use pronto_wire::NodeId;

use crate::config::ConfigError;
use crate::config::address::Address;
use crate::error::NodeError;
use crate::status::admin::FIRST_VISITOR;

/// Largest id of a node that is not a visitor.
pub(crate) const LAST_NODE: u16 = FIRST_VISITOR.0 - 1;

/// Checks that an id is in the range of configured nodes.
pub(crate) fn number(key: &'static str, node: NodeId) -> Result<(), ConfigError> {
    if (1..=LAST_NODE).contains(&node.0) {
        return Ok(());
    }
    Err(ConfigError::Range { key, value: node.0.into(), least: 1, most: LAST_NODE.into() })
}

/// Checks that a user is one: in a user namespace all users without a number there have the same number (user_namespaces(7)).
pub(crate) fn user(user: u32) -> Result<(), ConfigError> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    check_user(user, &read("/proc/sys/kernel/overflowuid"), &read("/proc/self/uid_map"))
}

fn check_user(user: u32, without_number: &str, map: &str) -> Result<(), ConfigError> {
    let is_whole = map.split_whitespace().eq(["0", "0", "4294967295"]);
    if !is_whole && without_number.trim().parse() == Ok(user) {
        return Err(ConfigError::Overflow { user });
    }
    Ok(())
}

/// Checks that no two peers share an address, that no peer has an address twice, and that none has an address where this node
/// itself listens.
pub(crate) fn peers(peers: &[(NodeId, Vec<Address>)], listen: &[Address]) -> Result<(), ConfigError> {
    for (place, (peer, addresses)) in peers.iter().enumerate() {
        if let Some(address) = addresses.iter().find(|address| listen.contains(address)) {
            return Err(ConfigError::OwnAddress { peer: peer.0, address: address.clone() });
        }
        if let Some(address) = twice(addresses) {
            return Err(ConfigError::PeerAddressTwice { peer: peer.0, address: address.clone() });
        }
        let shares = |(other, theirs): &(NodeId, Vec<Address>)| {
            let address = addresses.iter().find(|address| theirs.contains(address))?;
            Some(ConfigError::SharedAddress { peers: [other.0, peer.0], address: address.clone() })
        };
        if let Some(error) = peers[..place].iter().find_map(shares) {
            return Err(error);
        }
    }
    Ok(())
}

/// Checks that the node does not listen twice at one address. Each port 0 stands for a different port.
pub(crate) fn listen(listen: &[Address]) -> Result<(), ConfigError> {
    let fixed: Vec<_> = listen.iter().filter(|address| !has_any_port(address)).cloned().collect();
    match twice(&fixed) {
        Some(address) => Err(ConfigError::ListenTwice { address: address.clone() }),
        None => Ok(()),
    }
}

/// Checks that the folder of a Unix socket exists. Abstract names have no folder.
pub(crate) fn folder(address: &Address) -> Result<(), NodeError> {
    let Some(path) = address.file() else { return Ok(()) };
    match path.parent() {
        Some(folder) if !folder.is_dir() => {
            Err(NodeError::NoFolder { address: address.clone(), folder: folder.into() })
        }
        _ => Ok(()),
    }
}

/// Checks that the address of a Unix socket is not a folder.
pub(crate) fn is_no_folder(key: &'static str, address: &Address) -> Result<(), NodeError> {
    match address.file() {
        Some(path) if path.is_dir() => Err(NodeError::IsFolder { key, address: address.clone() }),
        _ => Ok(()),
    }
}

/// Checks that an address is on this host.
pub(crate) fn stays_here(key: &'static str, address: &Address) -> Result<(), NodeError> {
    match address {
        Address::Tcp(socket) if !socket.ip().to_canonical().is_loopback() => {
            Err(NodeError::Plaintext { key, address: *socket })
        }
        _ => Ok(()),
    }
}

fn has_any_port(address: &Address) -> bool {
    matches!(address, Address::Tcp(socket) if socket.port() == 0)
}

fn twice(addresses: &[Address]) -> Option<&Address> {
    let again = |(place, address): &(usize, &Address)| addresses[..*place].contains(address);
    addresses.iter().enumerate().find(again).map(|(_, address)| address)
}

#[cfg(test)]
mod tests {
    use super::check_user;
    use crate::{Builder, ConfigError, Node};

    fn wrong(node: Builder) -> String {
        node.start().expect_err("it must not start").to_string()
    }

    /// Shows: operations.peer-user-number
    #[test]
    fn the_number_of_all_users_without_one_is_no_user() {
        let (whole, part) = ("         0          0 4294967295\n", "         0     100000      65536\n");
        assert!(check_user(65_534, "65534\n", whole).is_ok());
        assert!(matches!(check_user(65_534, "65534\n", part), Err(ConfigError::Overflow { user: 65_534 })));
        assert!(check_user(1_000, "65534\n", part).is_ok());
    }

    /// Shows: operations.ids
    #[test]
    fn ids_are_in_the_range_of_nodes() {
        let range = "must be from 1 to 63999";
        for number in [0, 64_000, 65_000] {
            assert_eq!(wrong(Node::builder(number)), format!("node = {number}: {range}"));
            let peer = Node::builder(1).peer(number, "shm:@nobody");
            assert_eq!(wrong(peer), format!("peer.node = {number}: {range}"));
        }
        assert!(Node::visitor().check().is_ok());
    }

    /// Shows: operations.folder
    #[test]
    fn sockets_have_existing_folders() {
        let text = wrong(Node::builder(1).listen("shm:/tmp/pronto-no-such-folder/1.sock"));
        assert!(text.contains("folder /tmp/pronto-no-such-folder does not exist: create it"), "{text}");
        assert!(Node::builder(1).listen("shm:@no/folder").listen("shm:/tmp/here.sock").check().is_ok());
        let advice = "which is a folder: name a file in it, such as shm:/tmp/1.sock";
        let text = wrong(Node::builder(1).listen("shm:/tmp"));
        assert_eq!(text, format!("listen names shm:/tmp, {advice}"));
        let text = wrong(Node::builder(1).peer(2, "shm:/tmp/"));
        assert_eq!(text, format!("peer.address names shm:/tmp/, {advice}"));
    }

    /// Shows: operations.plaintext
    #[test]
    fn addresses_of_other_hosts_are_named_with_their_key() {
        let text = wrong(Node::builder(1).listen("tcp:0.0.0.0:7001"));
        assert!(text.starts_with("listen names 0.0.0.0:7001, which is not a loopback address"), "{text}");
        let text = wrong(Node::builder(1).peer(2, "tcp:10.0.0.2:7001"));
        assert!(text.starts_with("peer.address names 10.0.0.2:7001"), "{text}");
    }

    #[test]
    fn addresses_are_named_once() {
        let again = Node::builder(1).peer(2, "shm:@two").peer(2, "shm:@two");
        assert_eq!(wrong(again), "peer 2 has the address shm:@two twice: name it once");
        let shared = Node::builder(1).peer(2, "shm:@two").peer(3, "shm:@three").peer(3, "shm:@two");
        let text = wrong(shared);
        assert!(text.starts_with("peers 2 and 3 have the same address, shm:@two: "), "{text}");
        let own = Node::builder(1).listen("shm:@one").peer(2, "shm:@one");
        assert!(wrong(own).starts_with("peer 2 has the address shm:@one, where this node itself listens: "));
        let listens = Node::builder(1).listen("tcp:127.0.0.1:7001").listen("tcp:127.0.0.1:7001");
        assert_eq!(wrong(listens), "listen names tcp:127.0.0.1:7001 twice: name it once");
        let ports = Node::builder(1).listen("tcp:127.0.0.1:0").listen("tcp:127.0.0.1:0");
        assert!(ports.check().is_ok(), "the system chooses two different ports");
        assert!(Node::builder(1).peer(2, "shm:@a").peer(2, "shm:@b").check().is_ok());
    }
}
