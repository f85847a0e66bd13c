#ifndef ANNULUS_BENCHMARKS_JOBS_H_
#define ANNULUS_BENCHMARKS_JOBS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "benchmarks/serve.h"
#include "client/client.h"

namespace annulus::bench {

ClientOptions OptionsFor(const Serve& serve);

// A job with synthetic inputs in memory, for benchmarks that run the same job many times.
class BenchJob {
 public:
  explicit BenchJob(AttentionSpec spec);

  // Runs it once and returns its stats. Ends the process with a message on any error.
  v1::JobStats Run(Client* client, const Execution& execution, DataPath path);
  // Like Run, but returns the whole result.
  AttendResult RunOnce(Client* client, const Execution& execution, DataPath path);

  // Rows of a tensor of TensorTable(spec). Outputs are valid after Run.
  const std::byte* tensor(TensorId id) const;

  const AttentionSpec& spec() const { return spec_; }
  int64_t input_bytes() const { return input_bytes_; }
  int64_t output_bytes() const { return output_bytes_; }

 private:
  const AttentionSpec spec_;
  std::vector<TensorInfo> table_;
  std::vector<std::vector<std::byte>> tensors_;
  int64_t input_bytes_ = 0, output_bytes_ = 0;
};

// One sequence of equal lengths, causal or full.
AttentionSpec SelfAttention(DataType dtype, int64_t length, int32_t heads, int32_t dim,
                            bool causal);

// Seconds that fn() takes.
template <typename Fn>
double TimeOnce(Fn fn) {
  const auto begin = std::chrono::steady_clock::now();
  fn();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace annulus::bench

#endif  // ANNULUS_BENCHMARKS_JOBS_H_
