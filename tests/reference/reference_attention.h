#ifndef ANNULUS_TESTS_REFERENCE_REFERENCE_ATTENTION_H_
#define ANNULUS_TESTS_REFERENCE_REFERENCE_ATTENTION_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace annulus::reference {

// The reference for all results: attention in fp64 by three loops, and the naive implementation
// whose error defines the error budget. Written from docs/reference/numerics.md. Shares no code or
// type with the product.

// An entry of a range list: rows [q_begin, q_end) × keys [k_begin, k_end) of a sequence.
struct Range {
  int64_t q_begin = 0, q_end = 0, k_begin = 0, k_end = 0;
  bool causal = false;          // The diagonal ends in the last corner.
  bool inverse_causal = false;  // The diagonal starts in the first corner.
};

struct Rule {
  bool causal = false;
  bool top_left = false;
  std::optional<int64_t> window_left, window_right, chunk, prefix, always_visible;
  std::vector<Range> ranges;  // Empty: no list.
  bool bits = false;          // Input::bit hides further pairs.
};

// True if query row `i` sees key row `j` of a sequence, literally by the definition.
bool Sees(const Rule& rule, int64_t q_len, int64_t kv_len, int64_t i, int64_t j);

struct Document {
  int64_t q_len = 0;
  int64_t kv_len = 0;
  // None: everything is visible. One: for all query heads. Otherwise one for each head.
  std::vector<Rule> rules;
};

// A whole job. q is [query rows, q_heads, head_dim], k and v are [key rows, kv_heads, dim].
// Documents follow one another.
struct Input {
  int32_t q_heads = 1, kv_heads = 1, head_dim = 1, value_dim = 1;
  double scale = 1;
  std::vector<Document> documents;
  std::vector<double> q, k, v;
  std::optional<double> soft_cap;
  std::vector<double> alibi_slopes, sinks;  // Empty, or one for each query head.
  // Added to the score of (document, query head, row, key). −infinity hides the pair.
  std::function<double(int64_t, int32_t, int64_t, int64_t)> bias;
  // Added to every score of (document, query head, row), directly after the scale.
  std::function<double(int64_t, int32_t, int64_t)> offset;
  // True if the bit mask shows the pair, for rules with `bits`.
  std::function<bool(int64_t, int32_t, int64_t, int64_t)> bit;
  double dropout_rate = 0;
  uint64_t dropout_seed = 0;

  int64_t q_rows() const;
  int64_t kv_rows() const;
};

// True if dropout keeps the weight of (document, query head, row, key).
bool Keeps(const Input& input, int64_t document, int32_t q_head, int64_t i, int64_t j);

// Number formats; rounding to 16 bits. kBf16x3: fp32, multiplied in two bf16 parts
// (docs/reference/numerics.md).
enum class Precision { kFp32, kFp16, kBf16, kBf16x3 };
double RoundTo(Precision precision, double value);  // To nearest, ties to even.
// The distance of adjacent numbers at `magnitude`.
double UlpOf(Precision precision, double magnitude);
double (*UlpsOf(Precision precision))(double);  // UlpOf for one precision.

// Output, natural-log LSE and largest score of one packed query row and head. `out` has value_dim
// entries. (0, −inf, −inf) without a visible key and a sink. If the LSE is NaN, so is max_logit.
struct Row {
  std::vector<double> out;
  double lse = 0;
  double max_logit = 0;
  double scale = 0;  // Σ P · max |v|: rounding errors of `out` are proportional to it.
};
Row ExactRow(const Input& input, int64_t q_row, int32_t q_head);

// Like ExactRow, with scores and sums in fp32, weights rounded to `inputs` before the product with
// V, and the output rounded once to `output`. With kBf16x3 weights are not rounded, but all
// products are products of parts, without the product of both low parts.
Row NaiveRow(const Input& input, int64_t q_row, int32_t q_head, Precision inputs, Precision output);

// All rows: out [query rows, q_heads, value_dim], lse [query rows, q_heads].
struct Result {
  std::vector<double> out, lse;
};
Result Exact(const Input& input);

}  // namespace annulus::reference

#endif  // ANNULUS_TESTS_REFERENCE_REFERENCE_ATTENTION_H_
