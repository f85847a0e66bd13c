#include "client/cli/files/spec_json.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/error.h"
#include "base/escape_for_terminal.h"
#include "base/suggest_name.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"

namespace annulus {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using Kind = JsonValue::Kind;

// A text may be very long.
constexpr size_t kShownCharacters = 64;

bool AreDigits(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

// True for an integer in the range of Int, as a number or a string of digits. A number with a point
// or an exponent must be exact in a double.
template <typename Int>
bool IsWhole(const JsonValue& value) {
  absl::string_view digits = value.text;
  if (!digits.empty() && digits.front() == '-') digits.remove_prefix(1);
  Int whole = 0;
  if (AreDigits(digits)) return absl::SimpleAtoi(value.text, &whole);
  constexpr double kExact = int64_t{1} << std::numeric_limits<double>::digits;
  double number = 0;
  return value.kind == Kind::kNumber && absl::SimpleAtod(value.text, &number) &&
         std::trunc(number) == number && std::abs(number) < kExact &&
         number >= static_cast<double>(std::numeric_limits<Int>::min()) &&
         number <= static_cast<double>(std::numeric_limits<Int>::max());
}

template <typename Int>
std::string FaultOfWhole(const JsonValue& value) {
  if ((value.kind == Kind::kNumber || value.kind == Kind::kString) && IsWhole<Int>(value))
    return "";
  return absl::StrCat("a whole number, ", std::numeric_limits<Int>::min(), " to ",
                      std::numeric_limits<Int>::max());
}

std::string FaultOfReal(const JsonValue& value, double largest) {
  const std::string& text = value.text;
  double number = 0;
  if (value.kind == Kind::kString && (text == "NaN" || text == "Infinity" || text == "-Infinity"))
    return "";
  const bool plain = text.find_first_not_of("0123456789+-.eE") == std::string::npos;
  if ((value.kind == Kind::kNumber || value.kind == Kind::kString) && plain &&
      absl::SimpleAtod(text, &number) && std::abs(number) <= largest) {
    return "";
  }
  return absl::StrCat("a number, ", -largest, " to ", largest);
}

std::string FaultOfEnum(const EnumDescriptor& type, const JsonValue& value) {
  if (value.kind == Kind::kString && type.FindValueByName(value.text) != nullptr) return "";
  if (value.kind == Kind::kNumber && IsWhole<int32_t>(value)) return "";
  std::string names = "one of ";
  for (int i = 0; i < type.value_count(); ++i) {
    absl::StrAppend(&names, i == 0 ? "" : ", ", type.value(i)->name());
  }
  return names;
}

// For example "-1.5s", with at most nine digits after the point.
bool IsDuration(absl::string_view text) {
  if (text.empty() || text.back() != 's') return false;
  text.remove_suffix(1);
  if (!text.empty() && text.front() == '-') text.remove_prefix(1);
  const size_t point = text.find('.');
  if (point == absl::string_view::npos) return AreDigits(text);
  const absl::string_view fraction = text.substr(point + 1);
  return AreDigits(text.substr(0, point)) && AreDigits(fraction) && fraction.size() <= 9;
}

std::string FaultOfMessage(const FieldDescriptor& field, const JsonValue& value) {
  if (field.message_type()->full_name() != "google.protobuf.Duration") {
    return value.kind == Kind::kObject ? "" : "an object, in { }";
  }
  const bool right = value.kind == Kind::kString && IsDuration(value.text);
  return right ? "" : "a time in seconds such as \"300s\"";
}

// The description of the allowed values; empty if `value` is allowed.
std::string Wanted(const FieldDescriptor& field, const JsonValue& value) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return value.kind == Kind::kBool ? "" : "true or false, without quotes";
    case FieldDescriptor::CPPTYPE_INT32:
      return FaultOfWhole<int32_t>(value);
    case FieldDescriptor::CPPTYPE_INT64:
      return FaultOfWhole<int64_t>(value);
    case FieldDescriptor::CPPTYPE_UINT32:
      return FaultOfWhole<uint32_t>(value);
    case FieldDescriptor::CPPTYPE_UINT64:
      return FaultOfWhole<uint64_t>(value);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return FaultOfReal(value, std::numeric_limits<float>::max());
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return FaultOfReal(value, std::numeric_limits<double>::max());
    case FieldDescriptor::CPPTYPE_ENUM:
      return FaultOfEnum(*field.enum_type(), value);
    case FieldDescriptor::CPPTYPE_STRING:
      return value.kind == Kind::kString ? "" : "a string";
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return FaultOfMessage(field, value);
  }
  return "";
}

