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

// Inputs and outputs of a job.
struct Numbers {
  reference::Input input;
  reference::Upstream upstream;
  std::map<TensorId, std::vector<std::byte>> tensors;  // Outputs are NaN until they arrive.
  std::string plan;                                    // The resolved execution.
  std::string job_id;                                  // Id of the last job.
};

// Normal numbers. The same seed gives the same numbers.
Numbers MakeNumbers(const AttentionSpec& spec, uint64_t seed);

// Errors of the answers to one spec, for one draw of inputs or several (tests/reference).
class AnswerErrors {
 public:
  // `bf16_partials`: from the execution.
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

// A running service, and the calls that random requests use. Not thread-safe.
class RequestService {
 public:
  explicit RequestService(int workers);

  // Send the inputs and fill the outputs, which `spec` describes.
  absl::Status Attend(const RandomRequest& request, const AttentionSpec& spec, Numbers* numbers);
  // Uses a call that earlier requests used. For inputs and outputs of up to 1 MiB each.
  absl::Status AttendMany(const RandomRequest& request, const AttentionSpec& spec,
                          Numbers* numbers);
  absl::Status AttendInline(const RandomRequest& request, const AttentionSpec& spec,
                            Numbers* numbers);
  // Runs a forward job, and then gradients by its state. The output and LSE become those of
  // `numbers`.
  absl::Status AttendByState(const RandomRequest& request, const AttentionSpec& spec,
                             Numbers* numbers);
  // By a seed: sends no tensors.
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
