// The emulator of sm_90a itself: matrices in shared memory and in registers as in the PTX ISA,
// boxes, rings, and pending operations.
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "attention/spec/dtype.h"
#include "tests/worker/kernel/cuda/sm90/hopper_machine_fixture.h"

namespace annulus::cuda {
namespace {

// "Swizzling modes", 128B: within 8 rows of 128 bytes, 16-byte chunk c of row r is at c XOR r.
// Element (row, column) of panels of `rows` rows × 64 columns.
uint32_t Place(int rows, int row, int column) {
  const int panel = column / 64, in_panel = column % 64, chunk = in_panel / 8;
  return panel * rows * 128 + row * 128 + ((chunk ^ (row & 7)) << 4) + in_panel % 8 * 2;
}

template <Element ELEMENT>
uint16_t Bits(int value) {
  return ELEMENT == Element::kBf16 ? Fp32ToBf16(static_cast<float>(value))
                                   : Fp32ToFp16(static_cast<float>(value));
}

struct Matrix {
  Matrix(int rows, int columns, int seed) : rows(rows), columns(columns) {
    std::mt19937 random(seed);
    for (int i = 0; i < rows * columns; ++i) values.push_back(static_cast<int>(random() % 17) - 8);
  }
  int at(int row, int column) const { return values[row * columns + column]; }

