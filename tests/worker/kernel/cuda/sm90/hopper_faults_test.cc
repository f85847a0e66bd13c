// The emulator of sm_90a: a fault for each error with products that a device would not report, at
// any time.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/worker/kernel/cuda/sm90/hopper_machine_fixture.h"

namespace annulus::cuda {
namespace {

// Errors to add to a correct program.
struct ProductFlaws {
  // Hooks that run after these points.
  std::function<void(const Gpu&, float (&)[32])> fenced, issued, done;
  bool fence_async = true, sync = true, fence = true, commit = true;
  uint64_t a = AlongRows(0, 8192, 0);
};
std::function<void(const Gpu&)> Flawed(const ProductFlaws& flaws) {
  return [=](const Gpu& gpu) {
    if (!Multiplies(gpu)) return;
    FillWithZeros(gpu, 16384);
    if (flaws.fence_async) gpu.FenceAsync();
    if (flaws.sync) gpu.SyncGroup(1);
    float sums[32] = {};
    if (flaws.fence) gpu.FenceProducts(sums);
    if (flaws.fenced) flaws.fenced(gpu, sums);
    MultiplyOnce(gpu, sums, flaws.a);
    if (flaws.commit) gpu.CommitProducts();
    if (flaws.issued) flaws.issued(gpu, sums);
    gpu.AwaitProducts(sums);
    if (flaws.done) flaws.done(gpu, sums);
  };
}

TEST_F(HopperMachineTest, FaultsOfProducts) {
  EXPECT_EQ(Run(Flawed({})), "");
  ProductFlaws flaws;
  flaws.fence = false;
  ExpectFault("a product without a fence", Flawed(flaws));
  flaws = {};
  flaws.fence_async = false;
  ExpectFault("wrote without a fence", Flawed(flaws));
  flaws = {};
  flaws.sync = false;
  ExpectFault("not ordered behind a write", Flawed(flaws));
  flaws = {};
  flaws.commit = false;
  ExpectFault("not committed", Flawed(flaws));
  flaws = {};
  flaws.fenced = [](const Gpu&, float(&sums)[32]) { sums[3] = 5; };
  ExpectFault("sums that were changed behind the fence", Flawed(flaws));
  flaws = {};
  flaws.issued = [](const Gpu&, float(&sums)[32]) { sums[3] = 5; };
  ExpectFault("sums of a product were changed", Flawed(flaws));
  flaws = {};
  flaws.issued = [](const Gpu& gpu, float(&)[32]) {
    if (gpu.Thread() == 130) gpu.StoreShared<int>(8, 1);
  };
  ExpectFault("ordered behind", Flawed(flaws));
  flaws = {};  // The thread has waited; others may not have.
  flaws.done = [](const Gpu& gpu, float(&)[32]) {
    if (gpu.Thread() == 130) gpu.StoreShared<int>(8 * 130, 1);
  };
  ExpectFault("not ordered behind a", Flawed(flaws));
  flaws = {};
  flaws.fenced = [](const Gpu& gpu, float(&sums)[32]) {
    if (gpu.Thread() == 255) MultiplyOnce(gpu, sums, AlongRows(0, 8192, 16));
  };
  ExpectFault("different products", Flawed(flaws));
  flaws = {};
  flaws.a ^= uint64_t{3} << 62;
  ExpectFault("another swizzle", Flawed(flaws));
}

TEST_F(HopperMachineTest, FaultsOfLeftSides) {
  ExpectFault("the left side of a product was changed", [](const Gpu& gpu) {
    if (!Multiplies(gpu)) return;
    FillWithZeros(gpu, 8192);
    gpu.FenceAsync();
    gpu.SyncGroup(1);
    float sums[32] = {};
    uint32_t left[1][4] = {};
    gpu.FenceProducts(sums, left);
    gpu.MultiplyColumns<Element::kBf16, 64>(left[0], AcrossRows(0, 8192, 0), sums, false);
    gpu.CommitProducts();
    if (gpu.Thread() == 200) left[0][2] = 1;
    gpu.AwaitProducts(sums, left);
  });
}

// Two products, committed one after the other, with separate registers. `first` and `second` use
// the newer one's registers after a wait for the older one, and after a wait for both.
std::function<void(const Gpu&)> TwoProducts(
    const std::function<void(const Gpu&, float (&)[32], uint32_t (&)[1][4])>& first,
    const std::function<void(const Gpu&, float (&)[32], float (&)[32])>& second) {
  return [=](const Gpu& gpu) {
    if (!Multiplies(gpu)) return;
    for (uint32_t at = (gpu.Thread() - 128) * 4; at < 16384; at += 512)
      gpu.StoreShared<uint32_t>(at, 0x3f803f80);  // Ones.
    gpu.FenceAsync();
    gpu.SyncGroup(1);
    float older[32] = {}, newer[32] = {};
    uint32_t left[1][4] = {{0x40004000, 0x40004000, 0x40004000, 0x40004000}};  // Twos.
    gpu.FenceProducts(older);
    MultiplyOnce(gpu, older, AlongRows(0, 8192, 0));
    gpu.CommitProducts();
    gpu.FenceProducts(newer, left);
    gpu.MultiplyColumns<Element::kBf16, 64>(left[0], AcrossRows(8192, 8192, 0), newer, false);
    gpu.CommitProducts();
    gpu.AwaitProductsBut<1>(older);
    if (first) first(gpu, newer, left);
    gpu.AwaitProducts(newer, left);
    if (second) second(gpu, older, newer);
  };
}

TEST_F(HopperMachineTest, TheNewestProductsMayBeLeftRunning) {
  int wrong = 0;
  const auto count = [&](const Gpu&, float(&older)[32], float(&newer)[32]) {
    for (int i = 0; i < 32; ++i) wrong += older[i] == 16 && newer[i] == 32 ? 0 : 1;
  };
  for (uint64_t seed = 1; seed <= 10; ++seed) EXPECT_EQ(Run(TwoProducts({}, count), seed), "");
  EXPECT_EQ(wrong, 0);
}

TEST_F(HopperMachineTest, FaultsOfProductsThatAreLeftRunning) {
  const auto expect = [&](const std::string& fault, const auto& first) {
    ExpectFault(fault, TwoProducts(first, {}));
  };
  expect("read before it was waited for", [](const Gpu& gpu, float(&sums)[32], auto&) {
    gpu.StoreShared<float>(32768 + gpu.Thread() * 4, sums[5]);
  });
  expect("read before it was waited for", [](const Gpu& gpu, float(&sums)[32], auto&) {
    gpu.ShuffleXor(sums[5] + 1, 1);  // Also values computed from it.
  });
  expect("changed before it was waited for",
         [](const Gpu&, float(&sums)[32], auto&) { sums[5] *= 2; });
  expect("read before it was waited for",
         [](const Gpu& gpu, float(&sums)[32], auto&) { gpu.FenceProducts(sums); });
  expect("the left side of a product was changed",
         [](const Gpu&, float(&)[32], uint32_t(&left)[1][4]) { left[0][1] = 0; });
  expect("ordered behind", [](const Gpu& gpu, float(&)[32], auto&) {
    gpu.SyncGroup(1);
    if (gpu.Thread() == 130) gpu.StoreShared<int>(8192, 1);
  });
  // Memory that only the older product has read may be written once all threads have waited for it.
  for (uint64_t seed = 1; seed <= 10; ++seed)
    EXPECT_EQ(Run(TwoProducts(
                      [](const Gpu& gpu, float(&)[32], auto&) {
                        gpu.SyncGroup(1);
                        if (gpu.Thread() == 130) gpu.StoreShared<int>(8, 1);
                      },
                      {}),
                  seed),
              "");
  // Registers passed to a wait belong to the products that it waits for.
  ExpectFault("read before it was waited for", [](const Gpu& gpu) {
    if (!Multiplies(gpu)) return;
    FillWithZeros(gpu, 16384);
    gpu.FenceAsync();
    gpu.SyncGroup(1);
    float sums[32] = {};
    gpu.FenceProducts(sums);
    MultiplyOnce(gpu, sums, AlongRows(0, 8192, 0));
    gpu.CommitProducts();
    gpu.AwaitProductsBut<1>(sums);
  });
}

// Two groups that alternate, `rounds` times each.
struct TurnFlaws {
  int rounds[2] = {3, 3};
  bool first = true, await = true, last = true;
};
std::function<void(const Gpu&)> SerialExecutor(const TurnFlaws& flaws) {
  return [=](const Gpu& gpu) {
    const int group = gpu.Thread() / 128 - 1;
    if (group == 0) FillWithZeros(gpu, 16384);
    gpu.FenceAsync();
    gpu.Sync();
    if (group < 0) return;
    if (group == 1 && flaws.first) gpu.PassTurn(1);
    for (int round = 0; round < flaws.rounds[group]; ++round) {
      if (flaws.await || group == 0) gpu.AwaitTurn(group);
      float sums[32] = {};
      gpu.FenceProducts(sums);
      MultiplyOnce(gpu, sums, AlongRows(0, 8192, 0));
      gpu.CommitProducts();
      gpu.PassTurn(group);
      gpu.AwaitProducts(sums);
    }
    if (group == 0 && flaws.last) gpu.AwaitTurn(0);
  };
}

TEST_F(HopperMachineTest, FaultsOfTurns) {
  const auto run = [&](const TurnFlaws& flaws, uint64_t seed) {
    HopperMachine machine(384, &memory_, seed);
    return machine.Run(7, 64 << 10, [&, body = SerialExecutor(flaws)](int thread) {
      body(Gpu{&machine, thread, 384});
    });
  };
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    EXPECT_EQ(run({}, seed), "");
    TurnFlaws flaws;
    flaws.first = false;
    EXPECT_THAT(run(flaws, seed), HasSubstr("wait for what does not come"));
    flaws = {};
    flaws.rounds[1] = 2;
    EXPECT_THAT(run(flaws, seed), HasSubstr("wait for what does not come"));
    flaws.rounds[1] = 4;
    EXPECT_NE(run(flaws, seed), "");
    flaws = {};
    flaws.last = false;
    EXPECT_THAT(run(flaws, seed), HasSubstr("some have come to a barrier"));
    flaws = {};
    flaws.await = false;
    EXPECT_THAT(run(flaws, seed), HasSubstr("a product out of turn"));
  }
}

}  // namespace
}  // namespace annulus::cuda
