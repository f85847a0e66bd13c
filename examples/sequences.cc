// Three packed sequences with masks of their own in one job. With a service on this machine
// (annulus serve):
//
//   bazel run //examples:sequences -- 127.0.0.1:8001

#include <cstdio>
#include <vector>

#include "client/client.h"
#include "examples/tensors.h"

namespace annulus {
namespace {

int Run(const char* address) {
  constexpr int64_t kHeads = 2, kDim = 64;
  AttendArguments job;
  job.spec.dtype = DataType::kFp32;
  job.spec.q_heads = job.spec.kv_heads = kHeads;
  job.spec.head_dim = kDim;
  // A prompt, a decode step over a cache of 900 keys, and an encoder's sequence.
  const int64_t lengths[][2] = {{300, 300}, {1, 900}, {200, 200}};
  for (int i = 0; i < 3; ++i) {
    Sequence sequence;
    sequence.q_len = lengths[i][0];
    sequence.kv_len = lengths[i][1];
    sequence.mask = i;
    job.spec.sequences.push_back(sequence);
  }
  job.spec.masks.resize(3);
  job.spec.masks[0].causal = true;
  job.spec.masks[1].causal = true;
  job.spec.masks[1].window_left = 511;  // The last 512 keys.

  // The rows of a sequence follow those of the sequence before it in every tensor.
  const int64_t queries = job.spec.q_rows(), keys = job.spec.kv_rows();
  const std::vector<float> q = Normal(queries * kHeads * kDim, 1);
  const std::vector<float> k = Normal(keys * kHeads * kDim, 2);
  const std::vector<float> v = Normal(keys * kHeads * kDim, 3);
  std::vector<float> output(q.size()), lse(queries * kHeads);
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
  // The prompt's first token sees itself alone, so its output is its value.
  const bool right = output[0] == v[0];
  std::printf("%lld queries over %lld keys, first row equals v: %s\n",
              static_cast<long long>(queries), static_cast<long long>(keys),
              right ? "true" : "false");
  return right ? 0 : 1;
}

}  // namespace
}  // namespace annulus

int main(int argc, char** argv) {
  if (argc == 2) return annulus::Run(argv[1]);
  std::fprintf(stderr, "usage: sequences HOST:PORT\n");
  return 2;
}
