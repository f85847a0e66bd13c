#include "worker/backend/self_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "tests/worker/backend/faulty_functions.h"
#include "tests/worker/kernel/amx_or_emulation.h"
#include "tests/worker/kernel/wide_isa.h"
#include "worker/kernel/cpu/cpu_kernel.h"
#include "worker/kernel/cpu/isa/gradient_isa.h"
#include "worker/kernel/cpu/isa/isa_dispatch.h"

namespace annulus {
namespace {

constexpr float kNan = __builtin_nanf("");

// The portable path, damaged like by a wrong instruction.
TileIsa Damaged(const char* name) {
  TileIsa isa = kPortableIsa;
  isa.name = name;
  return isa;
}
TileIsa LosesAScore() {
  TileIsa isa = Damaged("loses-a-score");
  isa.score = [](const TileBlock& tile) {
    kPortableIsa.score(tile);
    tile.scores[17] = -3.0f;
  };
  return isa;
}
TileIsa MakesNan() {
  TileIsa isa = Damaged("makes-nan");
  isa.accumulate = [](const TileBlock& tile) {
    kPortableIsa.accumulate(tile);
    tile.sums[3] = kNan;
  };
  return isa;
}
// Treats fp16 numbers as if they had the bits of bf16 ones.
TileIsa CutsFp16Short() {
  TileIsa isa = Damaged("cuts-fp16-short");
  isa.pack_values = [](const ElementRows& rows, const uint8_t* present, int count, int dim,
                       float* out) {
    const bool finite = kPortableIsa.pack_values(rows, present, count, dim, out);
    if (rows.dtype != DataType::kFp16) return finite;
    for (int64_t i = 0; i < PackedValueFloats(kPortableIsa, dim); ++i) {
      uint32_t bits;
      std::memcpy(&bits, out + i, sizeof(bits));
      bits &= 0xffff0000u;
      std::memcpy(out + i, &bits, sizeof(bits));
    }
    return finite;
  };
  return isa;
}
// Fails only in few rows over many keys: the last slot of an odd number.
TileIsa MistakesRowsAsTheyLie() {
  TileIsa isa = kWideIsa;
  isa.name = "mistakes-rows-as-they-lie";
  isa.attend_rows = [](const UnpackedRows& rows, RowSlot* slots, int count) {
    kWideIsa.attend_rows(rows, slots, count);
    if (count % 2 != 0) slots[count - 1].weights[0] *= 0.5f;
  };
  return isa;
}
TileIsa MistakesGroupsOfRows() {
  TileIsa isa = kWideIsa;
  isa.name = "mistakes-groups-of-rows";
  isa.attend_rows = [](const UnpackedRows& rows, RowSlot* slots, int count) {
    kWideIsa.attend_rows(rows, slots, count);
    if (count >= kUnpackedSlots) slots[kUnpackedSlots - 1].weights[0] *= 0.5f;
  };
  return isa;
}

// Fails only with AMX, in blocks that are neither first nor masked, where its pipeline runs.
template <int DIM>
int MistakesWholeBlocks(const TileBlock& tile, const PackedBlock* blocks, int count) {
  const int done = AmxOrEmulation()->attend(tile, blocks, count);
  if (done > 2 && blocks[2].row_begin == nullptr && tile.rows > 16 && tile.value_dim == DIM)
    tile.sums[0] *= 1.5f;
  return done;
}

// The portable path without one type.
class LacksAType final : public AttentionKernel {
 public:
  explicit LacksAType(DataType lacked) : lacked_(lacked) {
    CpuKernel::Options options;
    options.isa = &kPortableIsa;
    inner_ = *CpuKernel::Create(options);
  }

  absl::Status Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                          const KernelControl& control) override {
    if (job.spec->dtype == lacked_) return absl::UnimplementedError("not this type");
    return inner_->Accumulate(job, tasks, control);
  }
  absl::Status Apply(const KernelJob& job, const KernelOp& op) override {
    return inner_->Apply(job, op);
  }
  std::string Description() const override { return "lacks a type"; }

 private:
  const DataType lacked_;
  std::unique_ptr<AttentionKernel> inner_;
};

// The portable path, with another table for one type.
TileIsa OfOneType(const TileIsa& table, DataType dtype) {
  TileIsa isa = dtype == DataType::kBf16 ? table : kPortableIsa;
  isa.name = table.name;
  isa.fp32 = dtype == DataType::kFp32 ? &table : &kPortableIsa;
  isa.fp16 = dtype == DataType::kFp16 ? &table : &kPortableIsa;
  return isa;
}

class SelfCheckTest : public testing::Test {
 protected:
  SelfCheckTest() {
    LogOptions options;
    options.stream = &log_;
    InitLogging(options);
  }
  ~SelfCheckTest() override { InitLogging(LogOptions()); }

  void ExpectPassedOver(const TileIsa& fault) {
    const TileIsa* candidates[] = {&fault, &kPortableIsa};
    const absl::StatusOr<CheckedPath> path = FirstSoundPath(candidates);
    ASSERT_TRUE(path.ok()) << fault.name << ": " << path.status();
    EXPECT_EQ(path->isa, &kPortableIsa) << fault.name;
    const std::string said = std::string(fault.name) + " failed its check";
    EXPECT_EQ(path->passed_over, std::vector<std::string>{said});
    EXPECT_NE(log_.str().find(said + ": "), std::string::npos) << log_.str();
  }

