//! Cards of the machine that this runs on.

use super::{CardError, CardReport, Cards};
use crate::Property;

/// The cards of the machine that this runs on.
#[derive(Debug, Default)]
pub struct Netlink;

impl Cards for Netlink {
    fn report(&mut self, _: &str) -> Result<CardReport, CardError> {
        Ok(CardReport::default())
    }

    fn set(&mut self, interface: &str, property: &Property, _: &str) -> Result<(), CardError> {
        Err(CardError::Unsupported { interface: interface.to_owned(), property: property.clone() })
    }

    fn mtu(&mut self, interface: &str) -> Result<u32, CardError> {
        Err(CardError::Unknown(interface.to_owned()))
    }

    fn set_mtu(&mut self, interface: &str, _: u32) -> Result<(), CardError> {
        Err(CardError::Unknown(interface.to_owned()))
    }
}
