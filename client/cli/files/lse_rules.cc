#include "client/cli/files/lse_rules.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "annulus/v1/types.pb.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"
#include "proto/wire/convert.h"
#include "proto/wire/sha256.h"

namespace annulus {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxRulesBytes = 1024, kMaxPartBytes = 128;
// A file may have any text. Deeper levels are ignored.
constexpr int kMaxDepth = 16;
constexpr size_t kShownCharacters = 120, kShownOfUnread = 32;
constexpr char kModifiers[] = "modifiers";

std::string TextOf(const v1::AttentionSpec& rules) {
  std::string text;
  return google::protobuf::util::MessageToJsonString(rules, &text).ok() ? text : "";
}

std::string TextOf(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

// Discarded if the text is no JSON object.
Json Read(const std::string& text) {
  const Json::parser_callback_t not_deep = [](int depth, Json::parse_event_t, Json&) {
    return depth < kMaxDepth;
  };
  Json json = Json::parse(text, not_deep, /*allow_exceptions=*/false);
  return json.is_object() ? json : Json(Json::value_t::discarded);
}

std::string DigestOf(const std::string& text) {
  return absl::StrCat("sha256:", absl::BytesToHexString(Sha256(text)));
}

void FoldPart(Json* part) {
  const std::string text = TextOf(*part);
  if (text.size() > kMaxPartBytes) *part = DigestOf(text);
}

Json FoldedParts(Json rules) {
  for (auto& [name, part] : rules.items()) {
    if (name != kModifiers || !part.is_object()) {
      FoldPart(&part);
      continue;
    }
    for (Json& modifier : part) FoldPart(&modifier);
  }
  return rules;
}

std::string Shown(const Json& part) {
  const std::string text = TextOf(part);
  return text.size() <= kShownCharacters ? text : text.substr(0, kShownCharacters) + "…";
}

Json MemberOf(const Json& object, const std::string& name) {
  const auto found = object.find(name);
  return found == object.end() ? Json() : *found;
}

std::set<std::string> NamesOfBoth(const Json& a, const Json& b) {
  std::set<std::string> names;
  for (const Json* each : {&a, &b}) {
    for (const auto& [name, member] : each->items()) names.insert(name);
  }
  return names;
}

bool AreSame(const Json& a, const Json& b) {
  return FoldedParts({{"", a}}) == FoldedParts({{"", b}});
}

// Drops the members that are equal in `other`.
Json WithoutSame(const Json& object, const Json& other) {
  if (!object.is_object() || !other.is_object()) return object;
  Json rest = Json::object();
  for (const auto& [name, member] : object.items()) {
    if (!AreSame(member, MemberOf(other, name))) rest[name] = member;
  }
  return rest;
}

// Appends the differing values, for example "masks [{}]". For lists of equal length, only the first
// element that differs: "masks[2] {}".
void Tell(const std::string& name, const Json& said, const Json& wanted,
          std::vector<std::string>* had, std::vector<std::string>* has) {
  const auto tell = [](const std::string& what, const Json& part, const Json& other) {
    const Json rest = WithoutSame(part, other);
    return rest.empty() ? absl::StrCat("no ", what) : absl::StrCat(what, " ", Shown(rest));
  };
  const std::string printable = absl::Utf8SafeCEscape(name);
  if (said.is_array() && wanted.is_array() && said.size() == wanted.size()) {
    const auto at = std::mismatch(said.begin(), said.end(), wanted.begin()).first - said.begin();
    const std::string place = absl::StrCat(printable, "[", at, "] ");
    had->push_back(place + Shown(said[static_cast<size_t>(at)]));
    has->push_back(place + Shown(wanted[static_cast<size_t>(at)]));
    return;
  }
  had->push_back(tell(printable, said, wanted));
  has->push_back(tell(printable, wanted, said));
}

}  // namespace

std::string LseRulesOf(const AttentionSpec& spec) {
  const v1::AttentionSpec whole = SpecToProto(spec);
  v1::AttentionSpec rules;
  *rules.mutable_sequences() = whole.sequences();
  *rules.mutable_masks() = whole.masks();
  const bool hides_nothing = rules.masks_size() == 1 && rules.masks(0).ByteSizeLong() == 0;
  if (hides_nothing) rules.clear_masks();
  if (whole.has_modifiers()) *rules.mutable_modifiers() = whole.modifiers();
  if (rules.modifiers().has_bias()) rules.mutable_modifiers()->mutable_bias()->Clear();
  return TextOf(rules);
}

std::string OutputRulesOf(const AttentionSpec& spec) {
  v1::AttentionSpec rules;
  const bool drops = spec.dropout.has_value() && spec.dropout->rate > 0;
  if (drops) *rules.mutable_dropout() = SpecToProto(spec).dropout();
  return TextOf(rules);
}

std::string Folded(const std::string& rules) {
  if (rules.size() <= kMaxRulesBytes) return rules;
  const Json json = Read(rules);
  return json.is_object() ? TextOf(FoldedParts(json)) : rules;
}

bool AreSameRules(const std::string& said, const std::string& wanted) {
  if (said == wanted || said == DigestOf(wanted)) return true;
  const Json a = Read(said), b = Read(wanted);
  return a.is_object() && b.is_object() && FoldedParts(a) == FoldedParts(b);
}

std::string RulesDifference(const std::string& said, const std::string& wanted) {
  const Json a = Read(said), b = Read(wanted);
  if (!a.is_object() || !b.is_object()) {
    return absl::StrCat("the forward job had other rules than this one: ",
                        absl::Utf8SafeCEscape(said.substr(0, kShownOfUnread)), "…");
  }
  const Json folded_a = FoldedParts(a), folded_b = FoldedParts(b);
  std::vector<std::string> had, has;
  for (const std::string& name : NamesOfBoth(a, b)) {
    if (MemberOf(folded_a, name) == MemberOf(folded_b, name)) continue;
    Tell(name, MemberOf(a, name), MemberOf(b, name), &had, &has);
  }
  return absl::StrCat("the forward job had ", absl::StrJoin(had, " and "), "; this one has ",
                      absl::StrJoin(has, " and "));
}

std::map<std::string, std::string> PartOfRules(const std::string& rules, const char* part) {
  std::map<std::string, std::string> members;
  const Json json = Read(rules);
  if (!json.is_object()) return members;
  const Json folded = MemberOf(FoldedParts(json), part);
  if (!folded.is_object()) return members;
  for (const auto& [name, member] : folded.items()) members[name] = TextOf(member);
  return members;
}

std::string RulesOfPart(const char* part, const std::map<std::string, std::string>& members) {
  Json rules = Json::object();
  for (const auto& [name, text] : members) {
    rules[part][name] = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  }
  return TextOf(rules);
}

std::string ShortestText(double number) {
  std::string text;
  for (int digits = 6; digits <= 17; ++digits) {
    double read = 0;
    text = absl::StrFormat("%.*g", digits, number);
    if (absl::SimpleAtod(text, &read) && read == number) break;
  }
  return text;
}

}  // namespace annulus
