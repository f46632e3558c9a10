//! `#[derive(Payload)]`: encodes the fields in order, after the variant number of an enum.

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{
    Data, DataEnum, DeriveInput, Error, Fields, GenericArgument, GenericParam, Generics, Ident, Index,
    Member, PathArguments, Result, Type, parse_quote,
};

/// Maximum number of variants of an enum, as the variant number is one byte.
const MAX_VARIANTS: usize = 256;

/// Code for the items of the trait.
struct Layout {
    hash: TokenStream,
    min_len: TokenStream,
    max_len: TokenStream,
    encoded_len: TokenStream,
    encode: TokenStream,
    decode: TokenStream,
    /// Whether the value may own the memory of its message.
    keeps: TokenStream,
    /// The statements of `decode_into`, for structs.
    decode_into: Option<TokenStream>,
}

pub(crate) fn derive(input: &DeriveInput, root: &TokenStream) -> Result<TokenStream> {
    let Layout { hash, min_len, max_len, encoded_len, encode, decode, keeps, decode_into } = match &input.data
    {
        Data::Struct(data) => struct_layout(&input.ident, &data.fields, root)?,
        Data::Enum(data) => enum_layout(&input.ident, data, root)?,
        Data::Union(data) => {
            return Err(Error::new_spanned(
                data.union_token,
                "a union cannot travel: the receiver could not tell which field it holds\nhelp: use an enum",
            ));
        }
    };
    let decode_into = decode_into.map(|statements| {
        quote! {
            #[inline]
            fn decode_into<__S: #root::Source>(
                &mut self,
                input: &mut #root::Reader<__S>,
            ) -> ::core::result::Result<(), #root::Malformed> {
                input.require(<Self as #root::Payload>::MIN_LEN)?;
                #statements
                ::core::result::Result::Ok(())
            }
        }
    });
    let generics = bounded(&input.generics, root)?;
    let (impl_generics, type_generics, bounds) = generics.split_for_impl();
    let ident = &input.ident;
    // Constants are evaluated when they are used. This makes an invalid layout fail at its definition.
    let evaluated = input
        .generics
        .params
        .is_empty()
        .then(|| quote!(const _: #root::LayoutHash = <#ident as #root::Payload>::LAYOUT;));
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics #root::Payload for #ident #type_generics #bounds {
            const KEEPS_MEMORY: bool = #keeps;
            const LAYOUT: #root::LayoutHash = #hash;
            const MIN_LEN: usize = #min_len;
            const MAX_LEN: ::core::option::Option<usize> = #max_len;

            #[inline]
            fn encoded_len(&self) -> usize {
                #encoded_len
            }

            #[inline]
            fn encode(&self, out: &mut #root::Writer<'_>) -> ::core::result::Result<(), #root::Full> {
                out.require(<Self as #root::Payload>::MIN_LEN)?;
                #encode
            }

            #[inline]
            fn decode<__S: #root::Source>(
                input: &mut #root::Reader<__S>,
            ) -> ::core::result::Result<Self, #root::Malformed> {
                input.require(<Self as #root::Payload>::MIN_LEN)?;
                #decode
            }

            #decode_into
        }

        #evaluated
    })
}

