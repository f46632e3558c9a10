//! The `[trust]` section of a configuration, and the keys of peers.

use std::path::{Path, PathBuf};

use pronto_trust::{PublicKey, Source};
use pronto_wire::NodeId;
use serde::Deserialize;

use super::{Config, ConfigError, PeerConfig, TrustConfig, TrustMode};

impl PeerConfig {
    /// Returns whether a link with the peer is possible: this node dials it, or recognizes its connections.
    pub(super) fn can_connect(&self) -> bool {
        !self.address.is_empty() || !self.from.is_empty() || self.key.is_some() || self.user.is_some()
    }
}

/// File with credentials only.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TrustFile {
    trust: TrustConfig,
}

impl Config {
    /// Reads a file with nothing but a `[trust]` section, for a visitor that has a certificate of its own.
    ///
    /// # Errors
    /// The section is wrong, or its mode is not `tls`.
    pub fn read_trust(path: &Path) -> Result<Source, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|cause| ConfigError::Read { path: path.into(), cause })?;
        parse_trust(&text).map_err(|cause| ConfigError::File { path: path.into(), cause: Box::new(cause) })
    }

    /// Returns where the node's credentials are, if it has any.
    ///
    /// # Errors
    /// A key of `[trust]`, or `peer.key`, is missing, wrong or without effect.
    pub fn trust_source(&self) -> Result<Option<Source>, ConfigError> {
        if self.trust.mode != TrustMode::None && self.plaintext.is_some() {
            return Err(ConfigError::Useless { key: "plaintext", with: "trust.mode = \"tls\" or \"keys\"" });
        }
        if self.trust.mode != TrustMode::Keys && self.peer.iter().any(|peer| peer.key.is_some()) {
            return Err(ConfigError::Needs { key: "peer.key", needs: "trust.mode = \"keys\"" });
        }
        match self.trust.mode {
            TrustMode::None => self.trust.without().map(|()| None),
            TrustMode::Tls => self.trust.certificates().map(Some),
            TrustMode::Keys => self.keys().map(Some),
        }
    }

    fn keys(&self) -> Result<Source, ConfigError> {
        let mode = "trust.mode = \"keys\"";
        self.trust.refuse_files(mode)?;
        let key = needed(self.trust.key.as_ref(), mode, "trust.key")?;
        let with_key = self.peer.iter().filter_map(|peer| Some((peer.node, peer.key.as_ref()?)));
        let has_tcp = |peer: &&PeerConfig| peer.address.iter().any(|address| address.starts_with("tcp:"));
        let mut without = self.peer.iter().filter(|peer| peer.key.is_none());
        if let Some(peer) = without.find(|peer| has_tcp(peer) || !peer.from.is_empty()) {
            return Err(ConfigError::NoKey(peer.node));
        }
        let read = |(peer, text): (u16, &String)| {
            let key: PublicKey = text.parse().map_err(|cause| ConfigError::PublicKey { peer, cause })?;
            Ok((NodeId(peer), key))
        };
        Ok(Source::Keys { key, peers: with_key.map(read).collect::<Result<_, ConfigError>>()? })
    }
}

fn parse_trust(text: &str) -> Result<Source, ConfigError> {
    let TrustFile { trust } = toml::from_str(text)?;
    match trust.mode {
        TrustMode::Tls => trust.certificates(),
        TrustMode::None => {
            Err(ConfigError::Needs { key: "a visitor", needs: "a certificate: set trust.mode = \"tls\"" })
        }
        TrustMode::Keys => Err(ConfigError::Needs {
            key: "trust.mode = \"keys\"",
            needs: "the id of a node: use the configuration of the node that has the key (--config)",
        }),
    }
}

impl TrustConfig {
    /// Checks that nothing is set that only the other modes use.
    fn without(&self) -> Result<(), ConfigError> {
        let needs = "trust.mode = \"tls\" or \"keys\"";
        if self.key.is_some() {
            return Err(ConfigError::Needs { key: "trust.key", needs });
        }
        if self.rdma_plaintext {
            return Err(ConfigError::Needs { key: "trust.rdma_plaintext", needs });
        }
        if self.rdma_soft_roce {
            return Err(ConfigError::Needs { key: "trust.rdma_soft_roce", needs });
        }
        self.refuse_files("trust.mode = \"none\"")
    }

    /// Checks that no file is set that only certificates need.
    fn refuse_files(&self, with: &'static str) -> Result<(), ConfigError> {
        let files = [
            (&self.certificate, "trust.certificate"),
            (&self.authorities, "trust.authorities"),
            (&self.revoked, "trust.revoked"),
        ];
        match files.into_iter().find(|(file, _)| file.is_some()) {
            Some((_, key)) => Err(ConfigError::Useless { key, with }),
            None => Ok(()),
        }
    }

    fn certificates(&self) -> Result<Source, ConfigError> {
        let mode = "trust.mode = \"tls\"";
        Ok(Source::Certificates {
            certificate: needed(self.certificate.as_ref(), mode, "trust.certificate")?,
            key: needed(self.key.as_ref(), mode, "trust.key")?,
            authorities: needed(self.authorities.as_ref(), mode, "trust.authorities")?,
            revoked: self.revoked.clone(),
        })
    }
}

