#include "tests/reference/from_spec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/reference/normal_numbers.h"

namespace annulus::reference {
namespace {

Rule RuleFrom(const Mask& mask) {
  Rule rule;
  rule.causal = mask.causal;
  rule.top_left = mask.alignment == Mask::Alignment::kTopLeft;
  rule.window_left = mask.window_left;
  rule.window_right = mask.window_right;
  rule.chunk = mask.chunk;
  rule.prefix = mask.prefix;
  rule.always_visible = mask.always_visible;
  rule.bits = mask.bit_mask;
  for (const MaskRange& range : mask.ranges) {
    const bool both = range.kind == MaskRange::Kind::kBiCausal;
    rule.ranges.push_back({range.q_begin, range.q_end, range.k_begin, range.k_end,
                           both || range.kind == MaskRange::Kind::kCausal,
                           both || range.kind == MaskRange::Kind::kInverseCausal});
  }
  return rule;
}

// The mask at `first` applies to all heads unless it names some. The following masks that name
// heads apply to those.
std::vector<Rule> RulesFrom(const AttentionSpec& spec, int32_t first) {
  std::vector<Rule> rules(static_cast<size_t>(spec.q_heads));
  for (size_t i = static_cast<size_t>(first); i < spec.masks.size(); ++i) {
    const Mask& mask = spec.masks[i];
    const bool is_first = i == static_cast<size_t>(first);
    if (mask.query_heads.empty() && !is_first) break;
    if (mask.query_heads.empty()) std::fill(rules.begin(), rules.end(), RuleFrom(mask));
    for (const int32_t head : mask.query_heads) rules[static_cast<size_t>(head)] = RuleFrom(mask);
  }
  return rules;
}

// A pseudo-random number for a pair: splitmix64, word by word.
uint64_t RandomOf(uint64_t seed, int64_t document, int32_t head, int64_t i, int64_t j) {
  uint64_t mixed = seed;
  for (const int64_t word : {document, int64_t{head}, i, j}) {
    mixed += 0x9e3779b97f4a7c15u * (static_cast<uint64_t>(word) + 1);
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    mixed ^= mixed >> 31;
  }
  return mixed;
}

// Approximately normal: the sum of three uniform numbers.
double NormalOf(uint64_t random) {
  double sum = -3;
  for (int part = 0; part < 3; ++part) {
    sum += std::ldexp(static_cast<double>(random >> (20 * part) & 0xfffff), -19);
  }
  return sum;
}

int64_t Longest(const Input& input) {
  int64_t keys = 0;
  for (const Document& document : input.documents) keys = std::max(keys, document.kv_len);
  return keys;
}

// Calls fn(document, head, row of it, its keys, number) for each row and head of a tensor.
template <typename Fn>
void ForEachRow(const Input& input, int32_t heads, Fn fn) {
  int64_t number = 0;
  for (size_t d = 0; d < input.documents.size(); ++d) {
    for (int64_t i = 0; i < input.documents[d].q_len; ++i) {
      for (int32_t head = 0; head < heads; ++head) {
        fn(static_cast<int64_t>(d), head, i, input.documents[d].kv_len, number++);
      }
    }
  }
}

// Encodes in a 16-bit format: its bits as an integer count ulp steps from zero upwards, exponent
// after exponent.
uint16_t Encode16(Precision precision, double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const int bits = precision == Precision::kFp16 ? 10 : 7;
  const int bias = precision == Precision::kFp16 ? 15 : 127;
  const double magnitude = std::fabs(value);
  if (std::isnan(value)) return static_cast<uint16_t>(((2 * bias + 1) << bits) | (1 << (bits - 1)));
  if (std::isinf(value)) return static_cast<uint16_t>(sign | ((2 * bias + 1) << bits));
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), 1 - bias);
  const int steps = static_cast<int>(std::ldexp(magnitude, bits - exponent));
  return static_cast<uint16_t>(sign | (((exponent + bias - 1) << bits) + steps));
}

float Decode16(Precision precision, uint16_t code) {
  const int bits = precision == Precision::kFp16 ? 10 : 7;
  const int bias = precision == Precision::kFp16 ? 15 : 127;
  const int exponent = (code & 0x7fff) >> bits, mantissa = code & ((1 << bits) - 1);
  double magnitude = exponent == 0 ? std::ldexp(mantissa, 1 - bias - bits)
                                   : std::ldexp(mantissa + (1 << bits), exponent - bias - bits);
  if (exponent == 2 * bias + 1) {
    magnitude = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::nan("");
  }
  return static_cast<float>((code & 0x8000) != 0 ? -magnitude : magnitude);
}

}  // namespace

Precision ArithmeticOf(const AttentionSpec& spec) {
  return spec.arithmetic == Arithmetic::kBf16x3 ? Precision::kBf16x3 : PrecisionOf(spec.dtype);
}

Precision PrecisionOf(DataType dtype) {
  if (dtype == DataType::kFp16) return Precision::kFp16;
  return dtype == DataType::kBf16 ? Precision::kBf16 : Precision::kFp32;
}