// The name without case, underscores and hyphens.
std::string Plain(absl::string_view name) {
  return absl::AsciiStrToLower(absl::StrReplaceAll(name, {{"_", ""}, {"-", ""}}));
}

}  // namespace

std::string ShownJson(const JsonValue& value) {
  switch (value.kind) {
    case Kind::kNull:
      return "null";
    case Kind::kList:
      return "a list";
    case Kind::kObject:
      return "an object";
    default:
      break;
  }
  const bool cut = value.text.size() > kShownCharacters;
  const std::string text =
      absl::StrCat(absl::Utf8SafeCEscape(value.text.substr(0, kShownCharacters)), cut ? "…" : "");
  return value.kind == Kind::kString ? absl::StrCat("\"", text, "\"") : text;
}

std::string FaultOfValue(const FieldDescriptor& field, const JsonValue& value) {
  const std::string wanted = Wanted(field, value);
  if (wanted.empty()) return "";
  return absl::StrCat("is ", ShownJson(value), ", but must be ", wanted);
}

std::string NearestField(const google::protobuf::Descriptor& message, absl::string_view name) {
  std::vector<std::string> names;
  for (int i = 0; i < message.field_count(); ++i) names.push_back(message.field(i)->json_name());
  return SuggestName(Plain(name), names);
}

namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::OneofDescriptor;
using Json = nlohmann::json;
using Kind = JsonValue::Kind;

// The maximum number of bytes shown of a text that is no JSON, at the fault and before it.
constexpr size_t kShown = 24;

const FieldDescriptor* FindField(const Descriptor& message, const std::string& name) {
  const FieldDescriptor* const field = message.FindFieldByName(name);
  if (field != nullptr) return field;
  const FieldDescriptor* const camel = message.FindFieldByCamelcaseName(name);
  return camel != nullptr && camel->json_name() == name ? camel : nullptr;
}

std::string FieldNames(const Descriptor& message) {
  std::string names;
  for (int i = 0; i < message.field_count(); ++i) {
    absl::StrAppend(&names, i == 0 ? "" : ", ", message.field(i)->json_name());
  }
  return names;
}

// Follows the JSON parser and checks each value against the message. Stores no text.
class Walk : public nlohmann::json_sax<Json> {
 public:
  Walk(absl::string_view text, const Descriptor& message) : text_(text), message_(message) {}

  bool null() override { return Take({Kind::kNull, ""}); }
  bool boolean(bool value) override { return Take({Kind::kBool, value ? "true" : "false"}); }
  bool number_integer(int64_t value) override { return Take({Kind::kNumber, absl::StrCat(value)}); }
  bool number_unsigned(uint64_t value) override {
    return Take({Kind::kNumber, absl::StrCat(value)});
  }
  bool number_float(double, const std::string& text) override {
    return Take({Kind::kNumber, text});
  }
  bool string(std::string& text) override { return Take({Kind::kString, std::move(text)}); }
  bool binary(Json::binary_t&) override { return false; }
  bool start_object(size_t) override {
    const FieldDescriptor* const field = open_.empty() ? nullptr : open_.back().field;
    if (!Take({Kind::kObject, ""})) return false;
    open_.push_back({field == nullptr ? &message_ : field->message_type(), nullptr, {}, {}, -1});
    return true;
  }
  bool key(std::string& name) override;
  bool end_object() override { return Close(); }
  bool start_array(size_t) override {
    if (!Take({Kind::kList, ""})) return false;
    open_.push_back({nullptr, open_.back().field, {}, {}, -1});
    return true;
  }
  bool end_array() override { return Close(); }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override;

  const std::optional<JsonFault>& fault() const { return fault_; }

