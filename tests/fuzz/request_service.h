#ifndef ANNULUS_TESTS_FUZZ_REQUEST_SERVICE_H_
#define ANNULUS_TESTS_FUZZ_REQUEST_SERVICE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "annulus/v1/attention.grpc.pb.h"
#include "annulus/v1/jobs.grpc.pb.h"
#include "attention/spec/spec.h"
#include "attention/spec/tensor_table.h"
#include "benchmarks/serve.h"
#include "tests/fuzz/random_requests.h"
#include "tests/reference/budget.h"
#include "tests/reference/gradient_budget.h"

namespace annulus {

// Inputs of a job and what it answered.
struct Numbers {
  reference::Input input;
  reference::Upstream upstream;
  std::map<TensorId, std::vector<std::byte>> tensors;  // Outputs are NaN until they come.
  std::string plan;                                    // How it was executed, resolved.
  std::string job_id;                                  // Of the last job.
};

// Normal numbers. Same seed, same numbers.
Numbers MakeNumbers(const AttentionSpec& spec, uint64_t seed);

// Errors of the answers to one spec, of one draw of inputs or of several (tests/reference).
class AnswerErrors {
 public:
  // `bf16_partials`: of the execution.
  AnswerErrors(const AttentionSpec& spec, bool bf16_partials)
      : spec_(spec), bf16_partials_(bf16_partials) {}
  testing::AssertionResult Add(const Numbers& numbers);
  testing::AssertionResult Judge(const reference::Slack& slack) const;

 private:
  const AttentionSpec spec_;
  const bool bf16_partials_;
  reference::ForwardErrors forward_;
  reference::GradientErrors gradients_;
};

// A running service and the calls of it that random requests go through. For one thread.
class RequestService {
 public:
  explicit RequestService(int workers);

  // These send the inputs and fill the outputs; `spec` says what they are.
  absl::Status Attend(const RandomRequest& request, const AttentionSpec& spec, Numbers* numbers);
  // By a call that other requests had before; for inputs and outputs of up to 1 MiB each.
  absl::Status AttendMany(const RandomRequest& request, const AttentionSpec& spec,
                          Numbers* numbers);
  absl::Status AttendInline(const RandomRequest& request, const AttentionSpec& spec,
                            Numbers* numbers);
  // Gradients by the state of a forward job, which goes before; its output and LSE become those of
  // `numbers`.
  absl::Status AttendByState(const RandomRequest& request, const AttentionSpec& spec,
                             Numbers* numbers);
  // By a seed: nothing is sent.
  absl::Status AttendInline(const RandomRequest& request);
  absl::Status Plan(const RandomRequest& request);

 private:
  const bench::Serve serve_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Attention::Stub> attention_;
  const std::unique_ptr<v1::Jobs::Stub> jobs_;
  std::unique_ptr<grpc::ClientContext> many_context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AttendRequest, v1::AttendResponse>> many_;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_FUZZ_REQUEST_SERVICE_H_
