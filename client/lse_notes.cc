#include "client/lse_notes.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "annulus/v1/types.pb.h"
#include "attention/error.h"
#include "attention/status_macros.h"
#include "google/protobuf/util/json_util.h"
#include "proto/convert.h"
#include "proto/sha256.h"

namespace annulus {
namespace {

constexpr char kOp[] = "op", kBase[] = "lse_base", kLayout[] = "lse_layout", kScale[] = "scale",
               kRules[] = "lse_rules";
constexpr size_t kMaxRulesBytes = 1024;
constexpr std::ptrdiff_t kShownBefore = 16;
constexpr size_t kShownCharacters = 64;  // Of what a file says, which may be anything.

std::string BaseText(LseBase base) { return base == LseBase::k2 ? "2" : "e"; }
std::string LayoutText(bool tokens_heads) { return tokens_heads ? "tokens-heads" : "heads-tokens"; }

std::string Said(const SafetensorsFile& file, const std::string& name, const std::string& unsaid) {
  const auto found = file.metadata().find(name);
  return found == file.metadata().end() ? unsaid : found->second;
}

std::string Shown(const std::string& text) {
  return absl::Utf8SafeCEscape(text.substr(0, kShownCharacters));
}

absl::Status Mismatch(absl::string_view field, const std::string& name, const std::string& said,
                      const std::string& wanted) {
  return InvalidField(
      "LSE_MISMATCH", field,
      absl::StrCat("its file says ", name, " ", Shown(said), ", not ", Shown(wanted)));
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

// The beginnings of two texts differ often enough in nothing: each from a little before the first
// character that does.
absl::Status CheckRules(const SafetensorsFile& file, absl::string_view field,
                        const std::string& wanted) {
  const std::string said = Said(file, kRules, wanted);
  if (said == wanted || Said(file, kOp, "") != "attend") return absl::OkStatus();
  const auto differ =
      std::mismatch(said.begin(), said.end(), wanted.begin(), wanted.end()).first - said.begin();
  const size_t begin = differ < kShownBefore ? 0 : static_cast<size_t>(differ - kShownBefore);
  const std::string dots = begin == 0 ? "" : "…";
  return Mismatch(field, kRules, dots + said.substr(begin), dots + wanted.substr(begin));
}

}  // namespace

SafetensorMetadata NotesOfJob(const AttentionSpec& spec) {
  const std::string scale = absl::StrFormat("%.17g", spec.scale_or_default());
  if (spec.operation != Operation::kForward) return {{kOp, "gradients"}, {kScale, scale}};
  return {{kOp, "attend"},
          {kScale, scale},
          {kRules, LseRulesOf(spec)},
          {kBase, BaseText(spec.outputs.lse_base)},
          {kLayout, LayoutText(false)}};
}

std::string LseRulesOf(const AttentionSpec& spec) {
  const v1::AttentionSpec whole = SpecToProto(spec);
  v1::AttentionSpec rules;
  *rules.mutable_sequences() = whole.sequences();
  *rules.mutable_masks() = whole.masks();
  const bool hides_nothing = rules.masks_size() == 1 && rules.masks(0).ByteSizeLong() == 0;
  if (hides_nothing) rules.clear_masks();
  if (whole.has_modifiers()) *rules.mutable_modifiers() = whole.modifiers();
  if (rules.modifiers().has_bias()) rules.mutable_modifiers()->mutable_bias()->Clear();
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(rules, &text).ok()) return "";
  return text.size() <= kMaxRulesBytes
             ? text
             : absl::StrCat("sha256:", absl::BytesToHexString(Sha256(text)));
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
  if (form.rules.has_value()) RETURN_IF_ERROR(CheckRules(file, field, *form.rules));
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
