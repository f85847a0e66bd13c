// Validate() on requests that keep and use states.
#include <functional>
#include <string>

#include "gtest/gtest.h"
#include "tests/attention/validate/validate_request.h"

namespace annulus {
namespace {

TEST(ValidateStateTest, KeepingHasABound) {
  Request request;
  request.limits.max_keep_state = absl::Seconds(10);
  const auto reason = [&](absl::Duration keep) {
    request.spec.forward.keep_state = keep;
    return DetailOf(request.Check()).reason;
  };
  EXPECT_EQ(reason(absl::Nanoseconds(1)), "");
  EXPECT_EQ(reason(absl::Seconds(10)), "");
  EXPECT_EQ(reason(absl::Seconds(11)), "INVALID_REQUEST");
  EXPECT_EQ(reason(absl::ZeroDuration()), "INVALID_REQUEST");
  EXPECT_EQ(reason(absl::Seconds(-1)), "INVALID_REQUEST");
  ExpectInvalid(request, "INVALID_REQUEST", "spec.forward.keep_state");
}

TEST(ValidateStateTest, NamesAreShortAndPrintable) {
  Request request;
  request.spec.operation = Operation::kGradients;
  request.spec.gradients.release_state = true;
  ExpectInvalid(request, "INVALID_REQUEST", "spec.gradients.release_state");
  request.spec.gradients.state = std::string(64, 'x');
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  for (const std::string& name : {std::string(65, 'x'), std::string("a b"), std::string("\x7f"),
                                  std::string("\xc3\xa9"), std::string("a\0b", 3)}) {
    request.spec.gradients.state = name;
    ExpectInvalid(request, "INVALID_REQUEST", "spec.gradients.state");
  }
}

// An option of the other operation is never ignored silently.
TEST(ValidateStateTest, OptionsOfTheOtherOperationAreRefused) {
  Request gradients;
  gradients.limits.max_keep_state = absl::Seconds(10);
  gradients.spec.operation = Operation::kGradients;
  gradients.spec.forward.keep_state = absl::Seconds(1);
  ExpectInvalid(gradients, "INVALID_REQUEST", "spec.forward.keep_state");
  const auto expect = [](const char* field, const std::function<void(GradientOptions*)>& set) {
    Request forward;
    forward.spec.modifiers.bias = Bias();
    forward.spec.modifiers.bias->heads = 1;
    ASSERT_TRUE(forward.Check().ok()) << forward.Check();
    set(&forward.spec.gradients);
    ExpectInvalid(forward, "INVALID_REQUEST", field);
  };
  expect("spec.gradients.d_lse", [](GradientOptions* g) { g->d_lse = true; });
  expect("spec.gradients.d_bias", [](GradientOptions* g) { g->d_bias = true; });
  expect("spec.gradients.state", [](GradientOptions* g) { g->state = "job"; });
  expect("spec.gradients.release_state", [](GradientOptions* g) { g->release_state = true; });
}

TEST(ValidateStateTest, OnlyAnLseThatGradientsTakeIsKept) {
  Request request;
  request.limits.max_keep_state = absl::Seconds(10);
  request.spec.forward.keep_state = absl::Seconds(1);
  EXPECT_TRUE(request.Check().ok());
  request.spec.outputs.lse_base = LseBase::k2;
  ExpectInvalid(request, "INVALID_REQUEST", "spec.forward.keep_state");
}

}  // namespace
}  // namespace annulus
