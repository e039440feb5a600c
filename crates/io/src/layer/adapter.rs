//! One network address and one mechanism (the paper's interface adapter).

use ropewalk_memory::Pool;

use super::dispatcher::EventDispatcher;
use crate::Dispatcher;
use crate::endpoint::EndpointError;
use crate::in_process::{InProcessConfig, InProcessNetwork};
use crate::simulated::{Network, SimulatedConfig};
use crate::tcp::{Tcp, TcpConfig};

enum Mechanism {
    Tcp(TcpConfig),
    InProcess(InProcessNetwork, InProcessConfig),
    Simulated(Network, SimulatedConfig),
}

/// Makes event dispatchers that listen on its address.
pub struct InterfaceAdapter {
    address: String,
    mechanism: Mechanism,
    greets: bool,
}

impl InterfaceAdapter {
    /// A network interface, by its address, such as `127.0.0.1`; the configuration names the mechanism of the kernel.
    pub fn tcp(address: &str, config: TcpConfig) -> Self {
        Self { address: address.to_owned(), mechanism: Mechanism::Tcp(config), greets: false }
    }

    /// Threads of one process, under a name.
    pub fn in_process(name: &str, network: InProcessNetwork, config: InProcessConfig) -> Self {
        Self { address: name.to_owned(), mechanism: Mechanism::InProcess(network, config), greets: false }
    }

    /// A simulated network, under a name.
    pub fn simulated(name: &str, network: Network, config: SimulatedConfig) -> Self {
        Self { address: name.to_owned(), mechanism: Mechanism::Simulated(network, config), greets: false }
    }

    /// Both sides greet each other with eight bytes, so that a rejection is told as one also over TCP. Both have to,
    /// so this is for connections of ours alone. Whoever connects posts buffers when the connection stands.
    #[must_use]
    pub fn with_hello(mut self) -> Self {
        self.greets = true;
        self
    }

    /// A dispatcher of its own. Blocks to receive into come from `pool`, unless they are posted.
    ///
    /// # Errors
    /// The operating system lacks the mechanism, or has no descriptor left.
    pub fn event_dispatcher(&self, pool: Pool) -> Result<EventDispatcher, EndpointError> {
        let dispatcher: Box<dyn Dispatcher + Send> = match &self.mechanism {
            Mechanism::Tcp(config) => Box::new(Tcp::new(config.clone(), pool)?),
            Mechanism::InProcess(network, config) => {
                let made = network.dispatcher(*config).map_err(|source| EndpointError::System {
                    what: "cannot make a dispatcher for",
                    address: self.address.clone(),
                    source,
                })?;
                Box::new(made)
            }
            Mechanism::Simulated(network, config) => Box::new(network.dispatcher(*config, pool)),
        };
        EventDispatcher::new(dispatcher, &self.address, self.greets)
    }
}
