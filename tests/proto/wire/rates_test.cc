#include "proto/wire/rates.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace annulus {
namespace {

WorkerRates Some() {
  WorkerRates rates;
  rates.kernels = {{DataType::kFp32, Arithmetic::kOfType, {{32, 1e-9, 0}, {128, 2e-9, 3e-7}}},
                   {DataType::kFp32, Arithmetic::kBf16x3, {{64, 5e-10, 1e-7}}},
                   {DataType::kBf16, Arithmetic::kOfType, {{64, 4e-10, 2e-7, 6e-8}}},
                   {DataType::kFp32, Arithmetic::kOfType, {{64, 8e-9, 0}}, Operation::kGradients}};
  rates.link_bytes_per_second = 2e9;
  rates.step_seconds = 1e-4;
  rates.cpu_share = 0.25;
  return rates;
}

TEST(RatesTest, AMessageSaysAllOfThem) {
  const WorkerRates want = Some();
  const auto got = RatesFromProto(RatesToProto(want));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->link_bytes_per_second, 2e9);
  EXPECT_EQ(got->step_seconds, 1e-4);
  EXPECT_EQ(got->cpu_share, 0.25);
  ASSERT_EQ(got->kernels.size(), want.kernels.size());
  for (size_t k = 0; k < want.kernels.size(); ++k) {
    const KernelRates &of = got->kernels[k], &wanted = want.kernels[k];
    EXPECT_EQ(of.dtype, wanted.dtype) << k;
    EXPECT_EQ(of.arithmetic, wanted.arithmetic) << k;
    EXPECT_EQ(of.operation, wanted.operation) << k;
    ASSERT_EQ(of.rates.size(), wanted.rates.size()) << k;
    for (size_t i = 0; i < of.rates.size(); ++i) {
      EXPECT_EQ(of.rates[i].head_dim, wanted.rates[i].head_dim);
      EXPECT_EQ(of.rates[i].pair_seconds, wanted.rates[i].pair_seconds);
      EXPECT_EQ(of.rates[i].row_seconds, wanted.rates[i].row_seconds);
      EXPECT_EQ(of.rates[i].key_seconds, wanted.rates[i].key_seconds);
    }
  }
}

TEST(RatesTest, WhatNoPlanCanBeMadeFromIsRefused) {
  const std::function<void(v1::WorkerRates*)> spoils[] = {
      [](auto* r) { r->clear_kernels(); },
      [](auto* r) { r->mutable_kernels()->DeleteSubrange(0, 2); },  // Only bf16 remains.
      [](auto* r) { r->mutable_kernels(0)->clear_rates(); },
      [](auto* r) { r->mutable_kernels(0)->mutable_rates(1)->set_head_dim(32); },
      [](auto* r) { r->mutable_kernels(0)->mutable_rates(0)->set_head_dim(0); },
      [](auto* r) { r->mutable_kernels(0)->mutable_rates(1)->set_head_dim(1025); },
      [](auto* r) { r->mutable_kernels(1)->mutable_rates(0)->set_pair_seconds(0); },
      [](auto* r) { r->mutable_kernels(1)->mutable_rates(0)->set_pair_seconds(NAN); },
      [](auto* r) { r->mutable_kernels(1)->mutable_rates(0)->set_pair_seconds(HUGE_VAL); },
      [](auto* r) { r->mutable_kernels(2)->mutable_rates(0)->set_row_seconds(-1); },
      [](auto* r) { r->mutable_kernels(2)->mutable_rates(0)->set_row_seconds(1); },
      [](auto* r) { r->mutable_kernels(2)->mutable_rates(0)->set_row_seconds(NAN); },
      [](auto* r) { r->mutable_kernels(2)->mutable_rates(0)->set_key_seconds(-1); },
      [](auto* r) { r->mutable_kernels(2)->mutable_rates(0)->set_key_seconds(1); },
      [](auto* r) { r->mutable_kernels(2)->mutable_rates(0)->set_key_seconds(NAN); },
      [](auto* r) { r->set_link_bytes_per_second(0); },
      [](auto* r) { r->set_link_bytes_per_second(HUGE_VAL); },
      [](auto* r) { r->set_step_seconds(NAN); },
      [](auto* r) { r->set_cpu_share(-0.1); },
      [](auto* r) { r->set_cpu_share(1.1); },
      [](auto* r) { r->set_cpu_share(NAN); },
      [](auto* r) {
        for (int i = 0; i < 16; ++i) *r->add_kernels() = r->kernels(0);
      },
      [](auto* r) {
        for (int i = 0; i < 15; ++i) {
          *r->mutable_kernels(0)->add_rates() = r->kernels(0).rates(1);
          r->mutable_kernels(0)->mutable_rates(i + 2)->set_head_dim(129 + i);
        }
      },
  };
  for (size_t i = 0; i < std::size(spoils); ++i) {
    v1::WorkerRates proto = RatesToProto(Some());
    spoils[i](&proto);
    EXPECT_EQ(RatesFromProto(proto).status().code(), absl::StatusCode::kInvalidArgument) << i;
  }
}

// A newer worker may have kernels that this version does not use.
TEST(RatesTest, KernelsOfUnknownKindAreLeftOut) {
  v1::WorkerRates proto = RatesToProto(Some());
  proto.mutable_kernels(1)->set_arithmetic(static_cast<v1::AttentionSpec::Arithmetic>(77));
  proto.mutable_kernels(2)->set_dtype(static_cast<v1::DataType>(77));
  const auto rates = RatesFromProto(proto);
  ASSERT_TRUE(rates.ok()) << rates.status();
  EXPECT_EQ(rates->kernels.size(), Some().kernels.size() - 2);
}

}  // namespace
}  // namespace annulus
