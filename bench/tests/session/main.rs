//! Sessions in one thread, over shared memory in rare states, and over TCP.

/// The remaining methods of a queue pair that wraps another one in `inner`.
macro_rules! the_rest_is_inner {
    () => {
        fn lease_copy(&self, payload: &[u8]) -> ShmLease {
            self.inner.lease_copy(payload)
        }

        fn capabilities(&self) -> &Capabilities {
            self.inner.capabilities()
        }

        fn send_memory(&self) -> Arc<dyn SendMemory> {
            self.inner.send_memory()
        }

        fn prepare(&mut self, range: Range<usize>) -> Result<(), FabricError> {
            self.inner.prepare(range)
        }

        fn retire(&mut self, range: Range<usize>) -> Result<(), FabricError> {
            self.inner.retire(range)
        }

        fn post(&mut self, work: SendWork<'_>) -> Result<(), PostError> {
            self.inner.post(work)
        }

        fn ring_doorbell(&mut self, event: DoorbellEvent) -> Result<(), FabricError> {
            self.inner.ring_doorbell(event)
        }

        fn poll_send(&mut self) -> Option<Completion> {
            self.inner.poll_send()
        }

        fn channel(&self) -> Option<CompletionChannel> {
            self.inner.channel()
        }

        fn grant(&mut self, region: &Region, range: Range<u64>, rights: Rights) -> Result<Grant, GrantError> {
            self.inner.grant(region, range, rights)
        }

        fn revoke(&mut self, grant: GrantId) -> Result<(), GrantError> {
            self.inner.revoke(grant)
        }

        fn close(&mut self) {
            self.inner.close();
        }
    };
}

mod asleep;
mod expected;
mod held;
mod notified;
mod polled;
mod queued;
mod served;
mod streamed;
