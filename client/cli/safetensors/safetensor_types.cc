#include "client/cli/safetensors/safetensor_types.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "absl/strings/ascii.h"

namespace annulus {
namespace {

constexpr int64_t kBitsPerByte = 8;
constexpr size_t kMaxNameCharacters = 32;

}  // namespace

int64_t SafetensorElementBits(absl::string_view dtype) {
  static const std::map<absl::string_view, int64_t> kBits = {
      {"F64", 64},        {"F32", 32},        {"F16", 16},    {"BF16", 16},   {"C64", 64},
      {"I64", 64},        {"I32", 32},        {"I16", 16},    {"I8", 8},      {"U64", 64},
      {"U32", 32},        {"U16", 16},        {"U8", 8},      {"BOOL", 8},    {"F8_E4M3", 8},
      {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F6_E2M3", 6},
      {"F6_E3M2", 6},     {"F4", 4}};
  const auto found = kBits.find(dtype);
  return found == kBits.end() ? 0 : found->second;
}

int64_t SafetensorElementBytes(absl::string_view dtype) {
  const int64_t bits = SafetensorElementBits(dtype);
  return bits % kBitsPerByte == 0 ? bits / kBitsPerByte : 0;
}

bool MayBeSafetensorType(absl::string_view dtype) {
  const auto fits = [](char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.';
  };
  return !dtype.empty() && dtype.size() <= kMaxNameCharacters &&
         std::all_of(dtype.begin(), dtype.end(), fits);
}

}  // namespace annulus
