#ifndef ANNULUS_TESTS_WORKER_COMM_NCCL_WORLD_H_
#define ANNULUS_TESTS_WORKER_COMM_NCCL_WORLD_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "tests/worker/comm/forwarding_communicator.h"
#include "tests/worker/comm/group.h"
#include "tests/worker/comm/nccl_stand_in.h"
#include "worker/comm/nccl.h"

namespace annulus {

// A GPU and its NCCL, shared by the ranks of a test.
struct NcclWorld {
  explicit NcclWorld(NcclStandIn::Options options = {}) : cuda(CudaOptions()) {
    CudaContext::Options context_options;
    context_options.arena_bytes = 16 << 20;
    context_options.workspace_bytes = 0;
    context_options.bounce_bytes = 64 << 10;
    context = *CudaContext::Create(&cuda, context_options);
    options.cuda = &cuda;
    nccl = std::make_unique<NcclStandIn>(options);
  }
  static CudaStandIn::Options CudaOptions() {
    CudaStandIn::Options options;
    options.count = 1;
    options.memory_bytes = int64_t{1} << 30;
    options.max_delay = absl::Microseconds(5);
    return options;
  }

  CudaStandIn cuda;
  std::shared_ptr<CudaContext> context;
  std::unique_ptr<NcclStandIn> nccl;
  NcclLostIds lost_ids;
};

// A communicator with the device that it borrows.
class NcclWithDevice final : public ForwardingCommunicator {
 public:
  NcclWithDevice(std::shared_ptr<NcclWorld> world, NcclApi* nccl, int32_t rank, int32_t size)
      : world_(std::move(world)), device_(*CudaDevice::Create(world_->context)) {
    NcclOptions options;
    options.api = nccl;
    options.device = device_.get();
    options.rank = rank;
    options.size = size;
    options.lost_ids = &world_->lost_ids;
    inner_ = *MakeNcclCommunicator(options);
  }

  CudaDevice* device() { return device_.get(); }

 private:
  Communicator& inner() const override { return *inner_; }

  const std::shared_ptr<NcclWorld> world_;
  const std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<Communicator> inner_;
};

inline Group GroupIn(const std::shared_ptr<NcclWorld>& world, int32_t size) {
  Group group;
  for (int32_t r = 0; r < size; ++r) {
    group.push_back(std::make_unique<NcclWithDevice>(world, world->nccl.get(), r, size));
  }
  return group;
}

inline Group GroupInItsOwnWorld(int32_t size) {
  return GroupIn(std::make_shared<NcclWorld>(), size);
}

inline NcclStandIn::Options With(NcclResult NcclStandIn::Options::*member, NcclResult result) {
  NcclStandIn::Options options;
  options.*member = result;
  return options;
}

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_COMM_NCCL_WORLD_H_
