//! The content of lab/lab.toml: kernel, modules, packages and programs.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Recipe {
    pub(super) kernel: Kernel,
    pub(super) modules: Modules,
    pub(super) libraries: Libraries,
    #[serde(rename = "tool")]
    pub(super) tools: Vec<Tool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kernel {
    /// Debian's version, with its revision.
    pub(super) version: String,
    /// Words of the kernel's command line.
    pub(super) parameters: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Modules {
    pub(super) names: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Libraries {
    pub(super) packages: Vec<String>,
    pub(super) files: Vec<String>,
}

/// A package of the guest.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tool {
    pub(super) package: String,
    /// Names in /usr/bin or /usr/sbin. Each may contain one `*`.
    #[serde(default)]
    pub(super) programs: Vec<String>,
    /// Paths without the leading slash. The last part of each may contain one `*`.
    #[serde(default)]
    pub(super) files: Vec<String>,
}

impl Recipe {
    /// Reads the recipe from a file.
    ///
    /// # Errors
    /// The file is missing or invalid.
    pub(super) fn read(file: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is invalid", file.display()))
    }

    /// Returns all packages that are requested by name.
    pub(super) fn packages(&self) -> Vec<&str> {
        let tools = self.tools.iter().map(|tool| tool.package.as_str());
        tools.chain(self.libraries.packages.iter().map(String::as_str)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recipe_of_this_tree_is_read() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/lab.toml");
        let recipe = Recipe::read(&file).unwrap();
        assert!(recipe.packages().contains(&"perftest"));
        assert!(recipe.modules.names.iter().any(|name| name == "rdma_rxe"));
    }

    #[test]
    fn a_misspelt_key_is_an_error() {
        let text = "[kernel]\nversion = '1'\nparameters = []\n[modules]\nnames = []\n[libraries]\npackages = []\nfiles = []\n\
                    [[tool]]\npackage = 'x'\nprogramms = []\n";
        assert!(toml::from_str::<Recipe>(text).unwrap_err().to_string().contains("programms"));
    }
}
