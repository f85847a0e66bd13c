// Causal attention by the C++ client. With a service on this machine (annulus serve):
//
//   bazel run //examples:attend -- 127.0.0.1:8001

#include <cstdio>
#include <vector>

#include "client/client.h"
#include "examples/tensors.h"

namespace annulus {
namespace {

int Run(const char* address) {
  constexpr int64_t kTokens = 1000, kHeads = 4, kKvHeads = 2, kDim = 64;
  AttendArguments job;
  job.spec.dtype = DataType::kFp32;
  job.spec.q_heads = kHeads;
  job.spec.kv_heads = kKvHeads;  // Two query heads share a key head.
  job.spec.head_dim = kDim;
  job.spec.sequences.resize(1);
  job.spec.sequences[0].q_len = job.spec.sequences[0].kv_len = kTokens;
  job.spec.masks.resize(1);
  job.spec.masks[0].causal = true;

  // Tensors are rows of [heads, dim]; they stay as they are until Attend has returned.
  const std::vector<float> q = Normal(kTokens * kHeads * kDim, 1);
  const std::vector<float> k = Normal(kTokens * kKvHeads * kDim, 2);
  const std::vector<float> v = Normal(kTokens * kKvHeads * kDim, 3);
  std::vector<float> output(q.size()), lse(kTokens * kHeads);
  job.inputs = {{TensorId::kQ, Bytes(q)}, {TensorId::kK, Bytes(k)}, {TensorId::kV, Bytes(v)}};
  job.outputs = {{TensorId::kOut, Bytes(&output)}, {TensorId::kLse, Bytes(&lse)}};

  ClientOptions options;
  options.address = address;
  Client client(options);
  const absl::StatusOr<AttendResult> result = client.Attend(job);
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
    return 1;
  }
  // Under a causal mask the first token sees itself alone, so its output is its value.
  const bool right = output[0] == v[0] && output[kDim - 1] == v[kDim - 1];
  std::printf("%d workers, first row equals v: %s\n", result->plan.execution().world_size(),
              right ? "true" : "false");
  return right ? 0 : 1;
}

}  // namespace
}  // namespace annulus

int main(int argc, char** argv) {
  if (argc == 2) return annulus::Run(argv[1]);
  std::fprintf(stderr, "usage: attend HOST:PORT\n");
  return 2;
}
