#include "worker/kernel/cpu/cpu_kernel.h"

#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "tests/reference/from_spec.h"
#include "tests/worker/kernel/implementations.h"
#include "tests/worker/kernel/kernel_harness.h"
#include "worker/kernel/cpu/isa/isa_dispatch.h"

namespace annulus {
namespace {

struct Job {
  AttentionSpec spec;
  reference::Input input;
};

Job MakeJob(int32_t q_heads, int32_t kv_heads, int64_t q_len, int64_t kv_len, int32_t dim = 40,
            int32_t dim_v = 72) {
  Job job;
  job.spec.dtype = DataType::kFp32;
  job.spec.q_heads = q_heads;
  job.spec.kv_heads = kv_heads;
  job.spec.head_dim = dim;
  job.spec.head_dim_v = dim_v;
  Sequence sequence;
  sequence.q_len = q_len;
  sequence.kv_len = kv_len;
  job.spec.sequences = {sequence};
  job.spec.masks.emplace_back();
  job.spec.masks[0].causal = true;
  job.input = reference::InputOf(job.spec);
  FillNormal(/*seed=*/41, reference::Precision::kFp32, 1, &job.input);
  return job;
}

std::vector<std::byte> StateAfter(AttentionKernel& kernel, const Job& job, const Cuts& cuts) {
  KernelHarness harness(job.spec, job.input, cuts);
  EXPECT_TRUE(harness.Run(kernel).ok());
  return harness.state();
}

std::vector<float> OutputOf(AttentionKernel& kernel, const Job& job, const Cuts& cuts) {
  KernelHarness harness(job.spec, job.input, cuts);
  EXPECT_TRUE(harness.Run(kernel).ok());
  return harness.answer().out;
}

TEST(CpuKernelTest, ThreadsDoNotChangeABit) {
  for (const TileIsa* isa : AvailableIsas()) {
    const Job job = MakeJob(6, 2, 300, 900);
    Cuts cuts;
    cuts.keys = {333};
    cuts.key_shards = 2;
    const std::vector<std::byte> one = StateAfter(*MakeKernel(isa->name, 1), job, cuts);
    EXPECT_EQ(one, StateAfter(*MakeKernel(isa->name, 2), job, cuts)) << isa->name;
    EXPECT_EQ(one, StateAfter(*MakeKernel(isa->name, 3), job, cuts)) << isa->name;
  }
}

// One thread has enough items for three tiles each, three threads do not; then for as many as
// possible, and for two (call_plan.cc).
TEST(CpuKernelTest, TilesThatAreJoinedDoNotChangeABit) {
  bool joins = false;
  for (const TileIsa* isa : AvailableIsas()) {
    if (isa->tiles == 1) continue;
    joins = true;
    for (Job job :
         {MakeJob(4, 2, 600, 3000), MakeJob(2, 2, 3100, 5200, kMaxHeadDim, kMaxHeadDim)}) {
      for (const DataType dtype : {DataType::kBf16, DataType::kFp16}) {
        job.spec.dtype = dtype;
        const std::vector<std::byte> joined = StateAfter(*MakeKernel(isa->name, 1), job, {});
        EXPECT_EQ(joined, StateAfter(*MakeKernel(isa->name, 3), job, {})) << isa->name;
      }
    }
  }
  if (!joins) GTEST_SKIP() << "no AMX here, which alone joins tiles";
}

// Two threads share four heads and pack keys in passing, three cannot (cpu_kernel.cc).
TEST(CpuKernelTest, KeysPackedInPassingDoNotChangeABit) {
  for (const TileIsa* isa : AvailableIsas()) {
    for (const DataType dtype : {DataType::kFp32, DataType::kBf16, DataType::kFp16}) {
      for (const bool causal : {false, true}) {
        Job job = MakeJob(4, 4, 131, 700);
        job.spec.dtype = dtype;
        job.spec.masks[0].causal = causal;
        const std::vector<std::byte> passing = StateAfter(*MakeKernel(isa->name, 2), job, {});
        EXPECT_EQ(passing, StateAfter(*MakeKernel(isa->name, 3), job, {})) << isa->name;
      }
    }
  }
}

// In a window, threads keep the blocks that they have packed in passing, if they have the memory.
TEST(CpuKernelTest, KeysKeptInPassingDoNotChangeABit) {
  for (const TileIsa* isa : AvailableIsas()) {
    for (const DataType dtype : {DataType::kFp32, DataType::kBf16, DataType::kFp16}) {
      for (const int64_t chunk : {3000, 250}) {
        Job job = MakeJob(3, 3, 3000, 3000);
        job.spec.dtype = dtype;
        job.spec.masks[0].window_left = 300;
        job.spec.masks[0].chunk = chunk;
        CpuKernel::Options options;
        options.isa = isa;
        options.threads = 2;
        const std::vector<std::byte> kept = StateAfter(**CpuKernel::Create(options), job, {});
        EXPECT_EQ(kept, StateAfter(*MakeKernel(isa->name, 3), job, {})) << isa->name;
        options.pack_bytes = 1;
        EXPECT_EQ(kept, StateAfter(**CpuKernel::Create(options), job, {})) << isa->name;
      }
    }
  }
}

TEST(CpuKernelTest, OtherRowsAndHeadsDoNotChangeABit) {
  for (const TileIsa* isa : AvailableIsas()) {
    const std::unique_ptr<AttentionKernel> kernel = MakeKernel(isa->name, 2);
    const Job job = MakeJob(6, 2, 200, 700);
    Cuts cuts;
    cuts.q_rows = {1, 50, 97, 131};
    cuts.q_heads = {2, 5};
    EXPECT_EQ(OutputOf(*kernel, job, {}), OutputOf(*kernel, job, cuts)) << isa->name;
  }
}

// Attends twice to a buffer whose keys change in between. Content of one number never changes, so
// the answer shows if the keys were packed again. The second call leaves out the last `trimmed`
// keys.
std::vector<float> OutputOfTwoCalls(AttentionKernel& kernel, const Job& job,
                                    std::array<uint64_t, 2> contents, int64_t trimmed) {
  KernelHarness harness(job.spec, job.input, {});
  std::vector<KernelTask> tasks = harness.Tasks();
  EXPECT_EQ(tasks.size(), 1u);
  const auto attend = [&](uint64_t content) {
    tasks[0].kv.content = content;
    KernelOp clear;
    clear.target = tasks[0].out_q;
    EXPECT_TRUE(kernel.Apply(harness.job(), clear).ok());
    EXPECT_TRUE(kernel.Accumulate(harness.job(), tasks, {}).ok());
    EXPECT_TRUE(harness.FinishAll(kernel).ok());
  };
  attend(contents[0]);
  const BlockLayout layout(job.spec);
  std::fill_n(tasks[0].kv.data, layout.BlockBytes(tasks[0].kv.block), std::byte{0});
  tasks[0].task.k_end -= trimmed;
  attend(contents[1]);
  return harness.answer().out;
}

TEST(CpuKernelTest, KeysOfOneContentArePackedOnce) {
  for (const TileIsa* isa : AvailableIsas()) {
    const std::unique_ptr<AttentionKernel> kernel = MakeKernel(isa->name, 2);
    const Job job = MakeJob(4, 2, 100, 300);
    const std::vector<float> expected = OutputOf(*kernel, job, {});
    EXPECT_EQ(OutputOfTwoCalls(*kernel, job, {7, 7}, 0), expected) << isa->name;
    EXPECT_NE(OutputOfTwoCalls(*kernel, job, {8, 9}, 0), expected)
        << isa->name << ": other content";
    EXPECT_NE(OutputOfTwoCalls(*kernel, job, {0, 0}, 0), expected) << isa->name << ": no content";
    EXPECT_NE(OutputOfTwoCalls(*kernel, job, {10, 10}, 1), expected)
        << isa->name << ": other rows of the last block";
  }
}

// Attends to parts of the keys, and again to the same parts after the keys have changed.
std::vector<float> OutputOfParts(const Job& job, const CpuKernel::Options& options) {
  const auto kernel = CpuKernel::Create(options);
  KernelHarness harness(job.spec, job.input, {});
  std::vector<KernelTask> tasks = harness.Tasks();
  tasks[0].kv.content = 7;
  KernelTask& task = tasks[0];
  const int64_t end = task.task.k_end;
  for (const bool changed : {false, true}) {
    const BlockLayout layout(job.spec);
    if (changed) std::fill_n(task.kv.data, layout.BlockBytes(task.kv.block), std::byte{0});
    KernelOp clear;
    clear.target = task.out_q;
    EXPECT_TRUE((*kernel)->Apply(harness.job(), clear).ok());
    for (const int64_t begin : {int64_t{0}, int64_t{512}}) {
      task.task.k_begin = begin;
      task.task.k_end = begin == 0 ? 512 : end;
      EXPECT_TRUE((*kernel)->Accumulate(harness.job(), tasks, {}).ok());
    }
  }
  EXPECT_TRUE(harness.FinishAll(**kernel).ok());
  return harness.answer().out;
}

TEST(CpuKernelTest, PartsOfOneContentStayPackedWhereThereIsRoom) {
  for (const TileIsa* isa : AvailableIsas()) {
    const Job job = MakeJob(4, 2, 300, 1000);
    CpuKernel::Options options;
    options.isa = isa;
    options.threads = 5;  // Each thread could keep too few blocks to pack them in passing.
    const BlockLayout layout(job.spec);
    options.pack_bytes =
        8 * PackBytes(IsaFor(*isa, job.spec.dtype), layout);  // Two heads of four blocks.
    const std::vector<float> kept = OutputOfParts(job, options);
    EXPECT_EQ(kept, OutputOf(**CpuKernel::Create(options), job, {})) << isa->name;
    options.pack_bytes = 4 * PackBytes(IsaFor(*isa, job.spec.dtype), layout);
    EXPECT_NE(OutputOfParts(job, options), kept) << isa->name << ": there is no room for both";
  }
}

TEST(CpuKernelTest, FewRowsPackTheirKeysInPassingWhereHeadsCanBeSharedOut) {
  const Job job = MakeJob(4, 4, 131, 300);
  for (const int threads : {1, 2, 3, 4, 5}) {
    const std::unique_ptr<AttentionKernel> kernel = MakeKernel("portable", threads);
    const bool again = OutputOfTwoCalls(*kernel, job, {7, 7}, 0) != OutputOf(*kernel, job, {});
    EXPECT_EQ(again, 4 % threads == 0) << threads;
  }
}

TEST(CpuKernelTest, CutsBetweenKeyBlocksDoNotChangeABit) {
  for (const TileIsa* isa : AvailableIsas()) {
    const std::unique_ptr<AttentionKernel> kernel = MakeKernel(isa->name, 2);
    const Job job = MakeJob(2, 1, 150, 900);
    Cuts cuts;
    cuts.keys = {kKeyBlock, 3 * kKeyBlock};
    cuts.call_per_task = true;
    EXPECT_EQ(OutputOf(*kernel, job, {}), OutputOf(*kernel, job, cuts)) << isa->name;
  }
}

TEST(CpuKernelTest, MemoryForPackingDoesNotChangeABit) {
  const Job job = MakeJob(4, 4, 100, 1500);
  CpuKernel::Options options;
  const std::vector<float> plenty = OutputOf(**CpuKernel::Create(options), job, {});
  options.pack_bytes = 0;
  EXPECT_EQ(plenty, OutputOf(**CpuKernel::Create(options), job, {}));
}

TEST(CpuKernelTest, APathIsForcedByName) {
  for (const TileIsa* isa : AvailableIsas()) {
    CpuKernel::Options options;
    options.path = isa->name;
    EXPECT_EQ((*CpuKernel::Create(options))->Description(), std::string("cpu/") + isa->name);
  }
}

TEST(CpuKernelTest, AnUnknownPathIsRefused) {
  CpuKernel::Options options;
  options.path = "sse9";
  const absl::Status status = CpuKernel::Create(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(DetailOf(status).reason, "KERNEL_PATH_UNKNOWN");
}

TEST(CpuKernelTest, APathThatTheCpuLacksIsRefused) {
  std::set<std::string> lacking = {"amx", "avx512bf16", "avx512", "avx2"};
  for (const TileIsa* isa : AvailableIsas()) lacking.erase(isa->name);
  if (lacking.empty()) GTEST_SKIP() << "this CPU has every path";
  for (const std::string& path : lacking) {
    CpuKernel::Options options;
    options.path = path;
    const absl::Status status = CpuKernel::Create(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(DetailOf(status).reason, "KERNEL_PATH_NOT_ON_THIS_CPU");
  }
}

TEST(CpuKernelTest, ThreadCountsOutOfRangeAreRefused) {
  for (const int threads : {0, -1, ComputePool::kMaxThreads + 1}) {
    CpuKernel::Options options;
    options.threads = threads;
    EXPECT_EQ(CpuKernel::Create(options).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(CpuKernelTest, ThreadsThatAreGivenAreTaken) {
  CpuKernel::Options options;
  options.threads = 2;
  EXPECT_EQ((*CpuKernel::Create(options))->threads(), 2);
  options.pool = *ComputePool::Create(3);
  EXPECT_EQ((*CpuKernel::Create(options))->threads(), 3);
}

TEST(CpuKernelTest, TheCallersFloatingPointModeIsRestored) {
  const unsigned before = _mm_getcsr();
  const Job job = MakeJob(2, 1, 150, 300);
  for (const unsigned mode : {before & ~0x8040u, before | 0x8040u}) {
    _mm_setcsr(mode);
    OutputOf(*MakeKernel("portable", 1), job, {});
    EXPECT_EQ(_mm_getcsr() & 0x8040u, mode & 0x8040u);
  }
  _mm_setcsr(before);
}

TEST(CpuKernelTest, WhatItDoesNotServeIsUnimplemented) {
  const std::unique_ptr<AttentionKernel> kernel = MakeKernel("portable", 1);
  AttentionSpec spec = MakeJob(2, 1, 10, 10).spec;
  spec.head_dim = 257;
  KernelHarness harness(spec, reference::InputOf(spec), {});
  EXPECT_EQ(harness.Run(*kernel).code(), absl::StatusCode::kUnimplemented);
}

TEST(CpuKernelTest, StopFromAnotherThreadEndsALongCall) {
  const Job job = MakeJob(4, 4, 12000, 12000);
  std::atomic<bool> stop{false};
  std::atomic<int64_t> progress{0};
  KernelHarness harness(job.spec, job.input, {});
  const std::unique_ptr<AttentionKernel> kernel = MakeKernel("portable", 2);
  std::thread stopper([&] {
    while (progress.load() < 5) std::this_thread::yield();
    stop = true;
  });
  EXPECT_EQ(harness.Run(*kernel, {&stop, &progress}).code(), absl::StatusCode::kCancelled);
  stopper.join();
}

}  // namespace
}  // namespace annulus
