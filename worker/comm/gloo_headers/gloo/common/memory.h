#ifndef ANNULUS_WORKER_COMM_GLOO_HEADERS_GLOO_COMMON_MEMORY_H_
#define ANNULUS_WORKER_COMM_GLOO_HEADERS_GLOO_COMMON_MEMORY_H_

#include <memory>

// What gloo/transport/tcp/pair.h needs of a header that Gloo's package does not install: names, and
// how large they are (tests/worker/comm/gloo_context_test.cc holds that against the library). Both
// are made and used within the library only.

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
