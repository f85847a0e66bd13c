#ifndef ANNULUS_ATTENTION_VALIDATE_CAPABILITY_H_
#define ANNULUS_ATTENTION_VALIDATE_CAPABILITY_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "attention/spec/spec.h"

namespace annulus {

// One line of the capability table: a feature of a request, whether it is served, and if not, why.
// Refusals and GetServerInfo are made from these rows.
struct Capability {
  std::string feature;  // For example "strategy/ulysses", "mask/window", "dtype/fp8-e4m3".
  bool served = false;
  std::string why_not;     // One sentence; empty when served.
  std::string field_path;  // The request field that asks for it; "[]" stands for any index.
};

inline constexpr char kBf16x3Feature[] = "arithmetic/bf16x3";

// The whole table, in a fixed order. "Served" means: with every other served feature, at any world
// size, but for the rows "gradients/…", which say what gradients do not go with. strategy/halo is
// served for every mask: it is the builder that receives exactly the rows that a rank can see, and
// where a mask hides nothing those are all rows.
absl::Span<const Capability> CapabilityTable();

// The features that a request uses, as rows of the table with the path of the first field that asks
// ("spec.masks[2].chunk"). Enum values must be known, and heads that masks name and masks that
// sequences name be there.
std::vector<Capability> FeaturesOf(const AttentionSpec& spec, const Execution& execution);

// OK, or UNIMPLEMENTED / NOT_SERVED with a field violation for every feature used that is not
// served, and their names in metadata "features", separated by commas.
absl::Status CheckServed(const AttentionSpec& spec, const Execution& execution);

// Features of the table that a worker with a GPU does not serve, and why. A worker tells its
// coordinator what it lacks when it registers, and requests that use such are refused at submit.
absl::Span<const Capability> CudaLacks();

// As CheckServed, of the features of `lacks`; their field_path is not asked.
absl::Status CheckNotLacking(absl::Span<const Capability> lacks, const AttentionSpec& spec,
                             const Execution& execution);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_VALIDATE_CAPABILITY_H_
