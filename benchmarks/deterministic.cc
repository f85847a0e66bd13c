// The cost of spec.deterministic: jobs on two workers of one thread each, with and without it,
// alternating.

#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmarks/bench_report.h"
#include "benchmarks/jobs.h"
#include "benchmarks/serve.h"
#include "proto/wire/convert.h"

namespace annulus::bench {
namespace {

constexpr int kRepeats = 7;

double RunningSeconds(const v1::JobStats& stats) {
  return absl::ToDoubleSeconds(DurationFromProto(stats.running()));
}

Entry Compare(Operation operation, DataType dtype, bool causal, Client* client) {
  const bool gradients = operation == Operation::kGradients;
  AttentionSpec plain = SelfAttention(dtype, gradients ? 2048 : 8192, 8, 128, causal);
  plain.operation = operation;
  AttentionSpec fixed = plain;
  fixed.deterministic = true;
  BenchJob plain_job(plain), fixed_job(fixed);
  Execution execution;
  execution.world_size = 2;
  std::vector<double> plain_seconds, fixed_seconds;
  for (int i = 0; i <= kRepeats; ++i) {
    const double base = RunningSeconds(plain_job.Run(client, execution, DataPath::kDirect));
    const double ours = RunningSeconds(fixed_job.Run(client, execution, DataPath::kDirect));
    if (i == 0) continue;
    plain_seconds.push_back(base);
    fixed_seconds.push_back(ours);
  }
  const Summary ours = Summarize(fixed_seconds), base = Summarize(plain_seconds);
  Entry entry;
  entry.name = absl::StrCat("deterministic_", gradients ? "gradients_2k_" : "8k_",
                            DataTypeName(dtype), causal ? "_causal" : "_full");
  entry.value = ours.median * 1e3;
  entry.unit = "ms";
  entry.compared_to = "the same job without it, same run";
  entry.ratio = ours.median / base.median;
  entry.higher_is_better = false;
  entry.bar = gradients ? 1.8 : 1.3;  // Seven products instead of five.
  entry.ceiling = base.median * 1e3;
  entry.repeats = kRepeats;
  entry.spread = ours.spread;
  return entry;
}

int Main() {
  const Serve serve(2, {"--threads", "1"});
  Client client(OptionsFor(serve));
  std::vector<Entry> entries;
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16}) {
    for (const bool causal : {false, true}) {
      for (const Operation operation : {Operation::kForward, Operation::kGradients}) {
        entries.push_back(Compare(operation, dtype, causal, &client));
      }
    }
  }
  std::puts(ToJson(entries).c_str());
  return 0;
}

}  // namespace
}  // namespace annulus::bench

int main() { return annulus::bench::Main(); }
