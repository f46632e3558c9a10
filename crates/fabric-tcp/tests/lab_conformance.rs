//! The conformance suite of the fabric seam over TLS by the kernel, which the lab's kernel has.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod certificates;
mod harness;

use harness::conforms_with_tls;
use pronto_fabric_tcp::TlsBy;

/// Shows: operations.kernel-tls
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn each_class_conforms_with_tls_by_the_kernel() {
    conforms_with_tls(TlsBy::Kernel);
}
