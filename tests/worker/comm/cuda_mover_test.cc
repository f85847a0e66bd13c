// Ranks of one process that share a GPU, whose messages are copies in its memory; on a stand-in.

#include "tests/worker/comm/cuda_mover.h"

#include <utility>
#include <vector>

#include "tests/worker/comm/communicator_conformance.h"
#include "tests/worker/comm/forwarding_communicator.h"
#include "tests/worker/device/cuda_stand_in.h"

namespace annulus {
namespace {

// A stand-in with the devices of some ranks.
struct World {
  World(int32_t size, bool pageable) : cuda(CudaOptions(pageable)) {
    CudaContext::Options options;
    options.arena_bytes = 16 << 20;
    options.workspace_bytes = 0;
    options.bounce_bytes = 64 << 10;
    const std::shared_ptr<CudaContext> context = *CudaContext::Create(&cuda, options);
    InProcessHub::Options hub_options;
    hub_options.size = size;
    std::vector<CudaDevice*> borrowed;
    for (int32_t r = 0; r < size; ++r) {
      devices.push_back(*CudaDevice::Create(context));
      borrowed.push_back(devices.back().get());
    }
    hub_options.mover = *MakeCudaMover(borrowed);
    hub = std::make_unique<InProcessHub>(hub_options);
  }
  static CudaStandIn::Options CudaOptions(bool pageable) {
    CudaStandIn::Options options;
    options.count = 1;
    options.memory_bytes = int64_t{1} << 30;
    // Short, because the suite has thousands of steps.
    options.max_delay = absl::Microseconds(pageable ? 5 : 50);
    options.pageable = pageable;
    return options;
  }

  CudaStandIn cuda;
  std::vector<std::unique_ptr<CudaDevice>> devices;
  std::unique_ptr<InProcessHub> hub;
};

// A communicator with the world that it borrows from.
class InWorld final : public ForwardingCommunicator {
 public:
  InWorld(std::shared_ptr<World> world, int32_t rank)
      : world_(std::move(world)), inner_(world_->hub->MakeCommunicator(rank)) {}

 private:
  Communicator& inner() const override { return *inner_; }

  const std::shared_ptr<World> world_;
  std::unique_ptr<Communicator> inner_;
};

Group GroupIn(const std::shared_ptr<World>& world, int32_t size) {
  Group group;
  for (int32_t r = 0; r < size; ++r) group.push_back(std::make_unique<InWorld>(world, r));
  return group;
}

// The suite's messages are in host memory.
INSTANTIATE_TEST_SUITE_P(
    CudaMover, CommunicatorConformance,
    testing::Values(
        ConformanceCase{"2", [](int32_t n) { return GroupIn(std::make_shared<World>(n, true), n); },
                        2},
        ConformanceCase{"4", [](int32_t n) { return GroupIn(std::make_shared<World>(n, true), n); },
                        4}),
    ConformanceName);

// A sender's earlier work is included in the step's messages, and a receiver's earlier work is done
// before they arrive.
TEST(CudaMover, MessagesComeBehindWhatBothRanksHadQueued) {
  const auto world = std::make_shared<World>(2, false);
  Group group = ConnectedGroup([&](int32_t n) { return GroupIn(world, n); }, 2);
  ASSERT_EQ(group.size(), 2u);
  for (int round = 0; round < 30; ++round) {
    DeviceMemory sent = *world->devices[0]->Allocate(4), got = *world->devices[1]->Allocate(4);
    auto* const from = reinterpret_cast<int32_t*>(sent.get());
    auto* const to = reinterpret_cast<int32_t*>(got.get());
    int32_t before = -1;
    *from = *to = 0;
    const auto statuses = RunRanks(2, [&](int32_t r) -> absl::Status {
      const auto stream = world->devices[r]->Compute();
      if (!stream.ok()) return stream.status();
      // The ranks are late in turns.
      for (int n = 0; n < 10 && r == round % 2; ++n) (void)world->cuda.Launch(*stream, [] {});
      if (r == 0) {
        (void)world->cuda.Launch(*stream, [=] { *from = round + 1; });
        absl::Status status = group[0]->Start({SendMessage{1, sent.get(), 4}}, {});
        status.Update(group[0]->Join(TestDeadline()));
        return status;
      }
      (void)world->cuda.Launch(*stream, [to, &before] { before = *to; });
      absl::Status status = group[1]->Start({}, {ReceiveMessage{0, got.get(), 4}});
      status.Update(group[1]->Join(TestDeadline()));
      return status;
    });
    ASSERT_TRUE(FirstError(statuses).ok()) << FirstError(statuses);
    EXPECT_EQ(before, 0);
    EXPECT_EQ(*to, round + 1);
    ASSERT_TRUE(world->devices[0]->Synchronize().ok());
    ASSERT_TRUE(world->devices[1]->Synchronize().ok());
  }
}

TEST(CudaMover, AFaultFailsBothRanks) {
  const auto world = std::make_shared<World>(2, false);
  Group group = ConnectedGroup([&](int32_t n) { return GroupIn(world, n); }, 2);
  ASSERT_EQ(group.size(), 2u);
  DeviceMemory sent = *world->devices[0]->Allocate(4), got = *world->devices[1]->Allocate(4);
  ASSERT_TRUE(group[0]->Start({SendMessage{1, sent.get(), 4}}, {}).ok());
  // Called on this thread. The stream of rank 1 exists, and its work breaks the GPU.
  ASSERT_EQ(world->cuda.Launch(*world->devices[1]->Compute(),
                               [&] { world->cuda.Break(CudaStandIn::kIllegalAddress); }),
            0);
  absl::Status receiver = group[1]->Start({}, {ReceiveMessage{0, got.get(), 4}});
  if (receiver.ok()) receiver = group[1]->Join(TestDeadline());
  EXPECT_TRUE(IsDeviceFault(receiver)) << receiver;
  // Fails by the same fault, or because rank 1 has left.
  EXPECT_FALSE(group[0]->Join(TestDeadline()).ok());
}

}  // namespace
}  // namespace annulus