  std::ostringstream log_;
};

TEST_F(SelfCheckTest, EveryPathOfThisCpuPasses) {
  for (const TileIsa* isa : AvailableIsas()) {
    const absl::StatusOr<CheckedPath> path = FirstSoundPath({&isa, 1});
    ASSERT_TRUE(path.ok()) << isa->name << ": " << path.status();
    EXPECT_EQ(path->isa, isa);
    EXPECT_TRUE(path->passed_over.empty());
  }
  const TileIsa* wide = &kWideIsa;
  EXPECT_EQ(FirstSoundPath({&wide, 1})->isa, &kWideIsa);
  EXPECT_EQ(log_.str(), "");
}

TEST_F(SelfCheckTest, AFaultInAnyFunctionShowsInEveryType) {
  for (const FaultyFunction& fault : FaultyFunctions()) {
    for (const DataType dtype : {DataType::kFp32, DataType::kFp16, DataType::kBf16}) {
      TileIsa broken = Damaged(fault.name);
      GradientIsa gradients = *kPortableIsa.gradients;
      broken.gradients = &gradients;
      fault.set(&broken, &gradients);
      const TileIsa isa = OfOneType(broken, dtype);
      const TileIsa* const candidate = &isa;
      const absl::Status status = FirstSoundPath({&candidate, 1}).status();
      EXPECT_EQ(DetailOf(status).reason, "KERNEL_SELF_CHECK_FAILED")
          << fault.name << " " << DataTypeName(dtype) << ": " << status;
    }
  }
}

TEST_F(SelfCheckTest, AFaultFallsBackToTheNextPath) {
  for (const TileIsa& fault : {LosesAScore(), MakesNan(), CutsFp16Short(), MistakesRowsAsTheyLie(),
                               MistakesGroupsOfRows()}) {
    ExpectPassedOver(fault);
  }
}

// A function that the portable path lacks.
TEST_F(SelfCheckTest, AFaultInSumsOfKeysFallsBackToTheNextPath) {
  const TileIsa* amx = AmxOrEmulation();
  if (amx == nullptr) GTEST_SKIP() << "this CPU lacks AMX and what emulates it";
  static const GradientIsa& sound = *amx->gradients;
  ASSERT_NE(sound.sums_of_keys, nullptr);
  GradientIsa gradients = sound;
  gradients.sums_of_keys = [](const float* sums, int key, int dim, float* out, int stride) {
    sound.sums_of_keys(sums, key, dim, out, stride);
    if (key == 16) out[stride] += 5;
  };
  TileIsa fault = *amx;
  fault.name = "mistakes-sums-of-keys";
  fault.gradients = &gradients;
  ExpectPassedOver(fault);
}

TEST_F(SelfCheckTest, AFaultInTheFlowOfAmxShows) {
  const TileIsa* amx = AmxOrEmulation();
  if (amx == nullptr) GTEST_SKIP() << "this CPU lacks AMX and what emulates it";
  EXPECT_EQ(FirstSoundPath({&amx, 1})->isa, amx);
  for (const auto attend : {MistakesWholeBlocks<64>, MistakesWholeBlocks<128>}) {
    TileIsa fault = *amx;
    fault.attend = attend;
    const TileIsa* candidates[] = {&fault, &kPortableIsa};
    EXPECT_EQ(FirstSoundPath(candidates)->isa, &kPortableIsa);
  }
}

TEST_F(SelfCheckTest, AKernelThatServesNoShapeOfATypeFailsItsCheck) {
  LacksAType yardstick(DataType::kUnspecified);
  for (const DataType dtype : {DataType::kFp32, DataType::kFp16, DataType::kBf16}) {
    LacksAType kernel(dtype);
    const absl::Status status = CheckKernelsByShape(kernel, yardstick);
    EXPECT_EQ(DetailOf(status).reason, "KERNEL_SELF_CHECK_FAILED") << status;
  }
  EXPECT_TRUE(CheckKernelsByShape(yardstick, yardstick).ok());
}

// The portable path, but with all values 0 if one is NaN.
class HidesNan final : public AttentionKernel {
 public:
  HidesNan() : isa_(kPortableIsa) {
    isa_.pack_values = [](const ElementRows& rows, const uint8_t* present, int count, int dim,
                          float* out) {
      kPortableIsa.pack_values(rows, present, count, dim, out);
      for (int64_t i = 0; i < PackedValueFloats(kPortableIsa, dim); ++i)
        if (std::isnan(out[i])) out[i] = 0;
      return true;
    };
    CpuKernel::Options options;
    options.isa = &isa_;
    inner_ = *CpuKernel::Create(options);
  }
  absl::Status Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                          const KernelControl& control) override {
    return inner_->Accumulate(job, tasks, control);
  }
  absl::Status Apply(const KernelJob& job, const KernelOp& op) override {
    return inner_->Apply(job, op);
  }
  std::string Description() const override { return "hides NaN"; }

 private:
  TileIsa isa_;
  std::unique_ptr<AttentionKernel> inner_;
};

TEST_F(SelfCheckTest, NanAndInfinitiesShowWhereTheyShould) {
  LacksAType yardstick(DataType::kUnspecified);
  for (const TileIsa* isa : AvailableIsas()) {
    CpuKernel::Options options;
    options.isa = isa;
    const absl::Status status = CheckNonfinite(**CpuKernel::Create(options), yardstick);
    EXPECT_TRUE(status.ok()) << isa->name << ": " << status;
  }
  HidesNan kernel;
  EXPECT_TRUE(CheckKernel(kernel, yardstick).ok());
  EXPECT_EQ(DetailOf(CheckNonfinite(kernel, yardstick)).reason, "KERNEL_SELF_CHECK_FAILED");
}

TEST_F(SelfCheckTest, NoSoundPathIsAnError) {
  const TileIsa faults[] = {LosesAScore(), MakesNan()};
  const TileIsa* candidates[] = {&faults[0], &faults[1]};
  EXPECT_EQ(FirstSoundPath(candidates).status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace annulus
