//! The URI names of a certificate: reading them, and the rules for writing them.
//!
//! A certificate has one name, `spiffe://DOMAIN/pronto/node/N` or `spiffe://DOMAIN/pronto/operator/NAME`, and any number of roles,
//! `spiffe://DOMAIN/pronto/role/ROLE`, all of one domain. Other names, of any kind, are ignored: a certificate may serve other
//! programs too.

use std::collections::BTreeSet;

use pronto_wire::id::NodeId;
use thiserror::Error;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

use crate::identity::{FIRST_VISITOR, Name};

/// Maximum length of a domain (SPIFFE-ID, section 2.1).
const MAX_DOMAIN: usize = 255;
/// Maximum length of the name of an operator or a role. Chosen by us; no source.
const MAX_WORD: usize = 64;
/// Maximum number of characters of a name that an error repeats.
pub(crate) const MAX_QUOTED: usize = 100;

/// A fault in the names of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NameFault {
    /// There is no name of a node or an operator.
    #[error("the certificate has no name of a node or an operator, such as spiffe://DOMAIN/pronto/node/2")]
    Missing,
    /// There are two names.
    #[error("the certificate has two names, {first} and {second}: it must have one")]
    Several {
        /// One name.
        first: Name,
        /// Another name.
        second: Name,
    },
    /// A name begins like one of ours, but is malformed.
    #[error(
        "the certificate has the malformed name {uri:?}: names are spiffe://DOMAIN/pronto/node/N with N from 1 to 63999, \
         spiffe://DOMAIN/pronto/operator/NAME and spiffe://DOMAIN/pronto/role/NAME"
    )]
    Malformed {
        /// First characters of the name.
        uri: String,
    },
    /// Names belong to different domains.
    #[error("the certificate has names of the domains {first} and {second}: they must be of one domain")]
    SeveralDomains {
        /// Domain of the first name.
        first: String,
        /// Another domain.
        second: String,
    },
    /// The extension that holds the names cannot be parsed.
    #[error("the list of names in the certificate is malformed")]
    Unreadable,
}

/// Names of one certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) domain: String,
    pub(crate) name: Name,
    pub(crate) roles: Vec<String>,
}

impl Names {
    /// Returns the names of a certificate.
    pub(crate) fn of(certificate: &X509Certificate<'_>) -> Result<Self, NameFault> {
        Self::parse(&uris(certificate)?)
    }

    fn parse(uris: &[&str]) -> Result<Self, NameFault> {
        let mut domain: Option<&str> = None;
        let mut name: Option<Name> = None;
        let mut roles = BTreeSet::new();
        for uri in uris {
            let Some((of, part)) = parse_uri(uri)? else { continue };
            if let Some(first) = domain.filter(|domain| *domain != of) {
                return Err(NameFault::SeveralDomains { first: first.to_owned(), second: of.to_owned() });
            }
            domain = Some(of);
            match (part, name.clone()) {
                (Part::Role(role), _) => {
                    roles.insert(role.to_owned());
                }
                (Part::Name(second), Some(first)) => return Err(NameFault::Several { first, second }),
                (Part::Name(only), None) => name = Some(only),
            }
        }
        let (Some(domain), Some(name)) = (domain, name) else { return Err(NameFault::Missing) };
        Ok(Self { domain: domain.to_owned(), name, roles: roles.into_iter().collect() })
    }
}

/// Returns the URIs among the subject's alternative names.
pub(crate) fn uris<'a>(certificate: &'a X509Certificate<'_>) -> Result<Vec<&'a str>, NameFault> {
    let extension = certificate.subject_alternative_name().map_err(|_| NameFault::Unreadable)?;
    let names = extension.map_or(&[][..], |extension| &extension.value.general_names);
    let uri = |name: &GeneralName<'a>| match name {
        GeneralName::URI(uri) => Some(*uri),
        _ => None,
    };
    Ok(names.iter().filter_map(uri).collect())
}

/// One URI.
enum Part<'a> {
    Name(Name),
    Role(&'a str),
}

/// Returns the domain and the meaning of a URI, or `None` if it is not one of ours.
fn parse_uri(uri: &str) -> Result<Option<(&str, Part<'_>)>, NameFault> {
    let Some((domain, path)) = uri.strip_prefix("spiffe://").and_then(|rest| rest.split_once('/')) else {
        return Ok(None);
    };
    let Some(path) = path.strip_prefix("pronto/") else { return Ok(None) };
    let malformed = || NameFault::Malformed { uri: uri.chars().take(MAX_QUOTED).collect() };
    let (kind, word) = path.split_once('/').ok_or_else(malformed)?;
    if !is_domain(domain) || !is_word(word) {
        return Err(malformed());
    }
    let part = match kind {
        "node" => Part::Name(Name::Node(node(word).ok_or_else(malformed)?)),
        "operator" => Part::Name(Name::Operator(word.to_owned())),
        "role" => Part::Role(word),
        _ => return Err(malformed()),
    };
    Ok(Some((domain, part)))
}

