#ifndef ANNULUS_WORKER_COMM_GLOO_CONTEXT_H_
#define ANNULUS_WORKER_COMM_GLOO_CONTEXT_H_

#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>

#include <cstdint>
#include <memory>

namespace annulus {

// A context as the device makes it, but that its pairs wait for their locks. Gloo's own look again
// at once, as long as another thread holds the lock: where that thread has been put off its CPU in
// the midst of a send, as the one that the send wakes often does, they burn a whole time slice.
// Throws what Gloo throws.
std::shared_ptr<::gloo::transport::Context> MakeGlooContext(
    std::shared_ptr<::gloo::transport::tcp::Device> device, int32_t rank, int32_t size);

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_GLOO_CONTEXT_H_
