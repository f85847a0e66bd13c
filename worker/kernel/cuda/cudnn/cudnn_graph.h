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

// Attention of `rows` queries to `keys` keys, all of them visible: what one graph of cuDNN does.
// Strides are elements from a row to the next, multiples of 16 bytes; a head's numbers lie side by
// side, and heads one after the other.
struct CudnnShape {
  DataType dtype = DataType::kBf16;  // Or fp16.
  int32_t head_dim = 0, value_dim = 0;
  int32_t q_heads = 0, kv_heads = 0;
  int64_t rows = 0, keys = 0;
  int64_t q_stride = 0, kv_stride = 0;  // kv: of keys and of values.
  int64_t out_stride = 0;               // Of out, max and weight, all fp32.
  friend bool operator==(const CudnnShape& a, const CudnnShape& b);
  friend bool operator<(const CudnnShape& a, const CudnnShape& b);
};

// Where a graph's tensors are: of 16 bytes' alignment, on the device.
struct CudnnTensors {
  const std::byte *q = nullptr, *k = nullptr, *v = nullptr;
  std::byte *out = nullptr, *max = nullptr, *weight = nullptr;
  // Of the host: read while Run is called.
  const float* scale = nullptr;
};

// A descriptor that is destroyed with it.
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

// For what graphs and plans are made.
struct CudnnTarget {
  CudnnApi* api = nullptr;
  // One of them: a handle, of a device that is there, or properties of one that is not.
  CudnnHandle handle = nullptr;
  CudnnDescriptor device = nullptr;
};

// The graph of a shape and the engine that cuDNN's heuristics choose for it, which says that it is
// supported; nothing is compiled yet.
//   out = softmax(scale · q · kᵀ) · v,   max = the largest score of a row,
//   weight = Σ exp(score − max); weights of `out` are rounded to the type of v.
class CudnnGraph {
 public:
  // UNIMPLEMENTED, with cuDNN's words, where no engine supports the shape.
  static absl::StatusOr<CudnnGraph> Make(const CudnnTarget& target, const CudnnShape& shape);

  CudnnDescriptor graph() const { return graph_.get(); }
  CudnnDescriptor config() const { return config_.get(); }

 private:
  std::vector<CudnnOwned> parts_;  // They outlive what is made of them.
  CudnnOwned graph_, config_;
};

// Kernels that plans share. A graph of another shape, whose kernel is in it, is a plan without
// compiling anything.
class CudnnKernels {
 public:
  static absl::StatusOr<CudnnKernels> Make(CudnnApi* api, const CudnnGraph& first);
  CudnnDescriptor get() const { return cache_.get(); }

 private:
  CudnnOwned cache_;
};

// What can be run.
class CudnnPlan {
 public:
  // UNIMPLEMENTED where the plan cannot be made.
  static absl::StatusOr<CudnnPlan> Make(const CudnnTarget& target, CudnnGraph graph,
                                        const CudnnKernels& kernels);

  int64_t workspace_bytes() const { return workspace_bytes_; }
  // Queues it on the handle's stream. `workspace`: workspace_bytes of the device, in use until it
  // is done. INTERNAL with cuDNN's words.
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
