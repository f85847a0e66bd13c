#include "tools/capabilities/capabilities_page.h"

#include "absl/strings/str_cat.h"
#include "attention/validate/capability.h"

namespace annulus {

std::string CapabilitiesPage() {
  std::string page =
      "# What is served\n\n"
      "The table lists each feature of a request and the field that requests it. Anything else is "
      "refused at submit with `NOT_SERVED`, the field and the reason, before a byte moves.\n"
      "A served feature works together with every other served feature, at any world size. A row "
      "of its own states each exception. `GetServerInfo` gives the same list for a running "
      "service.\n\n"
      "This page is made from the table in `attention/validate/capability.cc` by\n\n"
      "    bazel run //tools/capabilities > docs/reference/capabilities.md\n\n"
      "and a test keeps the two equal.\n\n"
      "| feature | field | served | why not |\n| --- | --- | --- | --- |\n";
  for (const Capability& row : CapabilityTable()) {
    absl::StrAppend(&page, "| ", row.feature, " | `", row.field_path, "` | ",
                    row.served ? "yes" : "no", " | ", row.why_not, row.why_not.empty() ? "" : " ",
                    "|\n");
  }
  absl::StrAppend(
      &page,
      "\n## What options cost\n\n"
      "- Without AMX, a CPU computes all features in the same tiles, forward and backward. Calls "
      "of few rows have paths of their own; modifiers use the tiles.\n"
      "- With AVX512-BF16, each of fourteen options leaves 0.82 or more of the rate of a causal "
      "job without it. Six modifiers at once leave 0.58 or more. The job has 4,096 tokens and 128 "
      "dimensions ([figures](../figures/amd_epyc.md), `tools/bench options`). Dropout, soft cap "
      "and 80 dimensions in bf16 cost most.\n"
      "- With AMX, blocks with modifiers leave the fastest path "
      "([notes](../notes/amx_kernel.md)). The cost is not measured.\n"
      "\n## On GPUs\n\n"
      "Workers with a GPU ([GPU workers](../how-to/gpu-workers.md)) do not serve these features. A "
      "CPU without AMX does not serve bf16x3. Jobs with such a feature go to workers that serve "
      "it. If no ready worker does, the job is refused at submit with the same error, and "
      "`GetServerInfo` lists the feature as not served:\n\n"
      "| feature | field | why not |\n| --- | --- | --- |\n");
  for (const Capability& row : CudaLacks()) {
    absl::StrAppend(&page, "| ", row.feature, " | `", row.field_path, "` | ", row.why_not, " |\n");
  }
  return page;
}

}  // namespace annulus
