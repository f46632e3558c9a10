//! Generates the client and the server of the service without protoc: its message is written by hand in `src/main.rs`.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let echo = Method::builder()
        .name("echo")
        .route_name("Echo")
        .input_type("crate::Text")
        .output_type("crate::Text")
        .codec_path("tonic_prost::ProstCodec")
        .build();
    let service = Service::builder().name("Echo").package("example").method(echo).build();
    Builder::new().compile(&[service]);
}
