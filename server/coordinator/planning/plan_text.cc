#include "server/coordinator/planning/plan_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace annulus {

std::string WayText(const Execution& execution, const Cost& cost) {
  std::string text =
      absl::StrCat(StrategyName(execution.strategy), ", ", LayoutName(execution.layout));
  if (execution.ulysses_degree > 1 && execution.ring_degree > 1) {
    absl::StrAppend(&text, ", ", execution.ulysses_degree, " x ", execution.ring_degree);
  }
  absl::StrAppend(&text, ", ", execution.world_size,
                  execution.world_size == 1 ? " worker" : " workers",
                  absl::StrFormat(": %.3g ms", cost.expected_seconds * 1e3));
  if (cost.bytes_sent.empty()) return text;
  absl::StrAppend(&text, ", at most ", MostBytesSent(cost), " bytes a worker");
  return text;
}

std::string RejectedText(const Candidate& candidate) {
  return absl::StrCat("rejected ", WayText(candidate.execution, candidate.cost), ": ",
                      candidate.rejected);
}

}  // namespace annulus
