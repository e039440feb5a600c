//! What a wrapper around a dispatcher leaves to it.

/// Writes the named methods of [`Dispatcher`](crate::Dispatcher): each asks the dispatcher in the field that is named first. So a
/// wrapper shows what it does in its own way, and names the rest:
///
/// ```text
/// impl Dispatcher for Wrapper {
///     ropewalk_io::pass_on!(inner: listen, address_of, connect);
///
///     fn accept(&mut self, endpoint: Endpoint) { ... }
/// }
/// ```
#[macro_export]
macro_rules! pass_on {
    ($inner:ident: $($method:ident),+ $(,)?) => { $($crate::pass_on! { @$method $inner })+ };
    (@listen $inner:ident) => {
        fn listen(&mut self, address: &str) -> Result<$crate::ServicePoint, $crate::EndpointError> {
            self.$inner.listen(address)
        }
    };
    (@address_of $inner:ident) => {
        fn address_of(&self, service_point: $crate::ServicePoint) -> Option<String> {
            self.$inner.address_of(service_point)
        }
    };
    (@connect $inner:ident) => {
        fn connect(&mut self, address: &str) -> Result<$crate::Endpoint, $crate::EndpointError> {
            self.$inner.connect(address)
        }
    };
    (@adopt $inner:ident) => {
        fn adopt(&mut self, socket: ::std::os::fd::OwnedFd) -> ::std::io::Result<$crate::Endpoint> {
            self.$inner.adopt(socket)
        }
    };
    (@accept $inner:ident) => {
        fn accept(&mut self, endpoint: $crate::Endpoint) {
            self.$inner.accept(endpoint);
        }
    };
    (@reject $inner:ident) => {
        fn reject(&mut self, endpoint: $crate::Endpoint) {
            self.$inner.reject(endpoint);
        }
    };
    (@set_owner $inner:ident) => {
        fn set_owner(&mut self, endpoint: $crate::Endpoint, owner: ::ropewalk_memory::Owner) {
            self.$inner.set_owner(endpoint, owner);
        }
    };
    (@pool $inner:ident) => {
        fn pool(&self) -> Option<&::ropewalk_memory::Pool> {
            self.$inner.pool()
        }
    };
    (@pool_mut $inner:ident) => {
        fn pool_mut(&mut self) -> Option<&mut ::ropewalk_memory::Pool> {
            self.$inner.pool_mut()
        }
    };
    (@post_block $inner:ident) => {
        fn post_block(&mut self, endpoint: $crate::Endpoint, block: ::ropewalk_memory::Loan) -> Result<(), ::ropewalk_memory::Loan> {
            self.$inner.post_block(endpoint, block)
        }
    };
    (@set_reading $inner:ident) => {
        fn set_reading(&mut self, endpoint: $crate::Endpoint, reading: bool) {
            self.$inner.set_reading(endpoint, reading);
        }
    };
    (@is_dry $inner:ident) => {
        fn is_dry(&self, endpoint: $crate::Endpoint) -> bool {
            self.$inner.is_dry(endpoint)
        }
    };
    (@has_waiting $inner:ident) => {
        fn has_waiting(&self, endpoint: $crate::Endpoint) -> bool {
            self.$inner.has_waiting(endpoint)
        }
    };
    (@peer_has_ended $inner:ident) => {
        fn peer_has_ended(&self, endpoint: $crate::Endpoint) -> bool {
            self.$inner.peer_has_ended(endpoint)
        }
    };
    (@peek $inner:ident) => {
        fn peek(&mut self, endpoint: $crate::Endpoint, head: &mut [u8]) -> Option<usize> {
            self.$inner.peek(endpoint, head)
        }
    };
    (@send $inner:ident) => {
        fn send(&mut self, endpoint: $crate::Endpoint, message: &mut Vec<::ropewalk_memory::Slice>) -> Result<(), $crate::SendError> {
            self.$inner.send(endpoint, message)
        }
    };
    (@hands_over $inner:ident) => {
        fn hands_over(&self) -> bool {
            self.$inner.hands_over()
        }
    };
    (@hand_over $inner:ident) => {
        fn hand_over(&mut self, endpoint: $crate::Endpoint, parcel: $crate::Parcel) -> Result<(), ($crate::SendError, $crate::Parcel)> {
            self.$inner.hand_over(endpoint, parcel)
        }
    };
    (@set_send_limits $inner:ident) => {
        fn set_send_limits(&mut self, endpoint: $crate::Endpoint, limits: $crate::SendLimits) {
            self.$inner.set_send_limits(endpoint, limits);
        }
    };
    (@send_room $inner:ident) => {
        fn send_room(&self, endpoint: $crate::Endpoint) -> usize {
            self.$inner.send_room(endpoint)
        }
    };
    (@queued $inner:ident) => {
        fn queued(&self, endpoint: $crate::Endpoint) -> usize {
            self.$inner.queued(endpoint)
        }
    };
    (@set_half_close $inner:ident) => {
        fn set_half_close(&mut self, endpoint: $crate::Endpoint, half_close: bool) {
            self.$inner.set_half_close(endpoint, half_close);
        }
    };
    (@finish $inner:ident) => {
        fn finish(&mut self, endpoint: $crate::Endpoint) {
            self.$inner.finish(endpoint);
        }
    };
    (@close $inner:ident) => {
        fn close(&mut self, endpoint: $crate::Endpoint) {
            self.$inner.close(endpoint);
        }
    };
    (@abort $inner:ident) => {
        fn abort(&mut self, endpoint: $crate::Endpoint) {
            self.$inner.abort(endpoint);
        }
    };
    (@poll $inner:ident) => {
        fn poll(&mut self, now: ::ropewalk_terms::Instant, events: &mut Vec<$crate::Event>) -> usize {
            self.$inner.poll(now, events)
        }
    };
    (@prepare_wait $inner:ident) => {
        fn prepare_wait(&mut self) -> bool {
            self.$inner.prepare_wait()
        }
    };
    (@wait_descriptor $inner:ident) => {
        fn wait_descriptor(&self) -> Option<::std::os::fd::BorrowedFd<'_>> {
            self.$inner.wait_descriptor()
        }
    };
    (@own_wait $inner:ident) => {
        fn own_wait(&mut self) -> Option<&mut dyn $crate::wait::OwnWait> {
            self.$inner.own_wait()
        }
    };
    (@next_deadline $inner:ident) => {
        fn next_deadline(&self) -> Option<::ropewalk_terms::Instant> {
            self.$inner.next_deadline()
        }
    };
}
