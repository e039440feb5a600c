//! `[control]`: how run control is served.

use super::parse::Faults;
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;

/// The server of run control (`--control`).
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ControlSection {
    /// PEM file with the server's certificate, followed by those that lead to its authority. With it the server speaks
    /// only TLS ([control.md](control.md#tls)).
    pub certificate: Option<PathBuf>,
    /// PEM file with the private key of the certificate, without a pass phrase; needed with `certificate`. It is
    /// refused if others may read it (mode 0600).
    pub key: Option<PathBuf>,
}

pub(super) fn check(section: &ControlSection, faults: &mut Faults) {
    match (&section.certificate, &section.key) {
        (Some(_), None) => faults.add("control.key", "a certificate needs its private key, in a file of mode 0600"),
        (None, Some(_)) => faults.add("control.certificate", "which certificate does the key belong to?"),
        _ => {}
    }
}
