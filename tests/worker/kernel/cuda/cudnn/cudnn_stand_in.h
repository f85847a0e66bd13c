#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_CUDNN_CUDNN_STAND_IN_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_CUDNN_CUDNN_STAND_IN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "worker/kernel/cuda/cudnn/cudnn_api.h"

namespace annulus::cuda {

// A fake cuDNN that executes a graph's operations in fp64: matrix products with heads in groups,
// pointwise operations and reductions over keys. Rounds only results that are bound to memory, and
// 16-bit tensors; numbers beyond fp32 become infinite. Its maxima
// ignore NaN, and a row with only −infinity scores gets weight 0 and NaN means, which differs from
// the graph.
class CudnnStandIn : public CudnnApi {
 public:
  CudnnStandIn();
  ~CudnnStandIn() override;

  int64_t plans_made() const { return plans_made_; }
  int64_t runs() const { return runs_; }
  // The number of descriptors and handles that are not destroyed.
  int64_t alive() const { return static_cast<int64_t>(alive_.size()) + handles_; }
  // `serves` is called with the shape (rows, keys) of each requested plan; false refuses it.
  void set_serves(std::function<bool(int64_t, int64_t)> serves) { serves_ = std::move(serves); }
  void set_workspace_bytes(int64_t bytes) { workspace_bytes_ = bytes; }
  // From now on plans are made, but fail when they run.
  void Break() { broken_ = true; }
  // From now on it refuses streams.
  void RefuseStreams() { takes_streams_ = false; }
  // From now on a row with only −infinity scores has a NaN weight, as the graph defines.
  void MakeNanOfLostRows() { lost_are_nan_ = true; }
  CudaStream last_stream() const { return stream_; }

  int64_t Version() override { return 91900; }
  std::string LastError() override { return error_; }
  CudnnStatus CreateHandle(CudnnHandle* handle) override;
  CudnnStatus DestroyHandle(CudnnHandle handle) override;
  CudnnStatus SetStream(CudnnHandle handle, CudaStream stream) override;
  CudnnStatus Create(CudnnKind kind, CudnnDescriptor* made) override;
  CudnnStatus Destroy(CudnnDescriptor descriptor) override;
  CudnnStatus Set(CudnnDescriptor descriptor, CudnnName name, CudnnType type, int64_t count,
                  const void* values) override;
  CudnnStatus Get(CudnnDescriptor descriptor, CudnnName name, CudnnType type, int64_t room,
                  int64_t* count, void* values) override;
  CudnnStatus Finalize(CudnnDescriptor descriptor) override;
  CudnnStatus Execute(CudnnHandle handle, CudnnDescriptor plan, CudnnDescriptor pack) override;

  struct Descriptor;

 private:
  CudnnStatus Refuse(const std::string& why);

  std::set<Descriptor*> alive_;
  std::function<bool(int64_t, int64_t)> serves_;
  int64_t workspace_bytes_ = 256;
  int64_t handles_ = 0, plans_made_ = 0, runs_ = 0;
  bool takes_streams_ = true, broken_ = false, lost_are_nan_ = false;
  CudaStream stream_ = nullptr;
  std::string error_;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_CUDNN_CUDNN_STAND_IN_H_
