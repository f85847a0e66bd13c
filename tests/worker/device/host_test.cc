#include "worker/device/host.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/error.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

TEST(HostDevice, AllocatesAligned) {
  const auto device = MakeHostDevice();
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{9} << 20}) {
    const auto memory = device->Allocate(bytes);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->get()) % 128, 0u);
    if (bytes > 0) (*memory).get()[bytes - 1] = std::byte{1};
  }
}

TEST(HostDevice, RefusesWhatItCannotGive) {
  const auto device = MakeHostDevice();
  EXPECT_EQ(device->Allocate(-1).status().code(), absl::StatusCode::kInvalidArgument);
  const absl::Status refusal = device->Allocate(std::numeric_limits<int64_t>::max() / 2).status();
  EXPECT_EQ(refusal.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(DetailOf(refusal).reason, "OUT_OF_MEMORY");
}

TEST(HostDevice, MemoryOutlivesItsDevice) {
  auto device = MakeHostDevice();
  DeviceMemory memory = *device->Allocate(64);
  device.reset();
  memory.get()[63] = std::byte{7};
  EXPECT_EQ(memory.get()[63], std::byte{7});
}

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(HostDevice, GivesAFreedBlockToARequestOfItsKind) {
  const auto device = MakeHostDevice(MakeHostMemory(64 * kMiB));
  DeviceMemory first = *device->Allocate(9 * kMiB);
  const std::byte* block = first.get();
  first.reset();
  DeviceMemory second = *device->Allocate(8 * kMiB);
  EXPECT_EQ(second.get(), block);
  EXPECT_NE((*device->Allocate(8 * kMiB)).get(), block);  // The block is in use.
  second.reset();
  EXPECT_NE((*device->Allocate(10 * kMiB)).get(), block);  // The block is too small.
}

TEST(HostDevice, KeepsABlockFromARequestThatIsMuchSmaller) {
  const auto device = MakeHostDevice(MakeHostMemory(1024 * kMiB));
  for (const auto& [size, request] : {std::pair(16 * kMiB, 8 * kMiB), {90 * kMiB, 70 * kMiB}}) {
    DeviceMemory large = *device->Allocate(size);
    const std::byte* block = large.get();
    large.reset();
    EXPECT_NE((*device->Allocate(request)).get(), block) << size;
    EXPECT_EQ((*device->Allocate(size - kMiB)).get(), block) << size;
  }
}

TEST(HostDevice, DevicesOfAProcessShareWhatIsKept) {
  const auto memory = MakeHostMemory(64 * kMiB);
  const auto one = MakeHostDevice(memory), two = MakeHostDevice(memory);
  DeviceMemory first = *one->Allocate(4 * kMiB);
  const std::byte* block = first.get();
  first.reset();
  EXPECT_EQ((*two->Allocate(4 * kMiB)).get(), block);
}

TEST(HostDevice, WhatIsKeptAndInUseStaysWithinTheLimit) {
  const auto memory = MakeHostMemory(96 * kMiB);
  const auto device = MakeHostDevice(memory);
  device->Allocate(48 * kMiB)->reset();
  EXPECT_EQ(KeptBytes(memory.get()), 48 * kMiB);
  DeviceMemory large = *device->Allocate(80 * kMiB);
  EXPECT_EQ(KeptBytes(memory.get()), 0);  // The new block left no room for it.
  device->Allocate(16 * kMiB)->reset();
  EXPECT_EQ(KeptBytes(memory.get()), 16 * kMiB);
  device->Allocate(48 * kMiB)->reset();
  EXPECT_EQ(KeptBytes(memory.get()), 0);  // Nothing more fits.
  large.reset();
  EXPECT_EQ(KeptBytes(memory.get()), 80 * kMiB);
}

// 3 rows of 2 bytes, from rows of 5 into rows of 4; other bytes are unchanged.
TEST(HostDevice, CopiesRowsWithStrides) {
  const auto device = MakeHostDevice();
  std::vector<uint8_t> source(15), target(12, 99);
  std::iota(source.begin(), source.end(), 0);
  Copy2d copy;
  copy.source = reinterpret_cast<std::byte*>(source.data());
  copy.source_stride = 5;
  copy.target = reinterpret_cast<std::byte*>(target.data());
  copy.target_stride = 4;
  copy.width = 2;
  copy.rows = 3;
  ASSERT_TRUE(device->CopyIn(copy).ok());
  ASSERT_TRUE(device->Synchronize().ok());
  EXPECT_EQ(target, (std::vector<uint8_t>{0, 1, 99, 99, 5, 6, 99, 99, 10, 11, 99, 99}));
}

// 5 MiB: packed, and rows whose last bytes are not copied.
TEST(HostDevice, SharesLargeCopiesOut) {
  HostDevice device(MakeHostMemory(0), *ComputePool::Create(3));
  constexpr int64_t kRows = 5003, kStride = 1100;
  std::vector<uint8_t> source(kRows * kStride);
  std::iota(source.begin(), source.end(), 0);
  for (const int64_t width : {kStride, kStride - 51}) {
    std::vector<uint8_t> target(source.size(), 0), expected(source.size(), 0);
    for (int64_t row = 0; row < kRows; ++row)
      std::copy_n(source.begin() + row * kStride, width, expected.begin() + row * kStride);
    Copy2d copy;
    copy.source = reinterpret_cast<std::byte*>(source.data());
    copy.target = reinterpret_cast<std::byte*>(target.data());
    copy.source_stride = copy.target_stride = kStride;
    copy.width = width;
    copy.rows = kRows;
    ASSERT_TRUE(device.CopyOut(copy).ok());
    EXPECT_TRUE(target == expected) << width;
  }
}

// Pages of this process that other threads have touched first.
int64_t PagesOfOthers() {
  rusage all, own;
  EXPECT_EQ(getrusage(RUSAGE_SELF, &all), 0);
  EXPECT_EQ(getrusage(RUSAGE_THREAD, &own), 0);
  return all.ru_minflt - own.ru_minflt;
}

// A thread that wakes late is not waited for, so this may need several copies.
TEST(HostDevice, OtherThreadsTakePartInALargeCopy) {
  HostDevice device(MakeHostMemory(0), *ComputePool::Create(2));
  constexpr int64_t kRow = 4096, kRows = 8192;
  std::vector<std::byte> source(kRows * kRow);
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  int64_t pages = 0;
  do {
    void* const target = mmap(nullptr, source.size(), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, /*offset=*/0);
    ASSERT_NE(target, MAP_FAILED);
    (void)madvise(target, source.size(), MADV_NOHUGEPAGE);
    const int64_t before = PagesOfOthers();
    ASSERT_TRUE(
        device.CopyIn({static_cast<std::byte*>(target), kRow, source.data(), kRow, kRow, kRows})
            .ok());
    pages = PagesOfOthers() - before;
    munmap(target, source.size());
  } while (pages < 100 && absl::Now() < deadline);
  EXPECT_GE(pages, 100);
}

// Copies the same zeros to all rows, as for an absent input; and one row that is a large copy by
// itself.
TEST(HostDevice, SharesOutRowsThatAreOneAndRowsThatAreLarge) {
  HostDevice device(MakeHostMemory(0), *ComputePool::Create(2));
  std::vector<uint8_t> source(4 << 20, 3), target(4 << 20);
  Copy2d copy;
  copy.source = reinterpret_cast<std::byte*>(source.data());
  copy.target = reinterpret_cast<std::byte*>(target.data());
  copy.width = copy.target_stride = 1 << 10;
  copy.rows = 4 << 10;
  ASSERT_TRUE(device.CopyIn(copy).ok());
  EXPECT_TRUE(target == source);
  source.assign(4 << 20, 5);
  copy.width = copy.source_stride = copy.target_stride = 4 << 20;
  copy.rows = 1;
  ASSERT_TRUE(device.CopyIn(copy).ok());
  EXPECT_TRUE(target == source);
}

TEST(HostDevice, CopiesPackedRowsAndNone) {
  const auto device = MakeHostDevice();
  std::vector<uint8_t> source = {1, 2, 3, 4}, target(4);
  Copy2d copy;
  copy.source = reinterpret_cast<std::byte*>(source.data());
  copy.target = reinterpret_cast<std::byte*>(target.data());
  copy.width = copy.source_stride = copy.target_stride = 2;
  copy.rows = 2;
  ASSERT_TRUE(device->CopyOut(copy).ok());
  EXPECT_EQ(target, source);
  copy.rows = 0;
  copy.source = copy.target = nullptr;
  EXPECT_TRUE(device->CopyOut(copy).ok());
}

}  // namespace
}  // namespace annulus
