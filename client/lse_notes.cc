#include "client/lse_notes.h"

#include <iterator>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "attention/error.h"
#include "attention/status_macros.h"

namespace annulus {
namespace {

constexpr char kOp[] = "op", kBase[] = "lse_base", kLayout[] = "lse_layout", kScale[] = "scale";
constexpr size_t kShownCharacters = 64;  // Of what a file says, which may be anything.

std::string BaseText(LseBase base) { return base == LseBase::k2 ? "2" : "e"; }
std::string LayoutText(bool tokens_heads) { return tokens_heads ? "tokens-heads" : "heads-tokens"; }

std::string Said(const SafetensorsFile& file, const std::string& name, const std::string& unsaid) {
  const auto found = file.metadata().find(name);
  return found == file.metadata().end() ? unsaid : found->second;
}

absl::Status Mismatch(absl::string_view field, const std::string& name, const std::string& said,
                      const std::string& wanted) {
  return InvalidField(
      "LSE_MISMATCH", field,
      absl::StrCat("its file says ", name, " ",
                   absl::Utf8SafeCEscape(said.substr(0, kShownCharacters)), ", not ", wanted));
}

absl::Status CheckSaid(const SafetensorsFile& file, absl::string_view field,
                       const std::string& name, const std::string& unsaid,
                       const std::string& wanted) {
  const std::string said = Said(file, name, unsaid);
  return said == wanted ? absl::OkStatus() : Mismatch(field, name, said, wanted);
}

// `scale` is a common word: only what our own jobs say of it counts.
absl::Status CheckScale(const SafetensorsFile& file, absl::string_view field, double wanted) {
  const std::string said = Said(file, kScale, "");
  double scale = 0;
  if (said.empty() || Said(file, kOp, "") != "attend") return absl::OkStatus();
  if (absl::SimpleAtod(said, &scale) && scale == wanted) return absl::OkStatus();
  return Mismatch(field, kScale, said, absl::StrFormat("%.17g", wanted));
}

}  // namespace

SafetensorMetadata NotesOfJob(const AttentionSpec& spec) {
  const std::string scale = absl::StrFormat("%.17g", spec.scale_or_default());
  if (spec.operation != Operation::kForward) return {{kOp, "gradients"}, {kScale, scale}};
  return {{kOp, "attend"},
          {kScale, scale},
          {kBase, BaseText(spec.outputs.lse_base)},
          {kLayout, LayoutText(false)}};
}

SafetensorMetadata NotesOfMerge(LseBase base, bool tokens_heads) {
  return {{kOp, "merge"}, {kBase, BaseText(base)}, {kLayout, LayoutText(tokens_heads)}};
}

std::optional<double> ScaleSaid(const SafetensorsFile& file) {
  double scale = 0;
  if (Said(file, kOp, "") != "attend") return std::nullopt;
  return absl::SimpleAtod(Said(file, kScale, ""), &scale) ? std::optional(scale) : std::nullopt;
}

absl::Status CheckLse(const SafetensorsFile& file, absl::string_view field, const LseForm& form) {
  if (file.Find("lse") == nullptr) return absl::OkStatus();
  if (form.base.has_value()) {
    const std::string wanted = BaseText(*form.base);
    RETURN_IF_ERROR(CheckSaid(file, field, kBase, wanted, wanted));
  }
  if (form.tokens_heads.has_value()) {
    const std::string wanted = LayoutText(*form.tokens_heads);
    RETURN_IF_ERROR(CheckSaid(file, field, kLayout, wanted, wanted));
  }
  if (form.scale.has_value()) RETURN_IF_ERROR(CheckScale(file, field, *form.scale));
  return absl::OkStatus();
}

absl::StatusOr<SafetensorMetadata> SharedNotes(const std::vector<SafetensorsFile>& files) {
  SafetensorMetadata shared = files[0].metadata();
  for (size_t i = 1; i < files.size(); ++i) {
    const std::string field = absl::StrCat("files[", i, "].lse");
    for (const auto& [name, unsaid] : {std::pair(kBase, "e"), std::pair(kLayout, "heads-tokens")}) {
      if (files[i].Find("lse") == nullptr) continue;
      RETURN_IF_ERROR(CheckSaid(files[i], field, name, unsaid, Said(files[0], name, unsaid)));
    }
    for (auto note = shared.begin(); note != shared.end();) {
      const auto found = files[i].metadata().find(note->first);
      const bool alike = found != files[i].metadata().end() && found->second == note->second;
      note = alike ? std::next(note) : shared.erase(note);
    }
  }
  return shared;
}

}  // namespace annulus
