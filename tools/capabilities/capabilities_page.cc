#include "tools/capabilities/capabilities_page.h"

#include "absl/strings/str_cat.h"
#include "attention/capability.h"

namespace annulus {

std::string CapabilitiesPage() {
  std::string page =
      "# What is served\n\n"
      "What a request may use, and the field that asks for it. Everything else is refused at "
      "submit "
      "with `NOT_SERVED`, the field and the reason, before a byte moves.\n"
      "\"Served\" means: with every other served feature, at any world size, but for what a line "
      "of its own says. `GetServerInfo` tells the same of a running service.\n\n"
      "This page is made from the table in `attention/capability.cc` by\n\n"
      "    bazel run //tools/capabilities > docs/capabilities.md\n\n"
      "and a test keeps the two equal.\n\n"
      "| feature | field | served | why not |\n| --- | --- | --- | --- |\n";
  for (const Capability& row : CapabilityTable()) {
    absl::StrAppend(&page, "| ", row.feature, " | `", row.field_path, "` | ",
                    row.served ? "yes" : "no", " | ", row.why_not, row.why_not.empty() ? "" : " ",
                    "|\n");
  }
  absl::StrAppend(&page,
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
