//! Names and identities of nodes and operators.

use core::fmt;

use pronto_wire::id::NodeId;

use crate::timestamp::Timestamp;

/// First id of visitors: short-lived nodes that ask another node something. A certificate cannot name one.
pub const FIRST_VISITOR: NodeId = NodeId(64_000);

/// Name in a certificate, or of a pinned key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Name {
    /// A node: `spiffe://DOMAIN/pronto/node/2`.
    Node(NodeId),
    /// A person or a program that visits nodes: `spiffe://DOMAIN/pronto/operator/alice`.
    Operator(String),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node {node}"),
            Self::Operator(operator) => write!(f, "operator {operator}"),
        }
    }
}

/// A verified identity: a name, and what goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The node or the operator.
    pub name: Name,
    /// Roles in the certificate, `spiffe://DOMAIN/pronto/role/ROLE`, sorted and each once. A pinned key has none.
    pub roles: Vec<String>,
    /// End of the certificate's validity. A pinned key has none.
    pub not_after: Option<Timestamp>,
}

impl Identity {
    /// Returns whether a peer with this identity may claim to be `node`: its own id, or the id of a visitor
    /// ([`FIRST_VISITOR`] and above), which any identity may use.
    pub fn may_be(&self, node: NodeId) -> bool {
        node >= FIRST_VISITOR || self.name == Name::Node(node)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)?;
        if !self.roles.is_empty() {
            write!(f, " ({})", self.roles.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_may_be_itself_or_a_visitor() {
        let of = |name| Identity { name, roles: Vec::new(), not_after: None };
        let node = of(Name::Node(NodeId(2)));
        assert!(node.may_be(NodeId(2)) && node.may_be(FIRST_VISITOR) && node.may_be(NodeId(u16::MAX)));
        assert!(!node.may_be(NodeId(3)) && !node.may_be(NodeId(63_999)));
        let operator = of(Name::Operator("alice".to_owned()));
        assert!(operator.may_be(FIRST_VISITOR) && !operator.may_be(NodeId(2)));
    }
}
