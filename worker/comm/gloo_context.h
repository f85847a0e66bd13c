#ifndef ANNULUS_WORKER_COMM_GLOO_CONTEXT_H_
#define ANNULUS_WORKER_COMM_GLOO_CONTEXT_H_

#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>

#include <cstdint>
#include <memory>

#include "worker/comm/bind_address.h"

namespace annulus {

// With a loop, a thread of its own, and listening there. Throws what Gloo throws.
std::shared_ptr<::gloo::transport::tcp::Device> MakeGlooDevice(const BindAddress& address);

// A context as the device makes it, but for two things. Its loop pauses where another thread goes
// on holding the lock of a pair that has events: Gloo's own looks again at once, and where that
// thread has been put off its CPU in the midst of a send, often by the loop that the send woke, it
// burns a time slice. And what goes wrong on the loop, as with somebody else who has connected in a
// peer's place, is an error of the pair that its next call throws; Gloo's own ends the process.
// Throws what Gloo throws.
std::shared_ptr<::gloo::transport::Context> MakeGlooContext(
    std::shared_ptr<::gloo::transport::tcp::Device> device, int32_t rank, int32_t size);

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_GLOO_CONTEXT_H_
