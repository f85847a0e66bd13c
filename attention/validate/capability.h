#ifndef ANNULUS_ATTENTION_VALIDATE_CAPABILITY_H_
#define ANNULUS_ATTENTION_VALIDATE_CAPABILITY_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "attention/spec/spec.h"

namespace annulus {

// One row of the capability table: a feature of a request, whether it is served, and if not, the
// reason. Refusals and GetServerInfo are made from these rows.
struct Capability {
  std::string feature;  // For example "strategy/ulysses", "mask/window-left", "dtype/fp8-e4m3".
  bool served = false;
  std::string why_not;  // One sentence; empty if served.
  // The request field that asks for the feature; "[]" stands for any index.
  std::string field_path;
};

inline constexpr char kBf16x3Feature[] = "arithmetic/bf16x3";

// The whole table, in a fixed order. A served feature works together with every other served
// feature at any world size. The exceptions are the rows that name a combination, such as
// "gradients/…", "deterministic/…" and "bf16-partials/…".
//
// strategy/halo is served for every mask. It transfers exactly the rows that a rank can see; if a
// mask hides nothing, those are all rows.
absl::Span<const Capability> CapabilityTable();

// The features that a request uses: rows of the table in which field_path is the first field that
// asks for the feature ("spec.masks[2].chunk"). Requires: enum values are known, and heads that
// masks name and masks that sequences name exist.
std::vector<Capability> FeaturesOf(const AttentionSpec& spec, const Execution& execution);

// OK if every feature used is served. Otherwise UNIMPLEMENTED / NOT_SERVED with a field violation
// for each feature that is not, and their names in metadata "features", separated by commas.
absl::Status CheckServed(const AttentionSpec& spec, const Execution& execution);

// The features of the table that a worker with a GPU does not serve, and the reasons. A worker
// sends the features it lacks to its coordinator when it registers. At submit, the coordinator
// refuses requests that use one of them.
absl::Span<const Capability> CudaLacks();

// CheckServed for the features in `lacks`. Uses only their names and reasons.
absl::Status CheckNotLacking(absl::Span<const Capability> lacks, const AttentionSpec& spec,
                             const Execution& execution);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_VALIDATE_CAPABILITY_H_
