#include "worker/backend/start_rates.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "attention/spec/dtype.h"
#include "attention/validate/capability.h"
#include "base/status_macros.h"
#include "worker/backend/measure.h"

namespace annulus {
namespace {

// For links that cannot be measured in one process: GPUs behind PCIe.
constexpr int64_t kAssumedLinkBytesPerSecond = 20'000'000'000;
constexpr double kAssumedStepSeconds = 30e-6;
// Below this CPU share, the log marks the measurements as doubtful.
constexpr double kMostlyAlone = 0.7;

absl::Status CheckWanted(const StartRatesOptions& options) {
  return options.stop_requested() ? absl::CancelledError("ended by a signal") : absl::OkStatus();
}

std::vector<KernelRates> KernelsOf(const Engine& engine) {
  std::vector<KernelRates> kernels = {{DataType::kFp32, Arithmetic::kOfType, {}},
                                      {DataType::kBf16, Arithmetic::kOfType, {}},
                                      {DataType::kFp16, Arithmetic::kOfType, {}}};
  if (!engine.Lacks(kBf16x3Feature)) kernels.push_back({DataType::kFp32, Arithmetic::kBf16x3, {}});
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16, DataType::kFp16})
    kernels.push_back({dtype, Arithmetic::kOfType, {}, Operation::kGradients});
  return kernels;
}

absl::Status MeasureKernels(const Engine& engine, const StartRatesOptions& options,
                            WorkerRates* rates) {
  const int threads = engine.device_kind == DeviceKind::kCpu ? options.threads : 0;
  rates->kernels = KernelsOf(engine);
  ASSIGN_OR_RETURN(ColdNumbers cold, ColdNumbers::Create());
  for (KernelRates& kernel : rates->kernels) {
    RETURN_IF_ERROR(CheckWanted(options));
    const double part = kernel.operation == Operation::kForward ? 0.375 : 0.1875;
    ASSIGN_OR_RETURN(MeasuredKernel measured,
                     MeasureKernel(engine, kernel, threads, options.time * part, &cold));
    kernel.rates = std::move(measured.rates);
    rates->cpu_share = std::min(rates->cpu_share, measured.cpu_share);
  }
  return absl::OkStatus();
}

absl::Status MeasureTransfers(const Engine& engine, const StartRatesOptions& options,
                              WorkerRates* rates) {
  if (engine.one_rank_a_process) {
    rates->step_seconds = kAssumedStepSeconds;
    rates->link_bytes_per_second =
        static_cast<double>(options.link_rate > 0 ? options.link_rate : kAssumedLinkBytesPerSecond);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckWanted(options));
  ASSIGN_OR_RETURN(rates->step_seconds, MeasureStep(engine, options.time / 8));
  rates->link_bytes_per_second = static_cast<double>(options.link_rate);
  if (options.link_rate > 0) return absl::OkStatus();
  RETURN_IF_ERROR(CheckWanted(options));
  ASSIGN_OR_RETURN(rates->link_bytes_per_second, MeasureLink(engine, options.time));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<WorkerRates> MeasureStartRates(const Engine& engine,
                                              const StartRatesOptions& options) {
  WorkerRates rates;
  RETURN_IF_ERROR(MeasureKernels(engine, options, &rates));
  RETURN_IF_ERROR(MeasureTransfers(engine, options, &rates));
  return rates;
}

std::string RatesText(const WorkerRates& rates) {
  std::string text;
  for (const KernelRates& kernel : rates.kernels) {
    AttentionSpec spec;
    spec.head_dim = 128;
    spec.operation = kernel.operation;
    const KernelRate rate = RateOf(spec, kernel);
    const bool split = kernel.arithmetic == Arithmetic::kBf16x3;
    const bool forward = kernel.operation == Operation::kForward;
    absl::StrAppend(&text, split ? "bf16x3" : DataTypeName(kernel.dtype),
                    forward ? " " : " gradients ",
                    std::llround((forward ? 512 : 1280) / rate.pair_seconds / 1e9), " GFLOP/s and ",
                    std::llround(rate.row_seconds * 1e9), " ns a row and head, ",
                    std::llround(rate.key_seconds * 1e9), " ns a key and head, ");
  }
  if (rates.cpu_share < kMostlyAlone) {
    absl::StrAppend(&text, "with processors for ", std::llround(rates.cpu_share * 100),
                    " % of the time, ");
  }
  absl::StrAppend(&text, "link ", std::llround(rates.link_bytes_per_second / 1e6), " MB/s, ",
                  std::llround(rates.step_seconds * 1e6), " us a step");
  return text;
}

}  // namespace annulus
