#include "tools/capabilities/capabilities_page.h"

#include "absl/strings/str_cat.h"
#include "attention/validate/capability.h"

namespace annulus {

std::string CapabilitiesPage() {
  std::string page =
      "# What is served\n\n"
      "What a request may use, and the field that asks for it. Everything else is refused at "
      "submit "
      "with `NOT_SERVED`, the field and the reason, before a byte moves.\n"
      "\"Served\" means: with every other served feature, at any world size, but for what a line "
      "of its own says. `GetServerInfo` tells the same of a running service.\n\n"
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
      "Without AMX a CPU's kernel computes all of this by the same tiles, forward and backward "
      "(calls of few rows have ways of their own, which modifiers leave). By AVX512-BF16, of the "
      "rate of a causal job of 4,096 tokens and 128 dimensions without it, each of fourteen "
      "options left 0.82 or more (dropout, soft cap and 80 dimensions in bf16 are least), six "
      "modifiers at once 0.58 or more ([figures/amd_epyc.md](figures/amd_epyc.md), `tools/bench "
      "options`). By AMX blocks with modifiers leave the fastest way "
      "([notes/amx_kernel.md](notes/amx_kernel.md)); what that costs is not measured.\n"
      "\n## On GPUs\n\n"
      "No worker with a GPU ([gpu.md](gpu.md)) serves these, nor bf16x3 a CPU without "
      "AMX: jobs that use them go to workers that serve them. Where no ready worker "
      "does, they are refused at submit with the same error, and `GetServerInfo` says "
      "that they are not served:\n\n"
      "| feature | field | why not |\n| --- | --- | --- |\n");
  for (const Capability& row : CudaLacks()) {
    absl::StrAppend(&page, "| ", row.feature, " | `", row.field_path, "` | ", row.why_not, " |\n");
  }
  return page;
}

}  // namespace annulus
