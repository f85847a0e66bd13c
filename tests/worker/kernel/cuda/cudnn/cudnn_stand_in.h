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

// A cuDNN that does what a graph's operations say, in fp64, when it is told to: matrix products
// with heads in groups, pointwise operations and reductions over keys. Only what is bound to memory
// is rounded, and what is of 16 bits; what is beyond fp32 is infinite. As the real one may, its
// maxima pass over NaN, and a row of which every score is −infinity has a weight of 0 and means
// that are NaN, which is not what the graph says.
class CudnnStandIn : public CudnnApi {
 public:
  CudnnStandIn();
  ~CudnnStandIn() override;

  int64_t plans_made() const { return plans_made_; }
  int64_t runs() const { return runs_; }
  // Descriptors and handles that are not destroyed.
  int64_t alive() const { return static_cast<int64_t>(alive_.size()) + handles_; }
  // Called with each shape (rows, keys) of which a plan is asked: false refuses it.
  void set_serves(std::function<bool(int64_t, int64_t)> serves) { serves_ = std::move(serves); }
  void set_workspace_bytes(int64_t bytes) { workspace_bytes_ = bytes; }
  // From now on plans are made, but do not run.
  void Break() { broken_ = true; }
  // From now on it takes no queue.
  void RefuseStreams() { takes_streams_ = false; }
  // From now on a row of which every score is −infinity has a weight that is NaN, as graphs say.
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