/// Returns the node with that id, in its only spelling: without a sign and without leading zeros.
fn node(word: &str) -> Option<NodeId> {
    let id: u16 = word.parse().ok()?;
    is_named_node(NodeId(id)).then_some(NodeId(id)).filter(|_| id.to_string() == word)
}

/// Returns whether a certificate may name this node.
pub(crate) fn is_named_node(node: NodeId) -> bool {
    (1..FIRST_VISITOR.0).contains(&node.0)
}

/// Returns whether the text can be a domain (SPIFFE-ID, section 2.1).
pub(crate) fn is_domain(text: &str) -> bool {
    let permitted = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b".-_".contains(&c);
    (1..=MAX_DOMAIN).contains(&text.len()) && text.bytes().all(permitted)
}

/// Returns whether the text can name an operator or a role (a path segment of SPIFFE-ID, section 2.2).
pub fn is_word(text: &str) -> bool {
    let permitted = |c: u8| c.is_ascii_alphanumeric() || b".-_".contains(&c);
    (1..=MAX_WORD).contains(&text.len()) && text.bytes().all(permitted) && text != "." && text != ".."
}

/// Returns the URI of a name.
#[cfg(feature = "authority")]
pub(crate) fn uri_of(domain: &str, name: &Name) -> String {
    match name {
        Name::Node(node) => format!("spiffe://{domain}/pronto/node/{node}"),
        Name::Operator(operator) => format!("spiffe://{domain}/pronto/operator/{operator}"),
    }
}

/// Returns the URI of a role.
#[cfg(feature = "authority")]
pub(crate) fn uri_of_role(domain: &str, role: &str) -> String {
    format!("spiffe://{domain}/pronto/role/{role}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(uris: &[&str]) -> Result<Names, NameFault> {
        Names::parse(uris)
    }

    #[test]
    fn one_name_and_roles_are_read() {
        let names = parse(&[
            "https://example.org/",
            "spiffe://a.org/other/7",
            "spiffe://a.org/pronto/role/b",
            "spiffe://a.org/pronto/node/2",
            "spiffe://a.org/pronto/role/a",
            "spiffe://a.org/pronto/role/b",
        ])
        .expect("one name");
        assert_eq!(names.name, Name::Node(NodeId(2)));
        assert_eq!((names.domain.as_str(), names.roles), ("a.org", vec!["a".to_owned(), "b".to_owned()]));
        let operator = parse(&["spiffe://a.org/pronto/operator/alice"]).expect("one name");
        assert_eq!(operator.name, Name::Operator("alice".to_owned()));
    }

    #[test]
    fn missing_and_several_names_are_faults() {
        assert_eq!(parse(&["spiffe://a.org/pronto/role/a", "spiffe://a.org"]), Err(NameFault::Missing));
        let two = parse(&["spiffe://a/pronto/node/1", "spiffe://a/pronto/node/2"]).expect_err("two names");
        assert!(matches!(two, NameFault::Several { .. }));
        let domains =
            parse(&["spiffe://a/pronto/node/1", "spiffe://b/pronto/role/x"]).expect_err("two domains");
        assert!(matches!(domains, NameFault::SeveralDomains { .. }));
    }

    #[test]
    fn malformed_names_are_faults() {
        let long = "x".repeat(65);
        for path in [
            "node/0",
            "node/64000",
            "node/65536",
            "node/+1",
            "node/01",
            "node/",
            "node",
            "node/1/2",
            "role/..",
            "operator/a b",
            "operator/a%20",
            "kind/1",
            long.as_str(),
        ] {
            let uri = format!("spiffe://a/pronto/{path}");
            assert!(matches!(parse(&[&uri]), Err(NameFault::Malformed { .. })), "{uri}");
        }
        for domain in ["", "A", "a:1", "u@a"] {
            let uri = format!("spiffe://{domain}/pronto/node/1");
            assert!(matches!(parse(&[&uri]), Err(NameFault::Malformed { .. })), "{uri}");
        }
    }

    #[test]
    fn an_error_quotes_the_beginning_of_a_long_name() {
        let uri = format!("spiffe://a/pronto/node/\u{1b}{}", "x".repeat(10_000));
        let text = parse(&[&uri]).expect_err("malformed").to_string();
        assert!(text.len() < 500 && !text.contains('\u{1b}'), "{text}");
    }
}
