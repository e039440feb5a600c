//! `[control]`: how run control is served.

use super::check::fault;
use super::parse::Fault;
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;

/// How run control is served, where it is (`--control`).
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ControlSection {
    /// A PEM file with the server's certificate and those that lead from it to its authority: with it the server speaks TLS alone.
    pub certificate: Option<PathBuf>,
    /// A PEM file with the certificate's private key, which nobody else may read.
    pub key: Option<PathBuf>,
}

pub(super) fn check(section: &ControlSection) -> Result<(), Fault> {
    match (&section.certificate, &section.key) {
        (Some(_), None) => Err(fault("control.key", "a certificate needs its private key, in a file of mode 0600")),
        (None, Some(_)) => Err(fault("control.certificate", "which certificate does the key belong to?")),
        _ => Ok(()),
    }
}
