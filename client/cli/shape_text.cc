#include "client/cli/shape_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace annulus {
namespace {

// Models may have this many heads, also with shorter sequences.
constexpr int32_t kManyHeads = 32;

bool AreAlike(const AttentionSpec& spec) {
  return std::all_of(spec.sequences.begin(), spec.sequences.end(), [&](const Sequence& sequence) {
    return sequence.q_len == spec.sequences[0].q_len && sequence.kv_len == spec.sequences[0].kv_len;
  });
}

bool IsOnlyCausal(const Mask& mask) {
  Mask causal;
  causal.causal = true;
  causal.alignment = mask.alignment;
  return RuleOf(mask) == RuleOf(causal) && mask.query_heads.empty();
}

std::string TokensText(int64_t q, int64_t kv) {
  if (q == kv) return absl::StrCat(q, q == 1 ? " token" : " tokens");
  return absl::StrCat(q, q == 1 ? " query over " : " queries over ", kv,
                      kv == 1 ? " key" : " keys");
}

}  // namespace

std::string ShapeText(const AttentionSpec& spec) {
  std::string text;
  if (spec.sequences.size() > 1) {
    absl::StrAppend(&text, spec.sequences.size(),
                    AreAlike(spec) ? " sequences of " : " sequences, ");
  }
  const bool each = !spec.sequences.empty() && AreAlike(spec);
  absl::StrAppend(&text, each ? TokensText(spec.sequences[0].q_len, spec.sequences[0].kv_len)
                              : TokensText(spec.q_rows(), spec.kv_rows()));
  absl::StrAppend(&text, ", ", spec.q_heads, spec.q_heads == 1 ? " head" : " heads");
  if (spec.kv_heads != spec.q_heads) absl::StrAppend(&text, " over ", spec.kv_heads);
  absl::StrAppend(&text, " of ", spec.head_dim);
  if (spec.value_dim() != spec.head_dim) absl::StrAppend(&text, " and ", spec.value_dim());
  absl::StrAppend(&text, ", ", DataTypeName(spec.dtype));
  if (spec.masks.empty()) return text;
  const bool causal = std::all_of(spec.masks.begin(), spec.masks.end(), IsOnlyCausal);
  return absl::StrCat(text, causal ? ", causal" : ", masked");
}

std::string SwappedShapeNote(const AttentionSpec& spec) {
  int64_t longest = 0;
  for (const Sequence& sequence : spec.sequences)
    longest = std::max({longest, sequence.q_len, sequence.kv_len});
  if (spec.sequences.empty() || spec.q_heads <= longest || spec.q_heads <= kManyHeads) return "";
  return absl::StrCat("there are more heads (", spec.q_heads, ") than tokens (", longest,
                      "): without --tensor-layout, the order is [tokens, heads, dim] or [batch, "
                      "tokens, heads, dim]");
}

}  // namespace annulus
