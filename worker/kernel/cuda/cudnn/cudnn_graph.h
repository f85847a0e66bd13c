#ifndef ANNULUS_WORKER_KERNEL_CUDA_CUDNN_CUDNN_GRAPH_H_
#define ANNULUS_WORKER_KERNEL_CUDA_CUDNN_CUDNN_GRAPH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/spec/dtype.h"
#include "worker/kernel/cuda/cudnn/cudnn_api.h"

namespace annulus::cuda {

// Attention of `rows` queries to `keys` keys, all visible: the work of one cuDNN graph. Strides are
// in elements from row to row, and multiples of 16 bytes. The numbers of a head are contiguous, and
// so are heads.
struct CudnnShape {
  DataType dtype = DataType::kBf16;  // Or fp16.
  int32_t head_dim = 0, value_dim = 0;
  int32_t q_heads = 0, kv_heads = 0;
  int64_t rows = 0, keys = 0;
  int64_t q_stride = 0, kv_stride = 0;  // kv_stride is that of keys and of values.
  int64_t out_stride = 0;               // For out, max and weight, all fp32.
  friend bool operator==(const CudnnShape& a, const CudnnShape& b);
  friend bool operator<(const CudnnShape& a, const CudnnShape& b);
};

// The device addresses of a graph's tensors, aligned to 16 bytes.
struct CudnnTensors {
  const std::byte *q = nullptr, *k = nullptr, *v = nullptr;
  std::byte *out = nullptr, *max = nullptr, *weight = nullptr;
  // On the host; read during Run.
  const float* scale = nullptr;
};

// Owns a descriptor and destroys it.
class CudnnOwned {
 public:
  CudnnOwned() = default;
  CudnnOwned(CudnnApi* api, CudnnDescriptor descriptor) : api_(api), descriptor_(descriptor) {}
  CudnnOwned(CudnnOwned&& other) noexcept
      : api_(other.api_), descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  CudnnOwned& operator=(CudnnOwned&& other) noexcept {
    std::swap(api_, other.api_);
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~CudnnOwned() {
    if (descriptor_ != nullptr) api_->Destroy(descriptor_);
  }
  CudnnDescriptor get() const { return descriptor_; }

 private:
  CudnnApi* api_ = nullptr;
  CudnnDescriptor descriptor_ = nullptr;
};

// The target of graphs and plans.
struct CudnnTarget {
  CudnnApi* api = nullptr;
  // Exactly one of the two is set: a handle for a present device, or the properties of an absent
  // one.
  CudnnHandle handle = nullptr;
  CudnnDescriptor device = nullptr;
};

// The graph of a shape, and the engine that cuDNN's heuristics choose for it. The engine reports
// that it supports the graph; nothing is compiled yet. The graph computes:
//
//   out = softmax(scale · q · kᵀ) · v,   max = the largest score of a row,
//   weight = Σ exp(score − max).
//
// The weights in `out` are rounded to the type of v.
class CudnnGraph {
 public:
  // UNIMPLEMENTED, with cuDNN's message, if no engine supports the shape.
  static absl::StatusOr<CudnnGraph> Make(const CudnnTarget& target, const CudnnShape& shape);

  CudnnDescriptor graph() const { return graph_.get(); }
  CudnnDescriptor config() const { return config_.get(); }

 private:
  std::vector<CudnnOwned> parts_;  // They must outlive graph_ and config_, which use them.
  CudnnOwned graph_, config_;
};

// A cache of compiled kernels that plans share. A graph of another shape that uses a cached kernel
// becomes a plan without compilation.
class CudnnKernels {
 public:
  static absl::StatusOr<CudnnKernels> Make(CudnnApi* api, const CudnnGraph& first);
  CudnnDescriptor get() const { return cache_.get(); }

 private:
  CudnnOwned cache_;
};

// An executable plan of a graph.
class CudnnPlan {
 public:
  // UNIMPLEMENTED if the plan cannot be made.
  static absl::StatusOr<CudnnPlan> Make(const CudnnTarget& target, CudnnGraph graph,
                                        const CudnnKernels& kernels);

  int64_t workspace_bytes() const { return workspace_bytes_; }
  // Queues the plan on the handle's stream. `workspace`: workspace_bytes() of device memory, in use
  // until the work is done. INTERNAL, with cuDNN's message.
  absl::Status Run(const CudnnTarget& target, const CudnnTensors& tensors,
                   std::byte* workspace) const;

 private:
  explicit CudnnPlan(CudnnGraph graph) : graph_(std::move(graph)) {}

  CudnnGraph graph_;
  CudnnOwned plan_;
  int64_t workspace_bytes_ = 0;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_CUDNN_CUDNN_GRAPH_H_
