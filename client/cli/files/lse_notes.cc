#include "client/cli/files/lse_notes.h"

#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "client/cli/files/lse_rules.h"
#include "client/cli/safetensors/file_error.h"

namespace annulus {
namespace {

constexpr char kOp[] = "op", kBase[] = "lse_base", kLayout[] = "lse_layout", kScale[] = "scale",
               kRules[] = "lse_rules", kOutputRules[] = "output_rules",
               kBf16Partials[] = "bf16_partials";
// Limits texts from a file in messages.
constexpr size_t kShownCharacters = 64;

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
  return InvalidField("LSE_MISMATCH", field,
                      absl::StrCat("the metadata of its file has ", name, " ", Shown(said),
                                   ", not ", Shown(wanted)));
}

absl::Status CheckSaid(const SafetensorsFile& file, absl::string_view field,
                       const std::string& name, const std::string& unsaid,
                       const std::string& wanted) {
  const std::string said = Said(file, name, unsaid);
  return said == wanted ? absl::OkStatus() : Mismatch(field, name, said, wanted);
}

bool IsOfAttend(const SafetensorsFile& file) { return Said(file, kOp, "") == "attend"; }

// `scale` is a common word, so only the notes of attend count.
absl::Status CheckScale(const SafetensorsFile& file, absl::string_view field, double wanted) {
  const std::string said = Said(file, kScale, "");
  double scale = 0;
  if (said.empty() || !IsOfAttend(file)) return absl::OkStatus();
  if (!absl::SimpleAtod(said, &scale)) return Mismatch(field, kScale, said, ShortestText(wanted));
  if (scale == wanted) return absl::OkStatus();
  return Mismatch(field, kScale, ShortestText(scale), ShortestText(wanted));
}

absl::Status CheckRules(const SafetensorsFile& file, absl::string_view field,
                        const std::string& wanted) {
  const std::string said = Said(file, kRules, wanted);
  if (!IsOfAttend(file) || AreSameRules(said, wanted)) return absl::OkStatus();
  const std::string difference = RulesDifference(said, wanted);
  std::vector<absl::string_view> tensors;  // Tensors that appear as a mask or modifier.
  for (const auto& [word, tensor] :
       {std::pair("bitMask", "mask"), {"bias", "bias"}, {"lseOffset", "lse_offset"}}) {
    if (absl::StrContains(difference, word)) tensors.push_back(tensor);
  }
  return InvalidField(
      "LSE_MISMATCH", field,
      absl::StrCat(difference, ". Give the same --mask and --spec",
                   tensors.empty() ? "" : ", and the same ", absl::StrJoin(tensors, ", ")));
}

}  // namespace

SafetensorMetadata NotesOfJob(const AttentionSpec& spec, bool bf16_partials) {
  const std::string scale = ShortestText(spec.scale_or_default());
  if (spec.operation != Operation::kForward) return {{kOp, "gradients"}, {kScale, scale}};
  SafetensorMetadata notes = {{kOp, "attend"},
                              {kScale, scale},
                              {kRules, Folded(LseRulesOf(spec))},
                              {kOutputRules, OutputRulesOf(spec)},
                              {kBase, BaseText(spec.outputs.lse_base)},
                              {kLayout, LayoutText(false)}};
  if (bf16_partials) notes[kBf16Partials] = "true";
  return notes;
}

