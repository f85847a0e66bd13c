// What the communicator over NCCL says where NCCL was refused memory.

#include <memory>
#include <string>
#include <utility>

#include "attention/error.h"
#include "gmock/gmock.h"
#include "tests/comm/nccl_world.h"

namespace annulus {
namespace {

using absl::StatusCode;

bool IsOutOfMemory(const absl::Status& status) {
  return status.code() == StatusCode::kResourceExhausted &&
         DetailOf(status).reason == "OUT_OF_MEMORY";
}

// As NCCL 2.28 says it, of memory of the device, of pinned memory and of the host's.
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

// Without words for it: the device has nothing left.
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

// As when a group is formed anew that could not be.
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

// NCCL keeps them: a peer that is lost later is not memory.
TEST(NcclMemory, WordsOfCommunicatorsBeforeDoNotCount) {
  NcclStandIn::Options options = With(&NcclStandIn::Options::init, kNcclSystemError);
  options.words = options.words_before = "Failed to malloc 1048576 bytes";
  const auto world = std::make_shared<NcclWorld>(options);
  Group group = GroupIn(world, 2);
  for (const absl::Status& status : ConnectAll(group, TestDeadline()))
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
}

}  // namespace
}  // namespace annulus
