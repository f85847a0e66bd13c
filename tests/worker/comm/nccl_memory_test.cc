// Errors of the NCCL communicator if NCCL is refused memory or another resource of the machine.

#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "gmock/gmock.h"
#include "tests/worker/comm/nccl_world.h"
#include "worker/comm/communicator_base.h"

namespace annulus {
namespace {

using absl::StatusCode;

bool IsOutOfMemory(const absl::Status& status) {
  return status.code() == StatusCode::kResourceExhausted &&
         DetailOf(status).reason == "OUT_OF_MEMORY";
}

// Texts of NCCL 2.28 for device memory, pinned memory and host memory.
TEST(NcclMemory, MemoryThatIsRefusedIsToldAsThat) {
  const std::pair<NcclResult, const char*> cases[] = {
      {kNcclUnhandledCudaError, "Cuda failure 2 'out of memory'"},
      {kNcclUnhandledCudaError, "Failed to CUDA calloc async 6291456 bytes"},
      {kNcclUnhandledCudaError, "Failed to CUDA malloc 4096 bytes"},
      {kNcclUnhandledCudaError, "Failed to CUDA host alloc 4096 bytes"},
      {kNcclSystemError, "Failed to malloc 1048576 bytes"},
      {kNcclSystemError, "Call to mmap failed: Cannot allocate memory"}};
  for (const auto& [result, words] : cases) {
    for (const auto where : {&NcclStandIn::Options::init, &NcclStandIn::Options::init_later}) {
      NcclStandIn::Options options = With(where, result);
      options.words = words;
      const auto world = std::make_shared<NcclWorld>(options);
      Group group = GroupIn(world, 2);
      const auto statuses = ConnectAll(group, TestDeadline());
      EXPECT_TRUE(IsOutOfMemory(statuses[0]) || IsOutOfMemory(statuses[1])) << statuses[0];
      EXPECT_THAT(std::string(statuses[0].message()), testing::HasSubstr(words));
    }
  }
}

// Texts of NCCL 2.19 and 2.28 if /dev/shm is full, or the limit of files or threads is reached.
constexpr const char* kHostLimits[] = {
    ("Error: failed to extend /dev/shm/nccl-0uQ1 to 9637892 bytes, error: No space left on device "
     "(28)"),
    "Error while creating shared memory segment /dev/shm/nccl-0uQ1 (size 9637888)",
    "Error: failed to create shared memory file /dev/shm/nccl-XXXXXX, error Permission denied (13)",
    "Error: Could not map /dev/shm/nccl-0uQ1 size 4096, error: Invalid argument (22)",
    "socketTryAccept: Accept failed: Too many open files",
    "Call to pthread_create failed: Resource temporarily unavailable"};

void ExpectHostLimit(const absl::Status& status, const std::string& words) {
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(DetailOf(status).reason, "HOST_LIMIT");
  EXPECT_EQ(DetailOf(status).metadata.count("peer"), 0u) << "no peer has a part in it";
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr(words));
}

TEST(NcclMemory, WhatElseThisMachineRefusesIsNoPeersFault) {
  for (const char* const words : kHostLimits) {
    NcclStandIn::Options options = With(&NcclStandIn::Options::init, kNcclSystemError);
    options.words = words;
    const auto world = std::make_shared<NcclWorld>(options);
    Group group = GroupIn(world, 2);
    for (const absl::Status& status : ConnectAll(group, TestDeadline()))
      ExpectHostLimit(status, words);
    options = With(&NcclStandIn::Options::id, kNcclSystemError);
    options.words = words;
    const auto without_id = std::make_shared<NcclWorld>(options);
    ExpectHostLimit(GroupIn(without_id, 2)[0]->Bootstrap().status(), words);
  }
}

TEST(NcclMemory, WhatIsSaidOfPeersIsStillTheirs) {
  for (const char* const words :
       {"", "socketPollConnect to 10.0.0.7<40123> failed with error Connection refused",
        "Error while attaching to shared memory segment /dev/shm/nccl-0uQ1 (size 9637888)"}) {
    NcclStandIn::Options options = With(&NcclStandIn::Options::init, kNcclSystemError);
    options.words = words;
    const auto world = std::make_shared<NcclWorld>(options);
    Group group = GroupIn(world, 2);
    const auto statuses = ConnectAll(group, TestDeadline());
    EXPECT_EQ(DetailOf(statuses[0]).reason, kReasonPeerLost) << statuses[0];
    EXPECT_EQ(DetailOf(statuses[0]).metadata.at("peer"), "1");
  }
}

// NCCL gives no text, but the device has no memory left.
TEST(NcclMemory, ADeviceWithoutMemoryTellsWhatNcclDoesNot) {
  NcclStandIn::Options options;
  options.group = 2;
  options.group_later = kNcclUnhandledCudaError;
  for (const bool full : {false, true}) {
    const auto world = std::make_shared<NcclWorld>(options);
    Group group = ConnectedGroup([&](int32_t size) { return GroupIn(world, size); }, 2);
    ASSERT_FALSE(group.empty());
    int64_t free = 0;
    std::byte* rest = nullptr;
    ASSERT_EQ(world->cuda.MemoryFree(&free), kCudaSuccess);
    if (full) {
      ASSERT_EQ(world->cuda.Malloc(&rest, free - (1 << 20)), kCudaSuccess);
    }
    std::byte data[8] = {};
    absl::Status seen = group[0]->Start({SendMessage{1, data, 8}}, {});
    if (seen.ok()) seen = group[0]->Join(TestDeadline());
    EXPECT_EQ(IsOutOfMemory(seen), full) << seen;
    if (full) (void)world->cuda.Free(rest);
  }
}

// For example, a group that failed to form is formed again.
TEST(NcclMemory, MemoryOfTheDeviceThatIsRefusedAgainIsToldAgain) {
  NcclStandIn::Options options = With(&NcclStandIn::Options::init, kNcclUnhandledCudaError);
  options.words = options.words_before = "Failed to CUDA calloc async 6291456 bytes";
  const auto world = std::make_shared<NcclWorld>(options);
  Group group = GroupIn(world, 2);
  for (const absl::Status& status : ConnectAll(group, TestDeadline())) {
    EXPECT_TRUE(IsOutOfMemory(status)) << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(options.words));
  }
}

// NCCL keeps its text: a peer lost later is no memory error.
TEST(NcclMemory, WordsOfCommunicatorsBeforeDoNotCount) {
  for (const char* const words : {"Failed to malloc 1048576 bytes", kHostLimits[0]}) {
    NcclStandIn::Options options = With(&NcclStandIn::Options::init, kNcclSystemError);
    options.words = options.words_before = words;
    const auto world = std::make_shared<NcclWorld>(options);
    Group group = GroupIn(world, 2);
    for (const absl::Status& status : ConnectAll(group, TestDeadline()))
      EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  }
}

}  // namespace
}  // namespace annulus
