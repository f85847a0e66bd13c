#include "proto/wire/rates.h"

#include <cmath>

#include "base/status_macros.h"

namespace annulus {
namespace {

constexpr int kMaxKernels = 16, kMaxDims = 16, kMaxDim = 1024;

// A NaN would decide every comparison of plans.
bool Seconds(double value) { return value >= 0 && value < 1; }

absl::StatusOr<std::vector<KernelRate>> KernelFromProto(const v1::KernelRates& proto) {
  if (proto.rates().empty() || proto.rates_size() > kMaxDims)
    return absl::InvalidArgumentError("rates.kernels: must have 1 to 16 dimensions");
  std::vector<KernelRate> rates;
  for (const v1::KernelRate& rate : proto.rates()) {
    const int32_t before = rates.empty() ? 0 : rates.back().head_dim;
    if (rate.head_dim() <= before || rate.head_dim() > kMaxDim)
      return absl::InvalidArgumentError("rates.kernels: dimensions must be 1 to 1024, ascending");
    if (!(rate.pair_seconds() > 0 && std::isfinite(rate.pair_seconds())))
      return absl::InvalidArgumentError(
          "rates.kernels.pair_seconds: must be finite and more than 0");
    if (!Seconds(rate.row_seconds()))
      return absl::InvalidArgumentError("rates.kernels.row_seconds: must be 0 to 1");
    if (!Seconds(rate.key_seconds()))
      return absl::InvalidArgumentError("rates.kernels.key_seconds: must be 0 to 1");
    rates.push_back({rate.head_dim(), rate.pair_seconds(), rate.row_seconds(), rate.key_seconds()});
  }
  return rates;
}

}  // namespace

v1::WorkerRates RatesToProto(const WorkerRates& rates) {
  v1::WorkerRates proto;
  for (const KernelRates& kernel : rates.kernels) {
    v1::KernelRates* of = proto.add_kernels();
    of->set_dtype(static_cast<v1::DataType>(kernel.dtype));
    of->set_arithmetic(static_cast<v1::AttentionSpec::Arithmetic>(kernel.arithmetic));
    of->set_gradients(kernel.operation == Operation::kGradients);
    for (const KernelRate& rate : kernel.rates) {
      v1::KernelRate* at = of->add_rates();
      at->set_head_dim(rate.head_dim);
      at->set_pair_seconds(rate.pair_seconds);
      at->set_row_seconds(rate.row_seconds);
      at->set_key_seconds(rate.key_seconds);
    }
  }
  proto.set_link_bytes_per_second(rates.link_bytes_per_second);
  proto.set_step_seconds(rates.step_seconds);
  proto.set_cpu_share(rates.cpu_share);
  return proto;
}

absl::StatusOr<WorkerRates> RatesFromProto(const v1::WorkerRates& proto) {
  WorkerRates rates;
  rates.kernels.clear();
  rates.link_bytes_per_second = proto.link_bytes_per_second();
  rates.step_seconds = proto.step_seconds();
  if (!(rates.link_bytes_per_second > 0 && std::isfinite(rates.link_bytes_per_second)))
    return absl::InvalidArgumentError(
        "rates.link_bytes_per_second: must be finite and more than 0");
  if (!Seconds(rates.step_seconds))
    return absl::InvalidArgumentError("rates.step_seconds: must be 0 to 1");
  if (!(proto.cpu_share() >= 0 && proto.cpu_share() <= 1))
    return absl::InvalidArgumentError("rates.cpu_share: must be 0 to 1");
  if (proto.cpu_share() > 0) rates.cpu_share = proto.cpu_share();
  if (proto.kernels_size() > kMaxKernels)
    return absl::InvalidArgumentError("rates.kernels: must have at most 16 entries");
  for (const v1::KernelRates& kernel : proto.kernels()) {
    // Kernels of kinds that this version does not know serve no job.
    if (!v1::DataType_IsValid(kernel.dtype()) ||
        !v1::AttentionSpec::Arithmetic_IsValid(kernel.arithmetic())) {
      continue;
    }
    KernelRates of{
        static_cast<DataType>(kernel.dtype()), static_cast<Arithmetic>(kernel.arithmetic()), {}};
    of.operation = kernel.gradients() ? Operation::kGradients : Operation::kForward;
    ASSIGN_OR_RETURN(of.rates, KernelFromProto(kernel));
    rates.kernels.push_back(std::move(of));
  }
  AttentionSpec fp32;
  fp32.dtype = DataType::kFp32;
  if (RatesOf(fp32, rates.kernels) == nullptr)
    return absl::InvalidArgumentError("rates.kernels: must have an entry of fp32");
  return rates;
}

}  // namespace annulus
