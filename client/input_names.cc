#include "client/input_names.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "attention/error.h"

namespace annulus {
namespace {

using Names = std::vector<absl::string_view>;

// A header may hold anything, and very much of it.
constexpr size_t kShownNames = 8, kShownCharacters = 64;

void Add(const Names& more, Names* names) { names->insert(names->end(), more.begin(), more.end()); }

Names TakenBy(const AttentionSpec& spec) {
  Names names;
  const bool forward = spec.operation == Operation::kForward;
  if (!spec.uses_state()) Add({"q", "k", "v", "bias", "mask", "lse_offset"}, &names);
  if (!forward && !spec.uses_state()) Add({"output", "lse"}, &names);
  if (!forward) Add({"d_out", "d_lse"}, &names);
  return names;
}

Names PassedOverBy(const AttentionSpec& spec) {
  Names names = {"lse_rest", "max_logit", "dq", "dk", "dv", "d_bias", "d_sink"};
  if (spec.operation != Operation::kForward) return names;
  Add({"output", "lse", "d_out", "d_lse"}, &names);
  Add({"full_output", "full_lse", "causal_output", "causal_lse"}, &names);
  return names;
}

bool Has(const Names& names, absl::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string Shown(absl::string_view name) {
  const bool cut = name.size() > kShownCharacters;
  return absl::StrCat(absl::Utf8SafeCEscape(name.substr(0, kShownCharacters)), cut ? "…" : "");
}

// `whose` is what has the names, `taker` who takes which.
absl::Status CheckNames(const SafetensorsFile& file, const Names& known, absl::string_view whose,
                        absl::string_view taker, const std::string& wanted) {
  std::vector<std::string> shown;
  size_t unknown = 0;
  for (const SafetensorInfo& info : file.tensors()) {
    if (Has(known, info.name)) continue;
    if (++unknown <= kShownNames) shown.push_back(Shown(info.name));
  }
  if (unknown == 0) return absl::OkStatus();
  std::string names = absl::StrJoin(shown, ", ");
  if (unknown > kShownNames) absl::StrAppend(&names, " and ", unknown - kShownNames, " more");
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat(whose, " has ", names, ", and ", taker,
                                "; --ignore-tensors leaves tensors aside"),
                   {"UNKNOWN_TENSOR", {{"tensors", names}, {"taken", wanted}}, {}, {}});
}

}  // namespace

absl::Status CheckInputNames(const SafetensorsFile& file, const AttentionSpec& spec) {
  Names known = TakenBy(spec);
  const std::string wanted = absl::StrJoin(known, ", ");
  Add(PassedOverBy(spec), &known);
  return CheckNames(
      file, known, "the input",
      absl::StrCat("this job takes ", wanted, spec.uses_state() ? ": the state has the rest" : ""),
      wanted);
}

absl::Status CheckPartialNames(const SafetensorsFile& file, const std::string& path) {
  const AttentionSpec forward;
  Names known = TakenBy(forward);
  Add(PassedOverBy(forward), &known);
  const std::string wanted = "output, lse, lse_rest";
  return CheckNames(file, known, path, absl::StrCat("a merge takes ", wanted), wanted);
}

}  // namespace annulus
