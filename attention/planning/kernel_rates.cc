#include "attention/planning/kernel_rates.h"

#include <algorithm>

namespace annulus {
namespace {

// The dimension of q, k and v at which a job of operation `measured` takes as many products per
// pair.
double DimOf(const AttentionSpec& spec, Operation measured) {
  if (spec.operation == Operation::kForward) return 0.5 * (spec.head_dim + spec.value_dim());
  const double products = 3.0 * spec.head_dim + 2.0 * spec.value_dim();
  return products / (measured == Operation::kForward ? 2 : 5);
}

}  // namespace

double SecondsOf(const KernelWork& work, const KernelRate& rate) {
  return work.pairs * rate.pair_seconds + work.rows * rate.row_seconds +
         work.keys * rate.key_seconds;
}

KernelRate Scaled(const KernelRate& rate, double factor) {
  KernelRate scaled = rate;
  scaled.pair_seconds *= factor;
  scaled.row_seconds *= factor;
  scaled.key_seconds *= factor;
  return scaled;
}

KernelRate RateOf(const AttentionSpec& spec, const KernelRates& of) {
  const absl::Span<const KernelRate> rates = of.rates;
  const double dim = DimOf(spec, of.operation);
  const auto* above = std::find_if(rates.begin(), rates.end(),
                                   [&](const KernelRate& rate) { return rate.head_dim >= dim; });
  if (above == rates.begin()) return rates.front();
  KernelRate rate = above[-1];
  if (above == rates.end()) {
    return Scaled(rate, dim / rate.head_dim);
  }
  const double part = (dim - rate.head_dim) / (above->head_dim - rate.head_dim);
  rate.pair_seconds += part * (above->pair_seconds - rate.pair_seconds);
  rate.row_seconds += part * (above->row_seconds - rate.row_seconds);
  rate.key_seconds += part * (above->key_seconds - rate.key_seconds);
  return rate;
}

const KernelRates* RatesOf(const AttentionSpec& spec, absl::Span<const KernelRates> kernels) {
  const KernelRates *forward = nullptr, *fp32 = nullptr;
  for (const KernelRates& kernel : kernels) {
    const bool own = kernel.dtype == spec.dtype && kernel.arithmetic == spec.arithmetic;
    if (own && kernel.operation == spec.operation) return &kernel;
    if (kernel.operation != Operation::kForward) continue;
    if (own) forward = &kernel;
    if (kernel.arithmetic == Arithmetic::kOfType && kernel.dtype == DataType::kFp32) fp32 = &kernel;
  }
  return forward != nullptr ? forward : fp32;
}

}  // namespace annulus