  int rows, columns;
  std::vector<int> values;
};

// The group writes a matrix as panels.
template <Element ELEMENT>
void Put(const Gpu& gpu, const Matrix& m, uint32_t at) {
  for (int i = 2 * (gpu.Thread() - 128); i < m.rows * m.columns; i += 2 * 128)
    gpu.StoreShared<uint32_t>(
        at + Place(m.rows, i / m.columns, i % m.columns),
        Bits<ELEMENT>(m.values[i]) | uint32_t{Bits<ELEMENT>(m.values[i + 1])} << 16);
}

// "Register Fragments for wgmma.mma_async.m64nNk16", matrix D: element i of a thread.
int RowOfD(int thread, int i) {
  const int group_id = thread % 32 >> 2;
  return thread / 32 % 4 * 16 + group_id + (i % 4 < 2 ? 0 : 8);
}
int ColumnOfD(int thread, int i) { return i / 4 * 8 + thread % 4 * 2 + (i & 1); }

// sums = 1 + left · rightᵀ, both K-major, over two panels.
template <Element ELEMENT, int COLUMNS>
void RowsAreMultipliedAsTheIsaSays(
    const std::function<std::string(const std::function<void(const Gpu&)>&)>& run) {
  const Matrix left(64, 128, 1), right(COLUMNS, 128, 2);
  constexpr uint32_t kLeft = 0, kRight = 16 << 10;
  int wrong = 0;
  ASSERT_EQ(
      run([&](const Gpu& gpu) {
        if (!Multiplies(gpu)) return;
        Put<ELEMENT>(gpu, left, kLeft);
        Put<ELEMENT>(gpu, right, kRight);
        gpu.FenceAsync();
        gpu.SyncGroup(1);
        float sums[COLUMNS / 2];
        for (float& sum : sums) sum = 1;
        gpu.FenceProducts(sums);
        for (int column = 0; column < 128; column += 16)
          gpu.MultiplyRows<ELEMENT, COLUMNS>(AlongRows(kLeft, 64 * 128, column),
                                             AlongRows(kRight, COLUMNS * 128, column), sums, true);
        gpu.CommitProducts();
        gpu.AwaitProducts(sums);
        for (int i = 0; i < COLUMNS / 2; ++i) {
          int exact = 1;
          for (int k = 0; k < 128; ++k)
            exact += left.at(RowOfD(gpu.Thread(), i), k) * right.at(ColumnOfD(gpu.Thread(), i), k);
          wrong += sums[i] != static_cast<float>(exact) ? 1 : 0;
        }
      }),
      "");
  EXPECT_EQ(wrong, 0);
}

TEST_F(HopperMachineTest, RowsAreMultipliedAsTheIsaSays) {
  const auto run = [&](const std::function<void(const Gpu&)>& body) { return Run(body); };
  RowsAreMultipliedAsTheIsaSays<Element::kBf16, 128>(run);
  RowsAreMultipliedAsTheIsaSays<Element::kBf16, 96>(run);
  RowsAreMultipliedAsTheIsaSays<Element::kFp16, 64>(run);
}

// sums = left · right, the left side in registers ("matrix A", m64k16), the right side MN-major.
TEST_F(HopperMachineTest, ColumnsAreMultipliedAsTheIsaSays) {
  constexpr Element kElement = Element::kBf16;
  const Matrix left(64, 64, 3), right(64, 128, 4);
  int wrong = 0;
  ASSERT_EQ(Run([&](const Gpu& gpu) {
              if (!Multiplies(gpu)) return;
              Put<kElement>(gpu, right, 0);
              gpu.FenceAsync();
              gpu.SyncGroup(1);
              const int group_id = gpu.Thread() % 32 >> 2, warp = gpu.Thread() / 32 % 4;
              uint32_t a[4][4];
              for (int step = 0; step < 4; ++step) {
                for (int i = 0; i < 8; ++i) {  // a0 … a7, two per register.
                  const int row = warp * 16 + group_id + (i % 4 < 2 ? 0 : 8);
                  const int column = step * 16 + gpu.Thread() % 4 * 2 + (i & 1) + (i < 4 ? 0 : 8);
                  const uint32_t bits = Bits<kElement>(left.at(row, column));
                  a[step][i / 2] = i % 2 == 0 ? bits : a[step][i / 2] | bits << 16;
                }
              }
              float sums[64];
              for (float& sum : sums) sum = 1e9f;  // The first product ignores it.
              gpu.FenceProducts(sums, a);
              for (int step = 0; step < 4; ++step)
                gpu.MultiplyColumns<kElement, 128>(a[step], AcrossRows(0, 64 * 128, step * 16),
                                                   sums, step != 0);
              gpu.CommitProducts();
              gpu.AwaitProducts(sums, a);
              for (int i = 0; i < 64; ++i) {
                int exact = 0;
                for (int k = 0; k < 64; ++k)
                  exact +=
                      left.at(RowOfD(gpu.Thread(), i), k) * right.at(k, ColumnOfD(gpu.Thread(), i));
                wrong += sums[i] != static_cast<float>(exact) ? 1 : 0;
              }
            }),
            "");
  EXPECT_EQ(wrong, 0);
}

// Rows −2 … 5, columns 64 … 127 of 72: elements outside are 0.
TEST_F(HopperMachineTest, BoxesHaveZerosOutside) {
  const std::byte* const map = Map(72, 3, 5, 8);
  std::vector<uint16_t> seen(8 * 64);
  for (const int head : {2, 3}) {
    ASSERT_EQ(Run([&](const Gpu& gpu) {
                if (gpu.Thread() != 0) return;
                gpu.MakeBarrier(kBarrier, 1);
                gpu.FenceBarriers();
                gpu.AcquireMap(map);
                gpu.ArriveExpecting(kBarrier, 1024);
                gpu.LoadBox(1024, map, 64, head, -2, kBarrier);
                gpu.AwaitBarrier(kBarrier, 0);
                for (int i = 0; i < 8 * 64; ++i)
                  seen[i] = gpu.LoadShared<uint16_t>(1024 + Place(8, i / 64, i % 64));
              }),
              "");
    for (int row = 0; row < 8; ++row) {
      for (int column = 0; column < 64; ++column) {
        const bool there = row >= 2 && row < 7 && column < 8 && head < 3;
        const int number = ((row - 2) * 3 + head) * 72 + 64 + column + 1;
        ASSERT_EQ(seen[row * 64 + column], there ? number : 0) << row << " " << column;
      }
    }
  }
}

// A ring of one stage: thread 0 loads two boxes, one after the other; a group multiplies both.
struct RingFlaws {
  bool acquire = true, fence_barriers = true, order_barriers = true, wait_read = true;
  bool wait_came = true, meet = true, sync_warp = true, wait_product = true;
  int arrivals = 4;
  uint32_t bytes = 8192, to = 0;
};
std::function<void(const Gpu&)> Ring(const std::byte* map, const RingFlaws& flaws) {
  return [=](const Gpu& gpu) {
    if (gpu.Thread() == 0) {
      gpu.MakeBarrier(kBarrier, 1);
      gpu.MakeBarrier(kOther, flaws.arrivals);
      if (flaws.fence_barriers) gpu.FenceBarriers();
    }
    if (flaws.order_barriers) gpu.Sync();
    if (gpu.Thread() == 0) {
      if (flaws.acquire) gpu.AcquireMap(map);
      for (uint32_t round = 0; round < 2; ++round) {
        if (flaws.wait_read) gpu.AwaitBarrier(kOther, round ^ 1);
        gpu.ArriveExpecting(kBarrier, flaws.bytes);
        gpu.LoadBox(flaws.to, map, 0, 0, 0, kBarrier);
      }
    }
    if (!Multiplies(gpu)) return;
    for (uint32_t round = 0; round < 2; ++round) {
      if (flaws.wait_came) gpu.AwaitBarrier(kBarrier, round);
      if (flaws.meet) gpu.SyncWarp();
      float sums[32] = {};
      gpu.FenceProducts(sums);
      gpu.MultiplyRows<Element::kBf16, 64>(AlongRows(0, 8192, 0), AlongRows(0, 8192, 16), sums,
                                           false);
      gpu.CommitProducts();
      if (flaws.wait_product)
        gpu.AwaitProducts(sums);
      else
        gpu.AwaitProductsBut<1>();
      if (flaws.sync_warp) gpu.SyncWarp();
      if (gpu.Thread() % 32 == 0) gpu.Arrive(kOther);
      gpu.AwaitProducts(sums);
    }
  };
}

TEST_F(HopperMachineTest, FaultsOfARing) {
  const std::byte* const map = Map(64, 1, 64, 64);
  for (uint64_t seed = 1; seed <= 10; ++seed) EXPECT_EQ(Run(Ring(map, {}), seed), "") << seed;
  const auto expect = [&](const std::string& fault, const std::function<void(RingFlaws*)>& flaw) {
    RingFlaws flaws;
    flaw(&flaws);
    ExpectFault(fault, Ring(map, flaws));
  };
  expect("not asked for", [](RingFlaws* f) { f->acquire = false; });
  expect("making is not ordered", [](RingFlaws* f) { f->fence_barriers = false; });
  expect("barrier", [](RingFlaws* f) { f->order_barriers = false; });
  expect("more arrivals", [](RingFlaws* f) { f->wait_read = false; });
  expect("product", [](RingFlaws* f) { f->wait_came = false; });
  expect("has not met since it waited", [](RingFlaws* f) { f->meet = false; });
  expect("not ordered behind a product", [](RingFlaws* f) { f->sync_warp = false; });
  expect("product", [](RingFlaws* f) { f->wait_product = false; });
  RingFlaws few;
  few.arrivals = 1;  // The first warp stands for all.
  for (uint64_t seed = 1; seed <= 6; ++seed) EXPECT_NE(Run(Ring(map, few), seed), "") << seed;
  expect("wait for what does not come", [](RingFlaws* f) { f->arrivals = 9; });
  expect("more bytes", [](RingFlaws* f) { f->bytes = 4096; });
  expect("wait for what does not come", [](RingFlaws* f) { f->bytes = 16384; });
  expect("multiple of 1024", [](RingFlaws* f) { f->to = 512; });
}

TEST_F(HopperMachineTest, WhatIsUnderWayMustBeWaitedFor) {
  const std::byte* const map = Map(64, 1, 64, 64);
  ExpectFault("read", [&](const Gpu& gpu) {
    if (gpu.Thread() != 0) return;
    gpu.MakeBarrier(kBarrier, 1);
    gpu.FenceBarriers();
    gpu.AcquireMap(map);
    gpu.ArriveExpecting(kBarrier, 8192);
    gpu.LoadBox(0, map, 0, 0, 0, kBarrier);
    gpu.LoadShared<int>(0);
  });
  ExpectFault("more arrivals", [&](const Gpu& gpu) {
    if (gpu.Thread() != 0) return;
    gpu.MakeBarrier(kBarrier, 1);
    gpu.FenceBarriers();
    gpu.ArriveExpecting(kBarrier, 8);
    gpu.Arrive(kBarrier);
  });
  ExpectFault("awaited twice", [&](const Gpu& gpu) {
    if (gpu.Thread() != 0) return;
    gpu.MakeBarrier(kBarrier, 1);
    gpu.FenceBarriers();
    gpu.Arrive(kBarrier);
    gpu.AwaitBarrier(kBarrier, 0);
    gpu.AwaitBarrier(kBarrier, 0);
  });
}

TEST_F(HopperMachineTest, WhatAnotherThreadHasWrittenIsReadBehindABarrier) {
  alignas(16) static float memory[32];
  memory_.Add(reinterpret_cast<const std::byte*>(memory), sizeof(memory), true);
  const auto body = [&](bool sync) {
    return [=](const Gpu& gpu) {
      if (gpu.Thread() >= 32) return;
      gpu.Store<float>(memory + gpu.Thread(), 1);
      if (sync) gpu.SyncWarp();
      gpu.Load<float>(memory + (gpu.Thread() ^ 1));
    };
  };
  for (uint64_t seed = 1; seed <= 6; ++seed) EXPECT_EQ(Run(body(true), seed), "");
  ExpectFault("not ordered behind a write", body(false));
}

}  // namespace
}  // namespace annulus::cuda
