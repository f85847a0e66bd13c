// Random requests against the validator. A refusal must have a known code, a reason and a field.
// Masks and sizes of a request that passes all checks, except the capability table's, must be safe
// to compute. Requests that are valid by construction must pass.

#include <fuzzer/FuzzedDataProvider.h>

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <vector>

#include "attention/mask/mask.h"
#include "attention/spec/spec.h"
#include "attention/spec/tensor_table.h"
#include "attention/validate/validate.h"
#include "base/error.h"

namespace annulus {
namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

// Mostly small numbers, sometimes any.
template <typename Int>
Int Number(FuzzedDataProvider& data, int least, int most) {
  return data.ConsumeIntegralInRange<int>(0, 15) == 0
             ? data.ConsumeIntegral<Int>()
             : static_cast<Int>(data.ConsumeIntegralInRange<int>(least, most));
}

std::optional<int64_t> MaybeNumber(FuzzedDataProvider& data) {
  if (data.ConsumeBool()) return std::nullopt;
  return Number<int64_t>(data, -1, 40);
}

// Mostly a known value of the enum, sometimes the one after the last.
template <typename Enum>
Enum Value(FuzzedDataProvider& data, Enum last) {
  return static_cast<Enum>(data.ConsumeIntegralInRange<int>(0, static_cast<int>(last) + 1));
}

Mask RandomMask(FuzzedDataProvider& data) {
  Mask mask;
  mask.causal = data.ConsumeBool();
  mask.alignment = Value(data, Mask::Alignment::kTopLeft);
  mask.window_left = MaybeNumber(data);
  mask.window_right = MaybeNumber(data);
  mask.chunk = MaybeNumber(data);
  mask.prefix = MaybeNumber(data);
  mask.always_visible = MaybeNumber(data);
  mask.bit_mask = data.ConsumeBool();
  for (int i = data.ConsumeIntegralInRange<int>(0, 3); i > 0; --i) {
    mask.ranges.push_back({Number<int64_t>(data, 0, 9), Number<int64_t>(data, 9, 30),
                           Number<int64_t>(data, 0, 9), Number<int64_t>(data, 9, 30),
                           Value(data, MaskRange::Kind::kBiCausal)});
  }
  for (int i = data.ConsumeIntegralInRange<int>(0, 2); i > 0; --i) {
    mask.query_heads.push_back(Number<int32_t>(data, -1, 8));
  }
  return mask;
}

// Mostly no options, since each excludes others.
void AddOptions(FuzzedDataProvider& data, AttentionSpec* spec) {
  const auto seldom = [&] { return data.ConsumeIntegralInRange<int>(0, 7) == 0; };
  if (seldom())
    spec->modifiers.bias = Bias{Value(data, DataType::kFp8E4m3), Number<int32_t>(data, 0, 8)};
  spec->modifiers.lse_offset = seldom();
  spec->bit_mask_heads = Number<int32_t>(data, 1, 8);
  spec->deterministic = seldom();
  spec->outputs.max_logit = seldom();
  spec->outputs.lse_rest = seldom();
  if (seldom()) spec->forward.keep_state = absl::Seconds(Number<int64_t>(data, -1, 900));
  if (seldom()) spec->gradients.state = "job";
  spec->gradients.d_lse = seldom();
  if (seldom()) spec->gradients.d_out_dtype = Value(data, DataType::kFp8E4m3);
  spec->gradients.d_bias = seldom();
  spec->gradients.release_state = seldom();
}

AttentionSpec RandomSpec(FuzzedDataProvider& data) {
  AttentionSpec spec;
  spec.dtype = Value(data, DataType::kFp8E4m3);
  spec.out_dtype = Value(data, DataType::kFp8E4m3);
  spec.kv_heads = Number<int32_t>(data, 0, 4);
  spec.q_heads = data.ConsumeBool() ? spec.kv_heads : Number<int32_t>(data, 0, 8);
  spec.head_dim = Number<int32_t>(data, 0, 257);
  spec.head_dim_v = Number<int32_t>(data, 0, 257);
  if (data.ConsumeBool()) spec.scale = data.ConsumeFloatingPoint<double>();
  spec.operation = Value(data, Operation::kGradients);
  spec.outputs.lse_base = Value(data, LseBase::k2);
  spec.arithmetic = Value(data, Arithmetic::kBf16x3);
  if (data.ConsumeBool()) spec.modifiers.soft_cap = data.ConsumeFloatingPoint<double>();
  for (int i = data.ConsumeIntegralInRange<int>(0, 4); i > 0; --i) {
    spec.modifiers.sinks.push_back(data.ConsumeFloatingPoint<float>());
  }
  for (int i = data.ConsumeIntegralInRange<int>(0, 4); i > 0; --i) {
    spec.modifiers.alibi_slopes.push_back(data.ConsumeFloatingPoint<float>());
  }
  AddOptions(data, &spec);
  if (data.ConsumeBool()) spec.dropout = Dropout{data.ConsumeFloatingPoint<double>(), 1};
  for (int i = data.ConsumeIntegralInRange<int>(0, 3); i > 0; --i) {
    spec.masks.push_back(RandomMask(data));
  }
  for (int i = data.ConsumeIntegralInRange<int>(0, 4); i > 0; --i) {
    Sequence sequence;
    sequence.q_len = Number<int64_t>(data, 0, 40);
    sequence.kv_len = Number<int64_t>(data, 0, 40);
    sequence.layer = Number<int32_t>(data, 0, 0);
    if (data.ConsumeIntegralInRange<int>(0, 31) == 0) sequence.session = "s";
    sequence.mask = Number<int32_t>(data, 0, 1);
    spec.sequences.push_back(sequence);
  }
  return spec;
}

Execution RandomExecution(FuzzedDataProvider& data) {
  Execution execution;
  execution.strategy = Value(data, kLastStrategy);
  execution.layout = Value(data, kLastLayout);
  execution.world_size = Number<int32_t>(data, -1, 65);
  execution.ulysses_degree = Number<int32_t>(data, -1, 9);
  execution.ring_degree = Number<int32_t>(data, -1, 9);
  execution.inner_ring_degree = Number<int32_t>(data, 0, 3);
  execution.head_deal = Value(data, HeadAssignment::kUnits);
  execution.stripe = Number<int32_t>(data, 0, 2);
  execution.bf16_partials = data.ConsumeBool();
  return execution;
}

Mask RightMask(FuzzedDataProvider& data) {
  const auto maybe = [&](int least) -> std::optional<int64_t> {
    if (data.ConsumeBool()) return std::nullopt;
    return data.ConsumeIntegralInRange<int>(least, 40);
  };
  Mask mask;
  mask.causal = data.ConsumeBool();
  mask.alignment = data.ConsumeBool() ? Mask::Alignment::kTopLeft : Mask::Alignment::kBottomRight;
  mask.window_left = maybe(0);
  mask.window_right = maybe(0);
  mask.chunk = maybe(1);
  if (mask.causal) mask.prefix = maybe(0);
  mask.always_visible = maybe(0);
  if (data.ConsumeBool()) {
    const auto bound = [&](int least, int most) {
      return int64_t{data.ConsumeIntegralInRange<int>(least, most)};
    };
    mask.ranges.push_back({bound(0, 9), bound(9, 30), bound(0, 9), bound(9, 30),
                           static_cast<MaskRange::Kind>(bound(0, 3))});
  }
  return mask;
}

// Only options that go with everything else, with numbers in range.
AttentionSpec RightSpec(FuzzedDataProvider& data) {
  const auto number = [&](int least, int most) {
    return data.ConsumeIntegralInRange<int>(least, most);
  };
  AttentionSpec spec;
  spec.dtype = static_cast<DataType>(number(1, 3));
  if (data.ConsumeBool()) spec.out_dtype = data.ConsumeBool() ? spec.dtype : DataType::kFp32;
  spec.kv_heads = number(1, 4);
  spec.q_heads = spec.kv_heads * number(1, 3);
  spec.head_dim = number(1, 256);
  spec.head_dim_v = number(0, 256);
  spec.operation = data.ConsumeBool() ? Operation::kGradients : Operation::kForward;
  if (data.ConsumeBool()) spec.scale = number(-8, 8);
  if (data.ConsumeBool()) spec.modifiers.soft_cap = number(1, 50);
  if (data.ConsumeBool())
    spec.modifiers.sinks.assign(spec.q_heads, static_cast<float>(number(-9, 9)));
  if (data.ConsumeBool()) spec.dropout = Dropout{number(0, 99) / 100.0, 1};
  if (data.ConsumeBool()) spec.masks.push_back(RightMask(data));
  spec.sequences.resize(number(1, 4));
  for (Sequence& sequence : spec.sequences) {
    sequence.q_len = number(0, 40);
    sequence.kv_len = number(0, 40);
  }
  return spec;
}

Execution RightExecution(FuzzedDataProvider& data) {
  Execution execution;
  execution.strategy =
      static_cast<Strategy>(data.ConsumeIntegralInRange<int>(0, static_cast<int>(kLastStrategy)));
  execution.layout =
      static_cast<Layout>(data.ConsumeIntegralInRange<int>(0, static_cast<int>(kLastLayout)));
  execution.world_size = data.ConsumeIntegralInRange<int>(0, 64);
  execution.priority = data.ConsumeIntegralInRange<int>(-10, 10);
  if (execution.layout == Layout::kStriped) execution.stripe = data.ConsumeIntegralInRange(0, 9);
  return execution;
}

void CheckRefusal(const absl::Status& status) {
  const ErrorDetail detail = DetailOf(status);
  Require(!detail.reason.empty() && detail.reason.size() <= 63);
  Require(!detail.fields.empty() && !detail.fields[0].field.empty());
  const bool not_served = detail.reason == "NOT_SERVED";
  Require(status.code() ==
          (not_served ? absl::StatusCode::kUnimplemented : absl::StatusCode::kInvalidArgument));
}

// The area of the first rows is the sum of their visible keys.
void UseMasks(const AttentionSpec& spec) {
  const MaskMap map(spec);
  Require(map.head_runs().front().begin == 0 && map.head_runs().back().end == spec.q_heads);
  const Interval rows{0, std::min<int64_t>(spec.q_rows(), 64)};
  for (const int32_t head : {0, spec.q_heads - 1}) {
    int64_t area = 0;
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      for (const Interval& keys : map.VisiblePacked(head, row)) {
        Require(keys.begin >= 0 && keys.begin < keys.end && keys.end <= spec.kv_rows());
        area += keys.length();
      }
    }
    Require(map.Area(head, rows, {0, spec.kv_rows()}) == area);
  }
}

void FuzzOne(FuzzedDataProvider& data) {
  const bool right = data.ConsumeIntegralInRange<int>(0, 3) == 0;
  const AttentionSpec spec = right ? RightSpec(data) : RandomSpec(data);
  const Execution execution = right ? RightExecution(data) : RandomExecution(data);
  const Limits limits;
  const absl::Status status = Validate(spec, execution, limits);
  Require(status.ok() || !right);
  if (!status.ok()) CheckRefusal(status);
  if (!status.ok() && DetailOf(status).reason != "NOT_SERVED") return;
  UseMasks(spec);
  for (const TensorInfo& tensor : TensorTable(spec)) {
    const int64_t rows = RowsOf(tensor, spec);
    const int64_t bytes = rows * tensor.row_bytes();
    Require(bytes >= 0 && bytes <= limits.max_tensor_bytes);
  }
}

}  // namespace
}  // namespace annulus

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  FuzzedDataProvider data(bytes, size);
  annulus::FuzzOne(data);
  return 0;
}