Input InputOf(const AttentionSpec& spec) {
  Input input;
  input.q_heads = spec.q_heads;
  input.kv_heads = spec.kv_heads;
  input.head_dim = spec.head_dim;
  input.value_dim = spec.head_dim_v == 0 ? spec.head_dim : spec.head_dim_v;
  input.scale = spec.scale ? *spec.scale : 1 / std::sqrt(static_cast<double>(spec.head_dim));
  for (const Sequence& sequence : spec.sequences) {
    Document document{sequence.q_len, sequence.kv_len, {}};
    if (!spec.masks.empty()) document.rules = RulesFrom(spec, sequence.mask);
    input.documents.push_back(document);
  }
  input.soft_cap = spec.modifiers.soft_cap;
  input.alibi_slopes.assign(spec.modifiers.alibi_slopes.begin(), spec.modifiers.alibi_slopes.end());
  input.sinks.assign(spec.modifiers.sinks.begin(), spec.modifiers.sinks.end());
  if (spec.dropout) {
    input.dropout_rate = spec.dropout->rate;
    input.dropout_seed = spec.dropout->seed;
  }
  input.q.resize(static_cast<size_t>(input.q_rows() * input.q_heads * input.head_dim));
  input.k.resize(static_cast<size_t>(input.kv_rows() * input.kv_heads * input.head_dim));
  input.v.resize(static_cast<size_t>(input.kv_rows() * input.kv_heads * input.value_dim));
  return input;
}

void FillNormal(uint64_t seed, Precision precision, double deviation, Input* input) {
  NormalNumbers normal(seed);
  for (std::vector<double>* tensor : {&input->q, &input->k, &input->v}) {
    for (double& value : *tensor) value = RoundTo(precision, normal.Next() * deviation);
  }
}

void FillPairs(uint64_t seed, const AttentionSpec& spec, Input* input) {
  if (spec.modifiers.bias) {
    const DataType dtype = spec.modifiers.bias->dtype;
    const Precision precision = PrecisionOf(dtype == DataType::kUnspecified ? spec.dtype : dtype);
    const bool one = spec.modifiers.bias->heads == 1;
    input->bias = [=](int64_t document, int32_t head, int64_t i, int64_t j) {
      const uint64_t random = RandomOf(seed, document, one ? 0 : head, i, j);
      if (random % 10 == 0) return -std::numeric_limits<double>::infinity();
      return RoundTo(precision, NormalOf(random));
    };
  }
  if (spec.modifiers.lse_offset) {
    input->offset = [=](int64_t document, int32_t head, int64_t i) {
      return RoundTo(Precision::kFp32, NormalOf(RandomOf(seed + 2, document, head, i, 0)));
    };
  }
  const bool one = spec.bit_mask_heads == 1;
  input->bit = [=](int64_t document, int32_t head, int64_t i, int64_t j) {
    return RandomOf(seed + 1, document, one ? 0 : head, i, j) % 4 != 0;
  };
}

std::vector<std::byte> BiasBytes(const AttentionSpec& spec, const Input& input) {
  if (!spec.modifiers.bias) return {};
  const int32_t heads = spec.modifiers.bias->heads;
  const int64_t width = Longest(input);
  std::vector<double> values(static_cast<size_t>(input.q_rows() * heads * width), NAN);
  ForEachRow(input, heads, [&](int64_t d, int32_t head, int64_t i, int64_t keys, int64_t number) {
    for (int64_t j = 0; j < keys; ++j) {
      values[static_cast<size_t>(number * width + j)] = input.bias(d, head, i, j);
    }
  });
  const DataType dtype = spec.modifiers.bias->dtype;
  return BytesOf(PrecisionOf(dtype == DataType::kUnspecified ? spec.dtype : dtype), values);
}

std::vector<std::byte> BitBytes(const AttentionSpec& spec, const Input& input) {
  const bool any = std::any_of(spec.masks.begin(), spec.masks.end(),
                               [](const Mask& mask) { return mask.bit_mask; });
  if (!any) return {};
  const int32_t heads = spec.bit_mask_heads;
  const int64_t width = (Longest(input) + 7) / 8;
  std::vector<std::byte> bytes(static_cast<size_t>(input.q_rows() * heads * width));
  ForEachRow(input, heads, [&](int64_t d, int32_t head, int64_t i, int64_t keys, int64_t number) {
    for (int64_t j = 0; j < keys; ++j) {
      if (!input.bit(d, head, i, j)) continue;
      bytes[static_cast<size_t>(number * width + j / 8)] |= std::byte{1} << (j % 8);
    }
  });
  return bytes;
}

std::vector<std::byte> OffsetBytes(const AttentionSpec& spec, const Input& input) {
  if (!spec.modifiers.lse_offset) return {};
  std::vector<double> values;
  ForEachRow(input, spec.q_heads, [&](int64_t d, int32_t head, int64_t i, int64_t, int64_t) {
    values.push_back(input.offset(d, head, i));
  });
  return BytesOf(Precision::kFp32, values);
}

std::vector<std::byte> BytesOf(Precision precision, const std::vector<double>& values) {
  const size_t size = precision == Precision::kFp32 ? 4 : 2;
  std::vector<std::byte> bytes(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i) {
    const float single = static_cast<float>(values[i]);
    const uint16_t half = size == 2 ? Encode16(precision, values[i]) : 0;
    std::memcpy(bytes.data() + i * size, size == 4 ? static_cast<const void*>(&single) : &half,
                size);
  }
  return bytes;
}

std::vector<float> FloatsOf(Precision precision, const std::byte* bytes, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    if (precision == Precision::kFp32) {
      std::memcpy(&values[i], bytes + i * 4, 4);
    } else {
      uint16_t code = 0;
      std::memcpy(&code, bytes + i * 2, 2);
      values[i] = Decode16(precision, code);
    }
  }
  return values;
}

}  // namespace annulus::reference