 private:
  // An object, or the list of a repeated field.
  struct Open {
    const Descriptor* message;     // Null for a list.
    const FieldDescriptor* field;  // The field whose value comes next.
    std::set<const FieldDescriptor*> named;
    std::map<const OneofDescriptor*, const FieldDescriptor*> said;
    int64_t index;  // The index of the last element of a list.
  };

  bool Take(const JsonValue& value);
  std::string FaultInField(const JsonValue& value);
  std::string FaultInList(const JsonValue& value);
  std::string Path() const;
  bool Close() {
    open_.pop_back();
    if (!open_.empty() && open_.back().message != nullptr) open_.back().field = nullptr;
    return true;
  }
  bool Say(std::string path, std::string what) {
    fault_ = JsonFault{std::move(path), std::move(what)};
    return false;
  }

  const absl::string_view text_;
  const Descriptor& message_;
  std::vector<Open> open_;
  std::optional<JsonFault> fault_;
};

std::string Walk::Path() const {
  std::string path;
  for (const Open& open : open_) {
    if (open.message == nullptr) {
      absl::StrAppend(&path, "[", open.index, "]");
    } else if (open.field != nullptr) {
      absl::StrAppend(&path, path.empty() ? "" : ".", open.field->name());
    }
  }
  return path;
}

bool Walk::key(std::string& name) {
  Open& open = open_.back();
  open.field = nullptr;
  const FieldDescriptor* const field = FindField(*open.message, name);
  if (field == nullptr) {
    const std::string nearest = NearestField(*open.message, name);
    return Say(Path(),
               absl::StrCat("has no field ", ShownJson({Kind::kString, name}), "; ",
                            nearest.empty() ? absl::StrCat("it has ", FieldNames(*open.message))
                                            : absl::StrCat("did you mean \"", nearest, "\"?")));
  }
  if (!open.named.insert(field).second) {
    return Say(Path(), absl::StrCat("has the field \"", field->json_name(), "\" twice"));
  }
  open.field = field;
  return true;
}

bool Walk::Take(const JsonValue& value) {
  if (open_.empty()) {
    return value.kind == Kind::kObject ||
           Say("", absl::StrCat("is ", ShownJson(value), ", but must be an object, in { }"));
  }
  const bool in_list = open_.back().message == nullptr;
  if (in_list) ++open_.back().index;
  std::string what = in_list ? FaultInList(value) : FaultInField(value);
  return what.empty() || Say(Path(), std::move(what));
}

std::string Walk::FaultInField(const JsonValue& value) {
  Open& open = open_.back();
  if (value.kind == Kind::kNull) return "";
  const OneofDescriptor* const one = open.field->real_containing_oneof();
  if (one != nullptr) {
    const auto [said, first] = open.said.emplace(one, open.field);
    if (!first) return absl::StrCat("cannot be set together with ", said->second->name());
  }
  if (!open.field->is_repeated()) return FaultOfValue(*open.field, value);
  if (value.kind == Kind::kList) return "";
  return absl::StrCat("is ", ShownJson(value), ", but must be a list, in [ ]");
}

std::string Walk::FaultInList(const JsonValue& value) {
  if (value.kind == Kind::kNull) return "is null, but an element of a list cannot be null";
  return FaultOfValue(*open_.back().field, value);
}

// True for a continuation byte of UTF-8.
bool IsInCharacter(char c) { return (c & 0xC0) == 0x80; }

// Line and column of the n-th byte, counted from 1, in characters.
std::string PlaceOf(absl::string_view text, size_t n) {
  const absl::string_view before = text.substr(0, n);
  const size_t line = before.rfind('\n') == absl::string_view::npos ? 0 : before.rfind('\n') + 1;
  const auto column =
      std::count_if(before.begin() + line, before.end(), [](char c) { return !IsInCharacter(c); });
  return absl::StrCat("line ", 1 + std::count(before.begin(), before.end(), '\n'), ", column ",
                      1 + column);
}

