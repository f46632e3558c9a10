//! Generates the code of the gRPC service without protoc: the messages are written by hand in `src/grpc.rs`.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let echo = Method::builder()
        .name("echo")
        .route_name("Echo")
        .input_type("crate::grpc::Payload")
        .output_type("crate::grpc::Payload")
        .codec_path("tonic_prost::ProstCodec")
        .build();
    let service = Service::builder().name("Echo").package("peers").method(echo).build();
    Builder::new().compile(&[service]);
}
