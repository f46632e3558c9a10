//! The permissions of peers to use message types: the rules of `[[allow]]`.
//!
//! Without a rule every peer may use every type but those that tell about the node: they are for processes of the same user, for certificates
//! with the role `admin`, and for visitors with the node's own certificate or key. With rules, a peer may use the types that a rule for it names. The node's own types, whose names begin
//! with `pronto.`, are not among those of `*`: a rule has to name them. Processes of the same user may always use them.

use core::fmt;
use core::str::FromStr;

use pronto_core::session::Evidence;
use pronto_rpc::{Message as _, Route};
use pronto_trust::{Identity, Name};
use pronto_wire::NodeId;
use thiserror::Error;

use crate::config::checks::LAST_NODE;
use crate::host::{NodeHost, NodeSession};
use crate::status::admin::{RecentRequest, StatusRequest, WaitingRequest};

/// Beginning of the names of the types that every node has.
const OWN: &str = "pronto.";

/// The types that tell about the node, or change it.
const ADMINISTRATION: [&str; 3] = [StatusRequest::NAME, RecentRequest::NAME, WaitingRequest::NAME];
/// The role of certificates that may use them as long as there is no rule.
const ADMIN: &str = "admin";

/// The peers that a rule is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The node with this id.
    Node(NodeId),
    /// Processes of the same user, over shared memory.
    SameUser,
    /// Nodes of the user with this number, over shared memory.
    User(u32),
    /// The peers whose certificates have this role.
    Role(String),
    /// Every peer.
    Anyone,
}

/// The names of the message types that a rule permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Types {
    /// The type with this name.
    Named(String),
    /// The types whose names begin so.
    Beginning(String),
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) who: Vec<Subject>,
    pub(crate) types: Vec<Types>,
}

/// Reason why a text of a rule is rejected.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RuleError {
    /// The text names no peers.
    #[error(
        "allow.who: {0:?} names no peer: write node:1 to node:63999, role:NAME, uid:NUMBER, same-user or anyone"
    )]
    Subject(String),
    /// The text names no types.
    #[error(
        "allow.types: {0:?} names no message types: write bank.deposit, bank.* or *, with the star at the end"
    )]
    Types(String),
    /// The list of rules is there, and empty.
    #[error(
        "allow = []: without rules almost everything is permitted: remove the key, or write a rule that permits little"
    )]
    NoRules,
    /// A rule has an empty list.
    #[error("allow.{0} is empty: a rule needs peers and types")]
    Empty(&'static str),
}

impl FromStr for Subject {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        match text {
            "same-user" => Ok(Self::SameUser),
            "anyone" => Ok(Self::Anyone),
            _ => {
                if let Some(role) = text.strip_prefix("role:").filter(|role| pronto_trust::is_word(role)) {
                    return Ok(Self::Role(role.into()));
                }
                if let Some(user) = text.strip_prefix("uid:").and_then(|number| number.parse().ok()) {
                    return Ok(Self::User(user));
                }
                let node = text.strip_prefix("node:").and_then(|number| number.parse().ok());
                let node = node.filter(|number| (1..=LAST_NODE).contains(number));
                node.map(|number| Self::Node(NodeId(number))).ok_or_else(|| RuleError::Subject(text.into()))
            }
        }
    }
}

impl FromStr for Types {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let (name, is_beginning) = text.strip_suffix('*').map_or((text, false), |name| (name, true));
        let is_name = (is_beginning || !name.is_empty()) && !name.contains(['*', ' ']);
        match (is_name, is_beginning) {
            (false, _) => Err(RuleError::Types(text.into())),
            (true, false) => Ok(Self::Named(name.into())),
            (true, true) => Ok(Self::Beginning(name.into())),
        }
    }
}

impl fmt::Display for Types {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::Beginning(name) => write!(f, "{name}*"),
        }
    }
}

