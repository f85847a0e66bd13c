#ifndef ANNULUS_CLIENT_CLI_FLAGS_SPEC_FLAGS_H_
#define ANNULUS_CLIENT_CLI_FLAGS_SPEC_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "annulus/v1/types.pb.h"
#include "attention/spec/spec.h"

namespace annulus {

// Keys on either side of a row.
struct WindowFlag {
  int64_t left = 0;
  std::optional<int64_t> right;  // Absent: without end.
};

// Flags that stand for fields of a spec. What is absent or empty is as the spec says.
struct SpecFlags {
  std::string mask;
  std::optional<WindowFlag> window;
  std::optional<double> scale, soft_cap;
  std::optional<Dropout> dropout;
  std::string lse_base, out_dtype;
  std::optional<bool> deterministic;
  std::string arithmetic;
};

// Returns the options. Gradients, where they are the only operation, have no LSE base.
std::vector<const CLI::Option*> AddSpecFlags(CLI::App* app, std::optional<Operation> operation,
                                             SpecFlags* flags);

// Each replaces exactly its field. INVALID_ARGUMENT / BAD_SPEC for a window over a spec whose masks
// are several, or for some heads alone: which of them it would be of, nobody said.
absl::Status PutOver(const SpecFlags& flags, v1::AttentionSpec* spec);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FLAGS_SPEC_FLAGS_H_
