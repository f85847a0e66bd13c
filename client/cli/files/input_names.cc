#include "client/cli/files/input_names.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/error.h"

namespace annulus {
namespace {

using Names = std::vector<absl::string_view>;

// A header may have many and long names.
constexpr size_t kShownNames = 8, kShownCharacters = 64;

void Add(const Names& more, Names* names) { names->insert(names->end(), more.begin(), more.end()); }

Names TakenBy(const AttentionSpec& spec) {
  Names names;
  const bool forward = spec.operation == Operation::kForward;
  if (!spec.uses_state()) Add({"q", "k", "v", "bias", "mask", "lse_offset"}, &names);
  if (!forward && !spec.uses_state()) Add({"output", "lse", "lse_rest"}, &names);
  if (!forward) Add({"d_out", "d_lse"}, &names);
  return names;
}

Names PassedOverBy(const AttentionSpec& spec) {
  Names names = {"max_logit", "dq", "dk", "dv", "d_bias", "d_sink"};
  if (spec.uses_state()) Add({"lse_rest"}, &names);
  if (spec.operation != Operation::kForward) return names;
  Add({"output", "lse", "lse_rest", "d_out", "d_lse"}, &names);
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

// Lists some of the names; `count` is the number of all.
std::string ShownNames(const SafetensorsFile& file, const Names& but_not, size_t* count) {
  std::vector<std::string> shown;
  *count = 0;
  for (const SafetensorInfo& info : file.tensors()) {
    if (Has(but_not, info.name)) continue;
    if (++*count <= kShownNames) shown.push_back(Shown(info.name));
  }
  const size_t more = *count - shown.size();
  return absl::StrCat(absl::StrJoin(shown, ", "),
                      more > 0 ? absl::StrCat(" and ", more, " more") : "");
}

// The proper place of tensors with well-known names.
std::string Hint(const SafetensorsFile& file, const Names& known) {
  std::string hint;
  const auto add = [&](absl::string_view name, absl::string_view text) {
    if (!Has(known, name) && file.Find(name) != nullptr) absl::StrAppend(&hint, "; ", name, text);
  };
  for (const absl::string_view name : {"sinks", "sink", "s_aux"}) {
    add(name, ": set modifiers.sinks in --spec instead");
  }
  for (const absl::string_view name : {"alibi_slopes", "slopes"}) {
    add(name, ": set modifiers.alibiSlopes in --spec instead");
  }
  if (Has(known, "mask")) {
    for (const absl::string_view name : {"attn_mask", "attention_mask", "bit_mask"}) {
      add(name, ": a bit mask must be named mask, an additive mask bias");
    }
  }
  return hint;
}

// `whose` names the owner of the tensors, `taker` the reader and what it takes.
absl::Status CheckNames(const SafetensorsFile& file, const Names& known, absl::string_view whose,
                        absl::string_view taker, const std::string& wanted) {
  size_t unknown = 0;
  const std::string names = ShownNames(file, known, &unknown);
  if (unknown == 0) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat(whose, " has ", names, ", but ", taker, Hint(file, known),
                                "; to skip a tensor, name it in --ignore-tensors"),
                   {"UNKNOWN_TENSOR", {{"tensors", names}, {"taken", wanted}}, {}, {}});
}

}  // namespace

absl::Status CheckInputNames(const SafetensorsFile& file, const AttentionSpec& spec) {
  Names known = TakenBy(spec);
  const std::string wanted = absl::StrJoin(known, ", ");
  Add(PassedOverBy(spec), &known);
  return CheckNames(file, known, "the input",
                    absl::StrCat("this job takes only ", wanted,
                                 spec.uses_state() ? ": the kept state has the other inputs" : ""),
                    wanted);
}

absl::Status CheckPartialNames(const SafetensorsFile& file) {
  const AttentionSpec forward;
  Names known = TakenBy(forward);
  Add(PassedOverBy(forward), &known);
  const std::string wanted = "output, lse, lse_rest";
  return CheckNames(file, known, file.path(), absl::StrCat("a merge takes only ", wanted), wanted);
}

absl::Status CheckLeftAside(const std::vector<SafetensorsFile>& files,
                            const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const bool had = std::any_of(files.begin(), files.end(),
                                 [&](const auto& file) { return file.IsLeftAside(name); });
    if (had) continue;
    return InvalidField("MISSING_TENSOR", Shown(name),
                        absl::StrCat("named in --ignore-tensors, but not in ",
                                     files.size() == 1 ? "the file" : "any of the files"));
  }
  return absl::OkStatus();
}

absl::Status MissingTensor(const SafetensorsFile& file, absl::string_view name) {
  if (file.IsLeftAside(name)) {
    return InvalidField("MISSING_TENSOR", name, "is needed, but --ignore-tensors names it");
  }
  size_t count = 0;
  const std::string names = ShownNames(file, {}, &count);
  return InvalidField(
      "MISSING_TENSOR", name,
      absl::StrCat("is not in the file, which has ", count == 0 ? "no tensors" : names));
}

}  // namespace annulus