impl Types {
    fn include(&self, name: &str) -> bool {
        match self {
            Self::Named(named) => named == name,
            Self::Beginning(beginning) => {
                name.starts_with(beginning.as_str()) && (beginning.starts_with(OWN) || !name.starts_with(OWN))
            }
        }
    }
}

impl Rule {
    /// Returns a rule of these texts.
    ///
    /// # Errors
    /// A text is wrong, or a list is empty.
    pub(crate) fn new<T: AsRef<str>>(who: &[T], types: &[T]) -> Result<Self, RuleError> {
        for (list, name) in [(who, "who"), (types, "types")] {
            if list.is_empty() {
                return Err(RuleError::Empty(name));
            }
        }
        let who = who.iter().map(|text| text.as_ref().parse()).collect::<Result<_, _>>()?;
        let types = types.iter().map(|text| text.as_ref().parse()).collect::<Result<_, _>>()?;
        Ok(Self { who, types })
    }

    fn is_for(&self, subjects: &Subjects<'_>) -> bool {
        self.who.iter().any(|who| match who {
            Subject::Node(node) => *node == subjects.peer,
            Subject::SameUser => subjects.evidence == Evidence::SameUser,
            Subject::User(user) => subjects.user == Some(*user),
            Subject::Role(role) => subjects.has_role(role),
            Subject::Anyone => true,
        })
    }
}

/// The peer of a link, as rules name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subjects<'a> {
    /// This node.
    pub(crate) node: NodeId,
    pub(crate) peer: NodeId,
    pub(crate) evidence: Evidence,
    /// The user of its processes, over shared memory.
    pub(crate) user: Option<u32>,
    /// The identity that it has proved by its certificate or key.
    pub(crate) identity: Option<&'a Identity>,
}

impl Subjects<'_> {
    /// Returns the proved identity. A link over shared memory proves none, also if an earlier one has.
    fn proved(&self) -> Option<&Identity> {
        self.identity.filter(|_| matches!(self.evidence, Evidence::Certificate | Evidence::Key))
    }

    fn has_role(&self, role: &str) -> bool {
        self.proved().is_some_and(|identity| identity.roles.iter().any(|has| has == role))
    }

    /// Returns whether the peer may learn about the node without a rule.
    fn administer(&self) -> bool {
        self.has_role(ADMIN) || self.proved().is_some_and(|identity| identity.name == Name::Node(self.node))
    }
}

/// All rules of a node.
#[derive(Debug, Default)]
pub(crate) struct Rules(pub(crate) Vec<Rule>);

impl Rules {
    /// Returns whether a peer may use the type with this name.
    fn permit(&self, subjects: &Subjects<'_>, name: &str) -> bool {
        let own = subjects.evidence == Evidence::SameUser && name.starts_with(OWN);
        if self.0.is_empty() {
            return own || !ADMINISTRATION.contains(&name) || subjects.administer();
        }
        let mut of_peer = self.0.iter().filter(|rule| rule.is_for(subjects));
        own || of_peer.any(|rule| rule.types.iter().any(|types| types.include(name)))
    }

    /// Returns the nodes that rules name.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.0.iter().flat_map(|rule| &rule.who).filter_map(|subject| match subject {
            Subject::Node(node) => Some(*node),
            Subject::SameUser | Subject::User(_) | Subject::Role(_) | Subject::Anyone => None,
        })
    }

    /// Returns whether a rule names roles, which only certificates have.
    pub(crate) fn name_roles(&self) -> bool {
        self.0.iter().flat_map(|rule| &rule.who).any(|subject| matches!(subject, Subject::Role(_)))
    }

    /// Sets what a peer may use, before its link is installed.
    pub(crate) fn apply(&self, session: &NodeSession, subjects: &Subjects<'_>, routes: &[Route<NodeHost>]) {
        if self.0.is_empty() && subjects.evidence == Evidence::SameUser {
            return session.permissions().permit_all();
        }
        let permits = |number: usize| self.permit(subjects, routes[number].name);
        session.permissions().permit_only(routes.len(), permits);
    }

    /// Returns the types of rules that this node does not have. `*` names none.
    pub(crate) fn without_types<'a>(
        &'a self,
        routes: &'a [Route<NodeHost>],
    ) -> impl Iterator<Item = &'a Types> {
        let all = self.0.iter().flat_map(|rule| &rule.types);
        all.filter(|types| {
            **types != Types::Beginning(String::new())
                && !routes.iter().any(|route| types.include(route.name))
        })
    }
}

