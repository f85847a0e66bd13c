#include "tests/worker/device/device_conformance.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "base/error.h"

namespace annulus {
namespace {

std::vector<std::byte> Numbered(int64_t bytes, int first) {
  std::vector<std::byte> data(bytes);
  for (int64_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(first + i * 7);
  return data;
}

TEST_P(DeviceConformance, AllocatesAlignedOnAnyThread) {
  std::thread other([this] {
    for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{9} << 20}) {
      const auto memory = device_.Allocate(bytes);
      ASSERT_TRUE(memory.ok()) << memory.status();
      EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->get()) % 128, 0u);
    }
  });
  other.join();
}

TEST_P(DeviceConformance, RefusesWhatItCannotGive) {
  EXPECT_EQ(device_.Allocate(-1).status().code(), absl::StatusCode::kInvalidArgument);
  const absl::Status refusal = device_.Allocate(std::numeric_limits<int64_t>::max() / 2).status();
  EXPECT_EQ(refusal.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(DetailOf(refusal).reason, "OUT_OF_MEMORY");
  EXPECT_TRUE(device_.Allocate(100).ok());
}

TEST_P(DeviceConformance, MemoryOutlivesItsDevice) {
  DeviceMemory memory = *device_.Allocate(64);
  under_test_.device.reset();
  EXPECT_NE(memory.get(), nullptr);
}

TEST_P(DeviceConformance, NothingQueuedIsDoneAtOnce) {
  EXPECT_TRUE(device_.Synchronize().ok());
  EXPECT_TRUE(device_.CopyIn({}).ok());
  EXPECT_TRUE(device_.CopyOut({}).ok());
  EXPECT_TRUE(device_.Synchronize().ok());
}

// Kernels see the copied inputs, and their results are copied out. Random shapes: rows of all
// widths, with gaps on both sides, wider and longer than any intermediate buffer.
TEST_P(DeviceConformance, CopiesAndKernelsAreInOrder) {
  std::mt19937 random(testing::UnitTest::GetInstance()->random_seed());
  RecordProperty("seed", testing::UnitTest::GetInstance()->random_seed());
  const auto draw = [&](int64_t most) { return 1 + static_cast<int64_t>(random() % most); };
  for (int round = 0; round < 40; ++round) {
    const int64_t width = draw(round % 4 == 0 ? 9000 : 90), rows = draw(round % 5 == 0 ? 500 : 20);
    const int64_t in_stride = width + draw(9), device_stride = width + draw(9);
    const std::vector<std::byte> source = Numbered(rows * in_stride, round);
    std::vector<std::byte> target(rows * in_stride, std::byte{99});
    DeviceMemory memory = *device_.Allocate(rows * device_stride);
    std::byte* const data = memory.get();
    ASSERT_TRUE(device_.CopyIn({data, device_stride, source.data(), in_stride, width, rows}).ok());
    ASSERT_TRUE(under_test_
                    .launch([=] {
                      for (int64_t row = 0; row < rows; ++row)
                        data[row * device_stride] ^= std::byte{1};
                    })
                    .ok());
    ASSERT_TRUE(device_.CopyOut({target.data(), in_stride, data, device_stride, width, rows}).ok());
    ASSERT_TRUE(device_.Synchronize().ok());
    for (int64_t row = 0; row < rows; ++row) {
      const std::byte* const from = &source[row * in_stride];
      const std::byte* const to = &target[row * in_stride];
      ASSERT_EQ(to[0], from[0] ^ std::byte{1}) << round;
      ASSERT_EQ(std::memcmp(to + 1, from + 1, width - 1), 0) << round;
      ASSERT_EQ(to[width], std::byte{99}) << round;
    }
  }
}

TEST_P(DeviceConformance, CopiesOneRowManyTimes) {
  const std::vector<std::byte> source = Numbered(5, 3);
  DeviceMemory memory = *device_.Allocate(50);
  ASSERT_TRUE(device_.CopyIn({memory.get(), 5, source.data(), 0, 5, 10}).ok());
  std::vector<std::byte> target(50);
  ASSERT_TRUE(device_.CopyOut({target.data(), 50, memory.get(), 50, 50, 1}).ok());
  ASSERT_TRUE(device_.Synchronize().ok());
  for (int row = 0; row < 10; ++row) {
    EXPECT_EQ(std::memcmp(&target[row * 5], source.data(), 5), 0) << row;
  }
}

}  // namespace
}  // namespace annulus
