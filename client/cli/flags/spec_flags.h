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

// The number of visible keys on either side of a row.
struct WindowFlag {
  int64_t left = 0;
  std::optional<int64_t> right;  // Absent: no limit.
};

// Flags that replace fields of a spec. Absent or empty: as the spec says.
struct SpecFlags {
  std::string mask;
  std::optional<WindowFlag> window;
  std::optional<double> scale, soft_cap;
  std::optional<Dropout> dropout;
  std::string lse_base, out_dtype;
  std::optional<bool> deterministic;
  std::string arithmetic;
};

// Adds the flags and returns their options. There is no --lse-base if `operation` is gradients.
std::vector<const CLI::Option*> AddSpecFlags(CLI::App* app, std::optional<Operation> operation,
                                             SpecFlags* flags);

// Replaces a field of the spec for each flag that is set. INVALID_ARGUMENT / BAD_SPEC for a window
// if the spec has several masks, or a mask for some heads only: the flag does not select a mask.
absl::Status PutOver(const SpecFlags& flags, v1::AttentionSpec* spec);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FLAGS_SPEC_FLAGS_H_