#[cfg(test)]
mod tests {
    use pronto_trust::FIRST_VISITOR;

    use super::*;
    use crate::Config;

    fn rules(rules: &[(&[&str], &[&str])]) -> Rules {
        Rules(rules.iter().map(|(who, types)| Rule::new(who, types).unwrap()).collect())
    }

    fn identity(name: Name, roles: &[&str]) -> Identity {
        let roles = roles.iter().map(|role| (*role).into()).collect();
        Identity { name, roles, not_after: None }
    }

    fn subjects(evidence: Evidence, identity: &Identity) -> Subjects<'_> {
        Subjects { node: NodeId(1), peer: FIRST_VISITOR, evidence, user: None, identity: Some(identity) }
    }

    /// Shows: operations.allow-users
    #[test]
    fn a_rule_names_the_user_of_a_peer() {
        let rules = rules(&[(&["uid:1001"], &["bank.*"])]);
        let of =
            |evidence, user| Subjects { node: NodeId(1), peer: NodeId(2), evidence, user, identity: None };
        for (evidence, user, permitted) in [
            (Evidence::User, Some(1001), true),
            (Evidence::SameUser, Some(1001), true),
            (Evidence::User, Some(1002), false),
            (Evidence::Claim, None, false),
        ] {
            assert_eq!(
                rules.permit(&of(evidence, user), "bank.deposit"),
                permitted,
                "{evidence:?}, {user:?}"
            );
        }
        assert!(!rules.permit(&of(Evidence::User, Some(1001)), "pronto.status"));
        assert!(!Rules::default().permit(&of(Evidence::User, Some(1001)), "pronto.status"));
    }

    #[test]
    fn a_rule_for_the_same_user_includes_no_other_user() {
        let rules = rules(&[(&["same-user"], &["bank.*"])]);
        let other = identity(Name::Node(NodeId(2)), &[]);
        for (evidence, permitted) in [
            (Evidence::SameUser, true),
            (Evidence::User, false),
            (Evidence::Certificate, false),
            (Evidence::Key, false),
            (Evidence::Claim, false),
        ] {
            assert_eq!(rules.permit(&subjects(evidence, &other), "bank.deposit"), permitted, "{evidence:?}");
        }
    }

    /// Shows: operations.allow-own
    #[test]
    fn a_peer_may_use_what_a_rule_names_for_it() {
        let rules = rules(&[
            (&["node:2", "node:3"], &["bank.*", "time.now"]),
            (&["anyone"], &["*"]),
            (&["node:4"], &["pronto.status", "pronto.rendezvous.*"]),
        ]);
        let only_bank = Rules(rules.0[..1].to_vec());
        for (rules, peer, same_user, name, permitted) in [
            (&only_bank, 2, false, "bank.deposit", true),
            (&only_bank, 2, false, "banks", false),
            (&only_bank, 3, false, "time.now", true),
            (&only_bank, 3, false, "time.nowhere", false),
            (&only_bank, 4, false, "bank.deposit", false),
            (&only_bank, 4, true, "bank.deposit", false),
            (&only_bank, 4, true, "pronto.status", true),
            (&rules, 9, false, "banks", true),
            (&rules, 9, false, "pronto.status", false),
            (&rules, 4, false, "pronto.status", true),
            (&rules, 4, false, "pronto.rendezvous.offer", true),
            (&rules, 4, false, "pronto.recent", false),
        ] {
            let evidence = if same_user { Evidence::SameUser } else { Evidence::Claim };
            let (node, peer) = (NodeId(1), NodeId(peer));
            let subjects = Subjects { node, peer, evidence, user: None, identity: None };
            assert_eq!(rules.permit(&subjects, name), permitted, "{name} for {peer}");
        }
    }

    /// Shows: operations.allow-none
    #[test]
    fn without_rules_the_state_of_a_node_is_for_its_user_and_for_admins() {
        let (admin, nobody) = (identity(Name::Operator("a".into()), &["admin"]), Name::Operator("b".into()));
        let [reader, own, other] =
            [nobody, Name::Node(NodeId(1)), Name::Node(NodeId(3))].map(|name| identity(name, &["reader"]));
        for (evidence, identity, permitted) in [
            (Evidence::SameUser, &other, true),
            (Evidence::Certificate, &admin, true),
            (Evidence::Certificate, &reader, false),
            (Evidence::Certificate, &own, true),
            (Evidence::Key, &own, true),
            (Evidence::Key, &other, false),
            (Evidence::Claim, &admin, false),
            (Evidence::Claim, &own, false),
        ] {
            let subjects = subjects(evidence, identity);
            for name in ["bank.deposit", "pronto.ping", "pronto.rendezvous.offer"] {
                assert!(Rules::default().permit(&subjects, name), "{name}: {subjects:?}");
            }
            for name in ["pronto.status", "pronto.recent", "pronto.waiting"] {
                assert_eq!(Rules::default().permit(&subjects, name), permitted, "{name}: {subjects:?}");
            }
        }
    }

    /// Shows: operations.allow-roles
    #[test]
    fn a_role_is_that_of_a_certificate() {
        let rules = rules(&[(&["role:admin"], &["pronto.*"])]);
        assert!(rules.name_roles());
        for (roles, permitted) in
            [(&["teller", "admin"][..], true), (&["administrator"], false), (&[], false)]
        {
            let identity = identity(Name::Node(NodeId(2)), roles);
            let subjects = subjects(Evidence::Certificate, &identity);
            assert_eq!(rules.permit(&subjects, "pronto.status"), permitted, "{roles:?}");
            assert!(!rules.permit(&Subjects { evidence: Evidence::Claim, ..subjects }, "pronto.status"));
        }
    }

    /// Shows: operations.allow-checked
    #[test]
    fn an_empty_list_of_rules_is_refused_as_it_would_permit_everything() {
        let error = Config::parse("node = 1\nallow = []").unwrap_err().to_string();
        assert!(error.contains("almost everything is permitted"), "{error}");
        Config::parse("node = 1\n[[allow]]\nwho = [\"same-user\"]\ntypes = [\"*\"]").unwrap();
    }

    /// Shows: operations.allow-checked
    #[test]
    fn wrong_texts_are_refused() {
        let who = |text: &str| text.parse::<Subject>();
        assert_eq!(who("node:7"), Ok(Subject::Node(NodeId(7))));
        for text in [
            "",
            "node:",
            "node:x",
            "uid:",
            "uid:root",
            "uid:-1",
            "node:70000",
            "node:0",
            "node:64000",
            "role:",
            "role:a b",
            "Anyone",
        ] {
            assert_eq!(who(text), Err(RuleError::Subject(text.into())));
        }
        let types = |text: &str| text.parse::<Types>();
        assert_eq!(types("*"), Ok(Types::Beginning(String::new())));
        for text in ["", "b*nk", "**", "bank *"] {
            assert_eq!(types(text), Err(RuleError::Types(text.into())));
        }
        assert_eq!(Rule::new(&[], &["*"]), Err(RuleError::Empty("who")));
        assert_eq!(Rule::new(&["anyone"], &[]), Err(RuleError::Empty("types")));
    }
}
