//! The names of one process: who listens where. Locked only to listen, to connect and to take requests.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::link::Half;
use super::{InProcess, InProcessConfig};
use crate::doorbell::Doorbell;
use crate::endpoint::{EndpointError, ServicePoint};

/// The network of one process: its dispatchers find each other by name. Clones are the same network.
#[derive(Clone, Default)]
pub struct InProcessNetwork {
    names: Arc<Mutex<Names>>,
}

#[derive(Default)]
struct Names {
    listeners: BTreeMap<String, (ServicePoint, Arc<Inbox>)>,
    next_port: u32,
    next_dispatcher: u32,
}

/// Connection requests on their way to one dispatcher.
pub(super) struct Inbox {
    /// The dispatcher's number.
    pub(super) number: u32,
    pub(super) doorbell: Arc<Doorbell>,
    waiting: AtomicUsize,
    /// `None` when the dispatcher is gone.
    requests: Mutex<Option<Vec<Request>>>,
}

/// Somebody wants to connect.
pub(super) struct Request {
    pub(super) service_point: ServicePoint,
    pub(super) half: Half,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while one of these is held, and each change is a single step anyway.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl InProcessNetwork {
    /// A network without names.
    pub fn new() -> Self {
        Self::default()
    }

    /// A dispatcher of this network. It may move to another thread.
    pub fn dispatcher(&self, config: InProcessConfig) -> io::Result<InProcess> {
        let number = {
            let mut names = lock(&self.names);
            names.next_dispatcher += 1;
            names.next_dispatcher - 1
        };
        let doorbell = Arc::new(Doorbell::new()?);
        let inbox = Inbox { number, doorbell, waiting: AtomicUsize::new(0), requests: Mutex::new(Some(Vec::new())) };
        Ok(InProcess::new(self.clone(), config, Arc::new(inbox)))
    }

    /// Enters a name; returns it with its `:0` replaced.
    pub(super) fn listen(
        &self,
        address: &str,
        service_point: ServicePoint,
        inbox: &Arc<Inbox>,
    ) -> Result<String, EndpointError> {
        let mut names = lock(&self.names);
        let mut name = address.to_owned();
        if let Some(host) = address.strip_suffix(":0") {
            while name == address || names.listeners.contains_key(&name) {
                names.next_port += 1;
                name = format!("{host}:{}", names.next_port);
            }
        }
        if name.is_empty() {
            return Err(EndpointError::BadAddress { address: name, expected: "a name that is not empty" });
        }
        if names.listeners.contains_key(&name) {
            return Err(EndpointError::AddressInUse { address: name });
        }
        names.listeners.insert(name.clone(), (service_point, Arc::clone(inbox)));
        Ok(name)
    }

    pub(super) fn forget(&self, name: &str) {
        lock(&self.names).listeners.remove(name);
    }

    /// Who listens at this name.
    pub(super) fn find(&self, name: &str) -> Option<(ServicePoint, Arc<Inbox>)> {
        lock(&self.names).listeners.get(name).map(|(service_point, inbox)| (*service_point, Arc::clone(inbox)))
    }
}

impl Inbox {
    /// Leaves a request. If the dispatcher is gone, the request is dropped, which its other side sees.
    pub(super) fn leave(&self, request: Request) {
        if let Some(requests) = lock(&self.requests).as_mut() {
            requests.push(request);
            self.waiting.store(requests.len(), Ordering::Relaxed);
        }
        self.doorbell.notify();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0
    }

    /// Takes every request.
    pub(super) fn take(&self, mut each: impl FnMut(Request)) {
        if self.is_empty() {
            return;
        }
        let mut requests = lock(&self.requests);
        self.waiting.store(0, Ordering::Relaxed);
        requests.iter_mut().flat_map(|requests| requests.drain(..)).for_each(&mut each);
    }

    /// Lets nobody in any more; what waits is dropped.
    pub(super) fn shut(&self) {
        let requests = lock(&self.requests).take();
        drop(requests);
    }
}
