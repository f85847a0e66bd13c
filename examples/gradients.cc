// A forward job whose state stays on the workers, then its gradients: q, k, v and the output are
// sent once. With a service on this machine (annulus serve):
//
//   bazel run //examples:gradients -- 127.0.0.1:8001

#include <cmath>
#include <cstdio>
#include <vector>

#include "client/client.h"
#include "examples/tensors.h"

namespace annulus {
namespace {

int Run(const char* address) {
  constexpr int64_t kTokens = 500, kHeads = 2, kDim = 64;
  AttentionSpec spec;
  spec.dtype = DataType::kFp32;
  spec.q_heads = spec.kv_heads = kHeads;
  spec.head_dim = kDim;
  spec.sequences.resize(1);
  spec.sequences[0].q_len = spec.sequences[0].kv_len = kTokens;

  const size_t numbers = kTokens * kHeads * kDim;
  const std::vector<float> q = Normal(numbers, 1), k = Normal(numbers, 2), v = Normal(numbers, 3);
  std::vector<float> output(numbers), lse(kTokens * kHeads);
  AttendArguments forward;
  forward.spec = spec;
  forward.spec.forward.keep_state = absl::Minutes(5);
  forward.inputs = {{TensorId::kQ, Bytes(q)}, {TensorId::kK, Bytes(k)}, {TensorId::kV, Bytes(v)}};
  forward.outputs = {{TensorId::kOut, Bytes(&output)}, {TensorId::kLse, Bytes(&lse)}};

  ClientOptions options;
  options.address = address;
  Client client(options);
  const absl::StatusOr<AttendResult> kept = client.Attend(forward);
  if (!kept.ok()) {
    std::fprintf(stderr, "forward: %s\n", kept.status().ToString().c_str());
    return 1;
  }

  // The loss is the sum of the outputs, so its gradient is 1 everywhere.
  const std::vector<float> d_out(numbers, 1);
  std::vector<float> dq(numbers), dk(numbers), dv(numbers);
  AttendArguments backward;
  backward.spec = spec;
  backward.spec.gradients.state = kept->stats.job_id();
  backward.spec.gradients.release_state = true;
  backward.inputs = {{TensorId::kDOut, Bytes(d_out)}};
  backward.outputs = {
      {TensorId::kDq, Bytes(&dq)}, {TensorId::kDk, Bytes(&dk)}, {TensorId::kDv, Bytes(&dv)}};
  const absl::StatusOr<AttendResult> result = client.Gradients(backward);
  if (!result.ok()) {
    std::fprintf(stderr, "gradients: %s\n", result.status().ToString().c_str());
    return 1;
  }
  // Each query spreads a weight of 1 over the keys, so dv sums to the number of queries.
  double sum = 0;
  for (size_t i = 0; i < numbers; i += kHeads * kDim) sum += dv[i];
  const bool right = std::abs(sum - kTokens) < 1e-3 * kTokens;
  std::printf("dv of one column sums to %.2f over %lld queries\n", sum,
              static_cast<long long>(kTokens));
  return right ? 0 : 1;
}

}  // namespace
}  // namespace annulus

int main(int argc, char** argv) {
  if (argc == 2) return annulus::Run(argv[1]);
  std::fprintf(stderr, "usage: gradients HOST:PORT\n");
  return 2;
}