// The end of the text before the n-th byte, at most one line.
std::string ShownBefore(absl::string_view text, size_t n) {
  absl::string_view before = text.substr(0, n);
  const size_t last = before.find_last_not_of(" \t\r\n");
  if (last == absl::string_view::npos) return "";
  before = before.substr(0, last + 1);
  const size_t line = before.rfind('\n');
  if (line != absl::string_view::npos) before.remove_prefix(line + 1);
  if (before.size() > kShown) before.remove_prefix(before.size() - kShown);
  while (!before.empty() && IsInCharacter(before.front())) before.remove_prefix(1);
  return absl::StrCat(" after '", EscapeForTerminal(before), "'");
}

bool IsOfWord(char c) { return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '+'; }

bool Walk::parse_error(size_t position, const std::string&,
                       const nlohmann::detail::exception& error) {
  constexpr int kNumberTooLarge = 406;
  // The last byte that was read. Its word may have begun earlier.
  size_t begin = std::min(std::max<size_t>(position, 1) - 1, text_.size());
  size_t end = std::min(begin + 1, text_.size());
  if (begin < end && IsOfWord(text_[begin])) {
    while (begin > 0 && IsOfWord(text_[begin - 1])) --begin;
  }
  while (end < text_.size() && IsInCharacter(text_[end])) ++end;
  const std::string at =
      absl::StrCat("'", EscapeForTerminal(text_.substr(begin, std::min(end - begin, kShown))), "'");
  std::string what = absl::StrCat(PlaceOf(text_, begin), ": ");
  if (begin == text_.size()) {
    absl::StrAppend(&what, "the text ends");
  } else if (error.id == kNumberTooLarge) {
    absl::StrAppend(&what, "a number outside the range of a double, ", at);
  } else {
    absl::StrAppend(&what, "unexpected ", at);
  }
  fault_ = JsonFault{std::nullopt, absl::StrCat(what, ShownBefore(text_, begin))};
  return false;
}

}  // namespace

std::optional<JsonFault> FaultOfProtoJson(absl::string_view text, const Descriptor& message) {
  Walk walk(text, message);
  Json::sax_parse(text.begin(), text.end(), &walk);
  return walk.fault();
}

namespace {

absl::Status Bad(absl::string_view file, const JsonFault& fault) {
  ErrorDetail detail{"BAD_SPEC", {{"file", std::string(file)}}, {}, {}};
  if (!fault.path.has_value()) {
    return MakeError(absl::StatusCode::kInvalidArgument, absl::StrCat(file, ": ", fault.what),
                     detail);
  }
  const std::string& path = *fault.path;
  detail.fields.push_back({absl::StrCat("spec", path.empty() ? "" : ".", path), fault.what});
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat(file, ": ", path.empty() ? "the spec" : path, " ", fault.what),
                   detail);
}

}  // namespace

absl::Status ParseRequest(absl::string_view json, google::protobuf::Message* request) {
  const auto bad = [](absl::string_view path, const std::string& what) {
    ErrorDetail detail{"BAD_REQUEST", {}, {}, {}};
    if (!path.empty()) detail.fields.push_back({std::string(path), what});
    return MakeError(absl::StatusCode::kInvalidArgument,
                     absl::StrCat(path.empty() ? "the request" : path, " ", what), detail);
  };
  if (const auto fault = FaultOfProtoJson(json, *request->GetDescriptor()); fault.has_value()) {
    return bad(fault->path.value_or(""), fault->what);
  }
  const auto status =
      google::protobuf::util::JsonStringToMessage({json.data(), json.size()}, request);
  return status.ok() ? absl::OkStatus() : bad("", std::string(status.message()));
}

absl::StatusOr<v1::AttentionSpec> ParseSpec(absl::string_view json, absl::string_view file) {
  absl::ConsumePrefix(&json, "\xEF\xBB\xBF");
  const std::optional<JsonFault> fault = FaultOfProtoJson(json, *v1::AttentionSpec::descriptor());
  if (fault.has_value()) return Bad(file, *fault);
  v1::AttentionSpec spec;
  const auto status =
      google::protobuf::util::JsonStringToMessage({json.data(), json.size()}, &spec);
  if (!status.ok()) return Bad(file, {std::nullopt, std::string(status.message())});
  return spec;
}

}  // namespace annulus
