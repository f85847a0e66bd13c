#include "attention/kernel_rates.h"

#include <algorithm>

namespace annulus {
namespace {

// The dimension of a forward job whose pairs take as many products.
double DimOf(const AttentionSpec& spec) {
  if (spec.operation == Operation::kForward) return 0.5 * (spec.head_dim + spec.value_dim());
  return 0.5 * (3.0 * spec.head_dim + 2.0 * spec.value_dim());
}

}  // namespace

KernelRate RateOf(const AttentionSpec& spec, absl::Span<const KernelRate> rates) {
  const double dim = DimOf(spec);
  const auto* above = std::find_if(rates.begin(), rates.end(),
                                   [&](const KernelRate& rate) { return rate.head_dim >= dim; });
  if (above == rates.begin()) return rates.front();
  KernelRate rate = above[-1];
  if (above == rates.end()) {
    rate.pair_seconds *= dim / rate.head_dim;
    rate.row_seconds *= dim / rate.head_dim;
    return rate;
  }
  const double part = (dim - rate.head_dim) / (above->head_dim - rate.head_dim);
  rate.pair_seconds += part * (above->pair_seconds - rate.pair_seconds);
  rate.row_seconds += part * (above->row_seconds - rate.row_seconds);
  return rate;
}

const KernelRates* RatesOf(const AttentionSpec& spec, absl::Span<const KernelRates> kernels) {
  const bool own = spec.operation == Operation::kForward || spec.dtype == DataType::kBf16;
  const KernelRates* fp32 = nullptr;
  for (const KernelRates& kernel : kernels) {
    if (kernel.arithmetic == Arithmetic::kOfType && kernel.dtype == DataType::kFp32) fp32 = &kernel;
    if (own && kernel.dtype == spec.dtype && kernel.arithmetic == spec.arithmetic) return &kernel;
  }
  return fp32;
}

}  // namespace annulus
