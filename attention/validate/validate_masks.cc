#include "attention/validate/validate_masks.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/spec/limits.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace annulus {
namespace {

// CheckRange without the paths: there may be many ranges, and paths take time.
bool IsValid(const MaskRange& range, const Limits& limits) {
  return range.kind <= MaskRange::Kind::kBiCausal && 0 <= range.q_begin &&
         range.q_begin <= range.q_end && range.q_end <= limits.max_rows && 0 <= range.k_begin &&
         range.k_begin <= range.k_end && range.k_end <= limits.max_rows;
}

absl::Status CheckRange(const MaskRange& range, const std::string& path, const Limits& limits) {
  RETURN_IF_ERROR(CheckEnum(absl::StrCat(path, ".kind"), range.kind, MaskRange::Kind::kBiCausal));
  const auto check = [&](absl::string_view axis, int64_t begin, int64_t end) {
    const std::string end_path = absl::StrCat(path, ".", axis, "_end");
    RETURN_IF_ERROR(
        CheckAtLeast("INVALID_MASK", absl::StrCat(path, ".", axis, "_begin"), begin, 0));
    RETURN_IF_ERROR(CheckAtLeast("INVALID_MASK", end_path, end, begin));
    return CheckLimit(end_path, end, limits.max_rows);
  };
  RETURN_IF_ERROR(check("q", range.q_begin, range.q_end));
  return check("k", range.k_begin, range.k_end);
}

// Planning evaluates the mask in pieces of rows where the same ranges hold, and every pair of
// ranges may cut a piece.
absl::Status CheckOverlaps(const std::vector<MaskRange>& ranges, const std::string& path,
                           const Limits& limits) {
  std::vector<std::pair<int64_t, int>> edges;  // −1 where a range ends, +1 where it begins.
  for (const MaskRange& range : ranges) {
    if (range.q_begin == range.q_end) continue;
    edges.push_back({range.q_begin, 1});
    edges.push_back({range.q_end, -1});
  }
  std::sort(edges.begin(), edges.end());
  int64_t open = 0;
  for (const auto& [row, change] : edges) {
    open += change;
    if (open <= limits.max_ranges_of_row) continue;
    return CheckLimit(path, open, limits.max_ranges_of_row);
  }
  return absl::OkStatus();
}

absl::Status CheckMask(const Mask& mask, const std::string& path, const Limits& limits) {
  RETURN_IF_ERROR(
      CheckEnum(absl::StrCat(path, ".alignment"), mask.alignment, Mask::Alignment::kTopLeft));
  const struct {
    const char* name;
    const std::optional<int64_t>& value;
    int64_t least;
  } fields[] = {{".window_left", mask.window_left, 0},
                {".window_right", mask.window_right, 0},
                {".chunk", mask.chunk, 1},
                {".prefix", mask.prefix, 0},
                {".always_visible", mask.always_visible, 0}};
  for (const auto& field : fields) {
    if (!field.value) continue;
    RETURN_IF_ERROR(
        CheckAtLeast("INVALID_MASK", absl::StrCat(path, field.name), *field.value, field.least));
  }
  // A prefix only makes sense with later keys hidden.
  if (mask.prefix.value_or(0) > 0 && !mask.causal) {
    return RefuseValue("INVALID_MASK", absl::StrCat(path, ".prefix"), *mask.prefix,
                       "a prefix has no effect without causal");
  }
  for (size_t i = 0; i < mask.ranges.size(); ++i) {
    if (IsValid(mask.ranges[i], limits)) continue;
    RETURN_IF_ERROR(CheckRange(mask.ranges[i], absl::StrCat(path, ".ranges[", i, "]"), limits));
  }
  return CheckOverlaps(mask.ranges, absl::StrCat(path, ".ranges"), limits);
}

// Checks that the heads that a group's masks name (attention/mask/mask_groups.h) exist and are
// named once.
absl::Status CheckMaskHeads(const AttentionSpec& spec) {
  std::vector<bool> named;
  for (size_t i = 0; i < spec.masks.size(); ++i) {
    const std::vector<int32_t>& heads = spec.masks[i].query_heads;
    if (heads.empty() || named.empty()) named.assign(static_cast<size_t>(spec.q_heads), false);
    for (size_t j = 0; j < heads.size(); ++j) {
      const std::string path = absl::StrCat("spec.masks[", i, "].query_heads[", j, "]");
      if (heads[j] < 0 || heads[j] >= spec.q_heads) {
        return RefuseValue("INVALID_MASK", path, heads[j],
                           absl::StrCat("there are ", spec.q_heads, " query heads"));
      }
      if (named[heads[j]]) {
        return RefuseValue("INVALID_MASK", path, heads[j], "a group may name a head only once");
      }
      named[heads[j]] = true;
    }
  }
  return absl::OkStatus();
}

absl::Status CheckMaskOfSequence(const AttentionSpec& spec, size_t index) {
  const int32_t mask = spec.sequences[index].mask;
  const auto refuse = [&](absl::string_view must) {
    return RefuseValue("INVALID_MASK", absl::StrCat("spec.sequences[", index, "].mask"), mask,
                       must);
  };
  const int64_t masks = static_cast<int64_t>(spec.masks.size());
  if (mask < 0 || mask >= std::max<int64_t>(masks, 1)) {
    return refuse(absl::StrCat("there are ", masks, " masks"));
  }
  if (mask > 0 && !spec.masks[mask].query_heads.empty()) {
    return refuse("must be the first mask of its group");
  }
  return absl::OkStatus();
}

// An unused mask would be dropped silently. A mask without query_heads may have no heads left: then
// it only begins its group.
absl::Status CheckMasksFollowed(const AttentionSpec& spec) {
  std::vector<bool> named(spec.masks.size());
  for (const Sequence& sequence : spec.sequences) {
    if (!named.empty()) named[sequence.mask] = true;
  }
  for (size_t i = 0; i < named.size(); ++i) {
    const bool first = i == 0 || spec.masks[i].query_heads.empty();
    if (!first || named[i]) continue;
    return InvalidField("INVALID_MASK", absl::StrCat("spec.masks[", i, "]"),
                        "begins a group that no sequence uses");
  }
  return absl::OkStatus();
}

// Checks the counts before any mask.
absl::Status CheckMaskCounts(const AttentionSpec& spec, const Limits& limits) {
  RETURN_IF_ERROR(
      CheckLimit("spec.masks", static_cast<int64_t>(spec.masks.size()), limits.max_masks));
  int64_t all = 0;
  for (size_t i = 0; i < spec.masks.size(); ++i) {
    const auto ranges = static_cast<int64_t>(spec.masks[i].ranges.size());
    RETURN_IF_ERROR(
        CheckLimit(absl::StrCat("spec.masks[", i, "].ranges"), ranges, limits.max_mask_ranges));
    all += ranges;
  }
  return CheckLimit("spec.masks", all, limits.max_ranges);
}

}  // namespace

absl::Status CheckMasks(const AttentionSpec& spec, const Limits& limits) {
  RETURN_IF_ERROR(CheckMaskCounts(spec, limits));
  for (size_t i = 0; i < spec.masks.size(); ++i) {
    RETURN_IF_ERROR(CheckMask(spec.masks[i], absl::StrCat("spec.masks[", i, "]"), limits));
  }
  RETURN_IF_ERROR(CheckMaskHeads(spec));
  for (size_t i = 0; i < spec.sequences.size(); ++i) {
    RETURN_IF_ERROR(CheckMaskOfSequence(spec, i));
  }
  return CheckMasksFollowed(spec);
}

}  // namespace annulus
