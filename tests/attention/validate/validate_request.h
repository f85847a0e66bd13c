#ifndef ANNULUS_TESTS_ATTENTION_VALIDATE_VALIDATE_REQUEST_H_
#define ANNULUS_TESTS_ATTENTION_VALIDATE_VALIDATE_REQUEST_H_

#include <gtest/gtest.h>

#include <string>

#include "attention/validate/validate.h"
#include "base/error.h"

namespace annulus {

// A valid request. Each test changes one field.
struct Request {
  AttentionSpec spec;
  Execution execution;
  Limits limits;

  Request() {
    spec.dtype = DataType::kBf16;
    spec.q_heads = 8;
    spec.kv_heads = 2;
    spec.head_dim = 64;
    spec.sequences.resize(2);
    spec.sequences[0].q_len = 5;
    spec.sequences[0].kv_len = 7;
    spec.sequences[1].q_len = 3;
    spec.masks.resize(1);
    spec.masks[0].causal = true;
  }
  absl::Status Check() const { return Validate(spec, execution, limits); }
};

inline void ExpectRefused(const Request& request, absl::StatusCode code, const std::string& reason,
                          const std::string& field) {
  const absl::Status status = request.Check();
  EXPECT_EQ(status.code(), code) << status;
  const ErrorDetail detail = DetailOf(status);
  EXPECT_EQ(detail.reason, reason) << status;
  ASSERT_EQ(detail.fields.size(), 1u) << status;
  EXPECT_EQ(detail.fields[0].field, field);
  EXPECT_FALSE(detail.fields[0].description.empty());
}

inline void ExpectInvalid(const Request& request, const std::string& reason,
                          const std::string& field) {
  ExpectRefused(request, absl::StatusCode::kInvalidArgument, reason, field);
}

inline void ExpectNotServed(const Request& request, const std::string& field) {
  ExpectRefused(request, absl::StatusCode::kUnimplemented, "NOT_SERVED", field);
}

}  // namespace annulus

#endif  // ANNULUS_TESTS_ATTENTION_VALIDATE_VALIDATE_REQUEST_H_
