#ifndef ANNULUS_WORKER_COMM_GLOO_CONTEXT_H_
#define ANNULUS_WORKER_COMM_GLOO_CONTEXT_H_

#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>

#include <cstdint>
#include <memory>

#include "worker/comm/bind_address.h"

namespace annulus {

// Starts an event-loop thread and listens at `address`. Throws Gloo's exceptions.
std::shared_ptr<::gloo::transport::tcp::Device> MakeGlooDevice(const BindAddress& address);

// A Gloo context whose pairs differ from Gloo's own in two ways:
// - The event loop pauses while another thread holds the lock of a pair that has events. Gloo's own
//   loop retries at once. If that thread lost its CPU in the middle of a send, often to the loop
//   that the send woke, the loop burns a time slice.
// - An exception on the event loop, for example because a stranger connected in a peer's place,
//   becomes an error of the pair that its next call throws. Gloo's own loop ends the process.
// Throws Gloo's exceptions.
std::shared_ptr<::gloo::transport::Context> MakeGlooContext(
    std::shared_ptr<::gloo::transport::tcp::Device> device, int32_t rank, int32_t size);

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_GLOO_CONTEXT_H_
