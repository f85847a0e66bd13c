#ifndef ANNULUS_WORKER_COMM_GLOO_HEADERS_GLOO_COMMON_MEMORY_H_
#define ANNULUS_WORKER_COMM_GLOO_HEADERS_GLOO_COMMON_MEMORY_H_

#include <memory>

// Replaces a header that Gloo's package does not install. gloo/transport/tcp/pair.h needs only
// these names and their sizes; tests/worker/comm/gloo_context_test.cc checks the sizes against the
// library. Only the library creates and uses both classes.

namespace gloo {

template <typename T>
class NonOwningPtr {
  std::shared_ptr<T> ptr_;
};

template <typename T>
class WeakNonOwningPtr {
  std::weak_ptr<T> ptr_;
};

}  // namespace gloo

#endif  // ANNULUS_WORKER_COMM_GLOO_HEADERS_GLOO_COMMON_MEMORY_H_
