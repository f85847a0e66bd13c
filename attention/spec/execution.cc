#include "attention/spec/execution.h"

#include <cstddef>
#include <iterator>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"

namespace annulus {
namespace {

// Names in the order of the enums.
constexpr absl::string_view kStrategyNames[] = {
    "auto",    "ring-pass-kv", "all-gather-kv", "rotate-kv", "ring-pass-q",
    "ulysses", "ulysses-ring", "double-ring",   "tree",      "halo"};
constexpr absl::string_view kLayoutNames[] = {"auto",    "contiguous", "zigzag",
                                              "striped", "by-area",    "zigzag-per-sequence"};
constexpr absl::string_view kHeadDealNames[] = {"auto", "whole-heads", "units"};
static_assert(std::size(kStrategyNames) == static_cast<size_t>(kLastStrategy) + 1);
static_assert(std::size(kLayoutNames) == static_cast<size_t>(kLastLayout) + 1);
static_assert(std::size(kHeadDealNames) == static_cast<size_t>(kLastHeadAssignment) + 1);

template <size_t n>
absl::string_view NameAt(const absl::string_view (&names)[n], size_t index) {
  return index < n ? names[index] : absl::string_view("unknown");
}

template <typename Enum, size_t n>
std::optional<Enum> Find(const absl::string_view (&names)[n], absl::string_view name) {
  const std::string wanted = absl::StrReplaceAll(absl::AsciiStrToLower(name), {{"_", "-"}});
  for (size_t i = 0; i < n; ++i) {
    if (names[i] == wanted) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace

absl::string_view StrategyName(Strategy strategy) {
  return NameAt(kStrategyNames, static_cast<size_t>(strategy));
}

absl::string_view LayoutName(Layout layout) {
  return NameAt(kLayoutNames, static_cast<size_t>(layout));
}

absl::string_view HeadDealName(HeadAssignment deal) {
  return NameAt(kHeadDealNames, static_cast<size_t>(deal));
}

std::optional<Strategy> ParseStrategy(absl::string_view name) {
  return Find<Strategy>(kStrategyNames, name);
}

std::optional<Layout> ParseLayout(absl::string_view name) {
  return Find<Layout>(kLayoutNames, name);
}

std::optional<HeadAssignment> ParseHeadDeal(absl::string_view name) {
  return Find<HeadAssignment>(kHeadDealNames, name);
}

}  // namespace annulus