fn needed(value: Option<&PathBuf>, key: &'static str, needs: &'static str) -> Result<PathBuf, ConfigError> {
    value.cloned().ok_or(ConfigError::Missing { key, needs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Node, NodeError, Rdma};

    /// Shows: operations.trust-checked
    #[test]
    fn wrong_sections_are_refused_with_the_key_to_change() {
        let tls = "mode = \"tls\"\ncertificate = \"c\"\nkey = \"k\"\nauthorities = \"a\"";
        let error =
            |text: &str| Config::parse(&format!("node = 1\n{text}")).expect_err("it is wrong").to_string();
        for (section, expected) in [
            ("mode = \"tls\"", "trust.mode = \"tls\" needs trust.certificate too"),
            ("mode = \"tls\"\ncertificate = \"c\"\nkey = \"k\"", "needs trust.authorities too"),
            ("mode = \"keys\"", "trust.mode = \"keys\" needs trust.key too"),
            (
                "mode = \"keys\"\nkey = \"k\"\nrevoked = \"r\"",
                "trust.revoked has no effect with trust.mode = \"keys\"",
            ),
            ("certificate = \"c\"", "trust.certificate has no effect with trust.mode = \"none\""),
            ("key = \"k\"", "trust.key needs trust.mode = \"tls\" or \"keys\""),
            ("mode = \"ssl\"", "ssl"),
        ] {
            let text = error(&format!("[trust]\n{section}"));
            assert!(text.contains(expected), "{text}");
        }
        let text = error(&format!("plaintext = \"i understand\"\n[trust]\n{tls}"));
        assert!(text.contains("plaintext has no effect"), "{text}");
        let text = error("[[peer]]\nnode = 2\nkey = \"x\"\nfrom = [\"10.0.0.1\"]");
        assert!(text.contains("peer.key needs trust.mode = \"keys\""), "{text}");
        let text = error("[trust]\nmode = \"keys\"\nkey = \"k\"\n[[peer]]\nnode = 2\nkey = \"x\"");
        assert!(text.starts_with("peer 2: key: "), "{text}");
        let config = Config::parse(&format!("node = 1\n[trust]\n{tls}\nrevoked = \"r\"")).unwrap();
        assert!(matches!(config.trust_source(), Ok(Some(Source::Certificates { revoked: Some(_), .. }))));
    }

    /// Shows: operations.trust-key-needed
    #[test]
    fn a_peer_with_a_tcp_link_needs_a_key() {
        let parse = |peer: &str| {
            Config::parse(&format!(
                "node = 1\n[trust]\nmode = \"keys\"\nkey = \"k\"\n[[peer]]\nnode = 3\n{peer}"
            ))
        };
        let tcp = "address = [\"shm:@three\", \"tcp:127.0.0.1:7003\"]";
        let key = "key = \"ed25519:AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=\"";
        for peer in [tcp, "from = [\"10.0.0.3\"]"] {
            let text = parse(peer).expect_err("it could never link over TCP").to_string();
            assert!(text.starts_with("peer 3 needs `key` with trust.mode = \"keys\""), "{text}");
            assert!(parse(&format!("{peer}\n{key}")).is_ok());
        }
        assert!(parse("address = [\"shm:@three\"]").is_ok(), "shared memory needs none");
    }

    #[test]
    fn a_visitor_has_a_section_with_a_certificate() {
        let tls = "[trust]\nmode = \"tls\"\ncertificate = \"c\"\nkey = \"k\"\nauthorities = \"a\"";
        assert!(matches!(parse_trust(tls), Ok(Source::Certificates { revoked: None, .. })));
        for (text, expected) in [
            ("[trust]\nmode = \"tls\"", "needs trust.certificate too"),
            ("[trust]", "needs a certificate: set trust.mode = \"tls\""),
            ("[trust]\nmode = \"keys\"\nkey = \"k\"", "needs the id of a node"),
            ("node = 1\n[trust]", "unknown field `node`"),
            ("", "missing field `trust`"),
        ] {
            let error = parse_trust(text).expect_err("it is wrong").to_string();
            assert!(error.contains(expected), "{error}");
        }
        let error = Config::read_trust(Path::new("/no/file")).expect_err("no file").to_string();
        assert!(error.contains("cannot read /no/file"), "{error}");
    }

    /// Shows: operations.rdma-plaintext
    #[test]
    fn rdma_next_to_tls_takes_a_permission() {
        let source = || Source::Certificates {
            certificate: "/no/certificate".into(),
            key: "/no/key".into(),
            authorities: "/no/authorities".into(),
            revoked: None,
        };
        let node = |rdma| Node::builder(1).rdma(rdma).trust(source());
        assert!(matches!(node(Rdma::Require).check(), Err(NodeError::RdmaPlaintext)));
        // Only then are the files read.
        for permitted in [node(Rdma::Require).rdma_plaintext(), node(Rdma::Auto)] {
            assert!(matches!(permitted.check(), Err(NodeError::Trust(_))));
        }
        let (links, _) = node(Rdma::Auto).checked().unwrap();
        assert_eq!(links.rdma, Rdma::Off);
        let (links, _) = node(Rdma::Auto).rdma_plaintext().checked().unwrap();
        assert_eq!((links.rdma, links.rdma_soft), (Rdma::Auto, false));
        let (links, _) = node(Rdma::Auto).rdma_plaintext().rdma_soft_roce().checked().unwrap();
        assert!(links.rdma_soft);
        let (links, _) = Node::builder(1).checked().unwrap();
        assert!(links.rdma_soft, "nothing is authenticated");
    }
}
