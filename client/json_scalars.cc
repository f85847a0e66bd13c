#include "client/json_scalars.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/nearest.h"

namespace annulus {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using Kind = JsonValue::Kind;

constexpr size_t kShownCharacters = 64;  // A text may be anything, and very long.

bool AreDigits(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

// A number without a fraction, or a string of digits. Numbers with a point or an exponent are as
// exact as a double.
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

// "-1.5s", with up to nine digits after the point.
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

// What the value must be; empty where it is.
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

// As a careless writer spells it.
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
  return Nearest(Plain(name), names);
}

}  // namespace annulus
