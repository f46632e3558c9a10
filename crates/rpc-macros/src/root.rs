//! The path of the library in derived code.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{Error, Ident, Path, Result};

/// Packages that re-export the items for derived code as `__private`, in the order of search.
const PACKAGES: [&str; 2] = ["pronto-rpc", "pronto"];

/// Returns `given`, or the first of [`PACKAGES`] on which the compiled crate depends, under the dependency's local name.
pub(crate) fn root(given: Option<Path>) -> Result<TokenStream> {
    if let Some(path) = given {
        return Ok(quote!(#path::__private));
    }
    let found = PACKAGES.iter().find_map(|package| Some((package, crate_name(package).ok()?)));
    let name = match found {
        // The package itself, where `extern crate self` defines its name, or its tests, examples and documentation, where
        // it is a dependency.
        Some((package, FoundCrate::Itself)) => package.replace('-', "_"),
        Some((_, FoundCrate::Name(name))) => name,
        None => {
            return Err(Error::new(
                Span::call_site(),
                "neither `pronto` nor `pronto-rpc` is a dependency of this crate\n\
                 help: add `pronto` to [dependencies], or name the crate that re-exports it: `crate = path`",
            ));
        }
    };
    let name = Ident::new(&name, Span::call_site());
    Ok(quote!(::#name::__private))
}