SafetensorMetadata NotesOfMerge(LseBase base, bool tokens_heads) {
  return {{kOp, "merge"}, {kBase, BaseText(base)}, {kLayout, LayoutText(tokens_heads)}};
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

bool SaysLseBase(const SafetensorsFile& file) { return !Said(file, kBase, "").empty(); }

absl::Status CheckOutputRules(const SafetensorsFile& file, const AttentionSpec& spec) {
  const std::string wanted = OutputRulesOf(spec), said = Said(file, kOutputRules, wanted);
  if (!IsOfAttend(file) || AreSameRules(said, wanted)) return absl::OkStatus();
  return InvalidField("OUTPUT_MISMATCH", "output",
                      absl::StrCat(RulesDifference(said, wanted), ". Give the same --spec"));
}

bool MayBeOfBf16Partials(const SafetensorsFile& file) {
  const bool says = IsOfAttend(file) && !Said(file, kOutputRules, "").empty();
  return !says || Said(file, kBf16Partials, "") == "true";
}

absl::Status PartNotes::Take(const SafetensorsFile& file) {
  const std::string op = Said(file, kOp, "");
  if (op != "attend" && op != "merge") return absl::OkStatus();
  std::map<std::string, std::string> rules = PartOfRules(Said(file, kRules, ""), "modifiers");
  for (const char* each : {"bias", "lseOffset"}) rules.erase(each);
  const auto sinks = rules.find("sinks");
  if (sinks != rules.end()) {
    if (!sinks_.text.empty()) {
      return InvalidField(
          "LSE_MISMATCH", "lse",
          absl::StrCat("both its job and that of ", sinks_.path,
                       " had sinks, which would count twice. Give sinks to only one of the jobs"));
    }
    sinks_ = {sinks->second, file.path()};
    rules.erase(sinks);
  }
  double scale = 0;
  if (absl::SimpleAtod(Said(file, kScale, ""), &scale)) {
    RETURN_IF_ERROR(Compare(kScale, {{kScale, ShortestText(scale)}}, file.path()));
  }
  // A text that is no JSON, for example a digest of all rules, does not show the modifiers.
  if (absl::StartsWith(Said(file, kRules, ""), "{")) {
    RETURN_IF_ERROR(Compare("modifiers", rules, file.path()));
  }
  if (Said(file, kOutputRules, "").empty()) return absl::OkStatus();
  std::map<std::string, std::string> dropout = PartOfRules(Said(file, kOutputRules, ""), "dropout");
  // Dropout counts positions from the first key of each partial, so the seeds may differ.
  dropout.erase("seed");
  return Compare("dropout", dropout, file.path());
}

absl::Status PartNotes::Compare(const char* part, const std::map<std::string, std::string>& members,
                                const std::string& path) {
  const auto [first, is_first] = first_.emplace(part, Part{members, path});
  const std::map<std::string, std::string>& others = first->second.members;
  if (is_first || members == others) return absl::OkStatus();
  std::map<std::string, std::string> all = members;
  all.insert(others.begin(), others.end());
  for (const auto& [name, member] : all) {
    const auto of = [name = name, part](const std::map<std::string, std::string>& said) {
      const std::string what = name == part ? name : absl::StrCat(part, ".", name);
      const auto found = said.find(name);
      return found == said.end()
                 ? absl::StrCat("no ", Shown(what))
                 : absl::StrCat(Shown(what), " ", found->second.substr(0, kShownCharacters));
    };
    if (of(members) == of(others)) continue;
    return InvalidField(
        "LSE_MISMATCH", "lse",
        absl::StrCat("its job had ", of(members), ", but that of ", first->second.path, " had ",
                     of(others), ": these are not partials of the same attention"));
  }
  return absl::OkStatus();
}

void PartNotes::AddTo(SafetensorMetadata* notes) const {
  const auto scale = first_.find(kScale), modifiers = first_.find("modifiers"),
             dropout = first_.find("dropout");
  if (scale != first_.end()) (*notes)[kScale] = scale->second.members.at(kScale);
  if (modifiers != first_.end()) {
    std::map<std::string, std::string> all = modifiers->second.members;
    if (!sinks_.text.empty()) all["sinks"] = sinks_.text;
    (*notes)[kRules] = RulesOfPart("modifiers", all);
  }
  if (dropout != first_.end()) {
    (*notes)[kOutputRules] = RulesOfPart("dropout", dropout->second.members);
  }
}

absl::StatusOr<SafetensorMetadata> SharedNotes(const std::vector<SafetensorsFile>& files) {
  SafetensorMetadata shared = files[0].metadata();
  for (size_t i = 1; i < files.size(); ++i) {
    const std::string place = absl::StrCat("files[", i, "]");
    for (const auto& [name, unsaid] : {std::pair(kBase, "e"), std::pair(kLayout, "heads-tokens")}) {
      if (files[i].Find("lse") == nullptr) continue;
      const absl::Status alike =
          CheckSaid(files[i], "lse", name, unsaid, Said(files[0], name, unsaid));
      RETURN_IF_ERROR(InFile(files[i].path(), alike, place));
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