fn struct_layout(ident: &Ident, fields: &Fields, root: &TokenStream) -> Result<Layout> {
    let Parts { types, members, names } = parts(ident, fields)?;
    let payloads = as_payloads(&types, root);
    Ok(Layout {
        hash: quote!(#root::LayoutHash::of("struct{") #(.text(#names).then(#payloads::LAYOUT))* .text("}")),
        min_len: quote!(0 #(+ #payloads::MIN_LEN)*),
        max_len: quote!(#root::sum(&[#(#payloads::MAX_LEN),*])),
        encoded_len: quote!(0 #(+ #payloads::encoded_len(&self.#members))*),
        encode: quote! {
            #(#payloads::encode(&self.#members, out)?;)*
            ::core::result::Result::Ok(())
        },
        decode: quote!(::core::result::Result::Ok(Self { #(#members: #payloads::decode(input)?),* })),
        keeps: quote!(false #(|| #payloads::KEEPS_MEMORY)*),
        decode_into: Some(quote!(#(#payloads::decode_into(&mut self.#members, input)?;)*)),
    })
}

fn enum_layout(ident: &Ident, data: &DataEnum, root: &TokenStream) -> Result<Layout> {
    if data.variants.is_empty() {
        return Err(Error::new_spanned(
            ident,
            "an enum without variants has no values to send\nhelp: add a variant",
        ));
    }
    if let Some(variant) = data.variants.iter().nth(MAX_VARIANTS) {
        return Err(Error::new_spanned(
            variant,
            format!("more than {MAX_VARIANTS} variants\nhelp: group them in enums of their own"),
        ));
    }
    let (mut hash, mut min_lens, mut max_lens) = (TokenStream::new(), Vec::new(), Vec::new());
    let mut keeps = quote!(false);
    let (mut len_arms, mut encode_arms, mut decode_arms) =
        (TokenStream::new(), TokenStream::new(), TokenStream::new());
    for (number, variant) in (0..=u8::MAX).zip(&data.variants) {
        let Parts { types, members, names } = parts(ident, &variant.fields)?;
        let payloads = as_payloads(&types, root);
        let bindings: Vec<_> = (0..types.len()).map(|i| format_ident!("field_{i}")).collect();
        let case = &variant.ident;
        let opening = format!("{}{{", case.unraw());
        hash.extend(quote!(.text(#opening) #(.text(#names).then(#payloads::LAYOUT))* .text("}")));
        keeps.extend(quote!(#(|| #payloads::KEEPS_MEMORY)*));
        min_lens.push(quote!(1 #(+ #payloads::MIN_LEN)*));
        max_lens.push(quote!(#root::sum(&[::core::option::Option::Some(1), #(#payloads::MAX_LEN),*])));
        len_arms.extend(quote! {
            Self::#case { #(#members: #bindings),* } => 1 #(+ #payloads::encoded_len(#bindings))*,
        });
        encode_arms.extend(quote! {
            Self::#case { #(#members: #bindings),* } => {
                out.put([#number])?;
                #(#payloads::encode(#bindings, out)?;)*
            }
        });
        decode_arms.extend(quote!(#number => Self::#case { #(#members: #payloads::decode(input)?),* },));
    }
    let name = ident.unraw().to_string();
    let unknown = (data.variants.len() < MAX_VARIANTS).then(|| {
        quote! {
            variant => {
                let fault = #root::Fault::Variant { of: #name, variant };
                return ::core::result::Result::Err(input.refuse(1, fault));
            }
        }
    });
    Ok(Layout {
        hash: quote!(#root::LayoutHash::of("enum{") #hash .text("}")),
        min_len: quote!(#root::smallest(&[#(#min_lens),*])),
        max_len: quote!(#root::largest(&[#(#max_lens),*])),
        encoded_len: quote!(match self { #len_arms }),
        encode: quote! {
            match self { #encode_arms }
            ::core::result::Result::Ok(())
        },
        decode: quote! {
            let [variant] = input.take::<1>()?;
            ::core::result::Result::Ok(match variant { #decode_arms #unknown })
        },
        keeps,
        decode_into: None,
    })
}

/// The fields of a struct or variant, as parallel lists.
struct Parts<'a> {
    types: Vec<&'a Type>,
    members: Vec<Member>,
    /// The text that is hashed: the field's name or position, and a colon.
    names: Vec<String>,
}

fn parts<'a>(ident: &Ident, fields: &'a Fields) -> Result<Parts<'a>> {
    let members: Vec<_> = fields.members().collect();
    let names = members
        .iter()
        .map(|member| match member {
            Member::Named(name) => format!("{}:", name.unraw()),
            Member::Unnamed(Index { index, .. }) => format!("{index}:"),
        })
        .collect();
    let types: Vec<_> = fields.iter().map(|field| &field.ty).collect();
    types.iter().try_for_each(|ty| check_type(ident, ty))?;
    Ok(Parts { types, members, names })
}

/// Returns `<T as Payload>` for each type, with the type's span, so that rustc points at a field that is not a payload.
fn as_payloads(types: &[&Type], root: &TokenStream) -> Vec<TokenStream> {
    types.iter().map(|ty| quote_spanned!(ty.span()=> <#ty as #root::Payload>)).collect()
}

/// Rejects common unsupported types with an explanation. The compiler would only report a missing trait.
fn check_type(ident: &Ident, ty: &Type) -> Result<()> {
    match ty {
        Type::Reference(_) | Type::Ptr(_) => Err(Error::new_spanned(
            ty,
            "a message owns its data: the receiver cannot follow a reference\n\
             help: use `String` for text, `Vec<T>`, `Box<[T]>` or `[T; N]` for slices, `T` for others",
        )),
        Type::Path(path) => {
            let Some(last) = path.path.segments.last() else { return Ok(()) };
            let name = last.ident.to_string();
            if matches!(name.as_str(), "usize" | "isize") {
                let sized = name.replace("size", "64");
                return Err(Error::new_spanned(
                    ty,
                    format!("the size of `{name}` depends on the machine\nhelp: use `{sized}`"),
                ));
            }
            if path.path.is_ident(ident) || path.path.is_ident("Self") {
                return Err(Error::new_spanned(
                    ty,
                    "a payload cannot contain itself: the sender would choose how deep the receiver's stack must be\n\
                     help: put the items into one `Vec`, and let them refer to each other by index",
                ));
            }
            let PathArguments::AngleBracketed(arguments) = &last.arguments else { return Ok(()) };
            arguments.args.iter().try_for_each(|argument| match argument {
                GenericArgument::Type(inner) => check_type(ident, inner),
                _ => Ok(()),
            })
        }
        Type::Array(array) => check_type(ident, &array.elem),
        Type::Slice(slice) => check_type(ident, &slice.elem),
        Type::Tuple(tuple) => tuple.elems.iter().try_for_each(|ty| check_type(ident, ty)),
        Type::Paren(inner) => check_type(ident, &inner.elem),
        Type::Group(inner) => check_type(ident, &inner.elem),
        _ => Ok(()),
    }
}

/// Returns the type's generic parameters, with a `Payload` bound on each type parameter.
fn bounded(generics: &Generics, root: &TokenStream) -> Result<Generics> {
    let mut generics = generics.clone();
    for parameter in &mut generics.params {
        match parameter {
            GenericParam::Lifetime(lifetime) => {
                return Err(Error::new_spanned(
                    lifetime.to_token_stream(),
                    "a payload owns its data\nhelp: use `String` or `Vec<T>` instead of borrowed data",
                ));
            }
            GenericParam::Type(parameter) => parameter.bounds.push(parse_quote!(#root::Payload)),
            GenericParam::Const(_) => {}
        }
    }
    Ok(generics)
}
