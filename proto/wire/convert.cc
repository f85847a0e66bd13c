#include "proto/wire/convert.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "google/protobuf/unknown_field_set.h"

namespace annulus {
namespace {

absl::Status UnknownEnum(absl::string_view field, int value) {
  return InvalidField("UNKNOWN_ENUM", field, absl::StrCat(value, " is not a known value"));
}

absl::Status UnknownField(absl::string_view path, int number) {
  const std::string field = path.empty() ? absl::StrCat(number) : absl::StrCat(path, ".", number);
  return InvalidField("UNKNOWN_FIELD", field,
                      absl::StrCat("field ", number, " is unknown in this version"));
}

template <typename Value>
absl::Status CheckEnum(bool known, absl::string_view field, Value value) {
  return known ? absl::OkStatus() : UnknownEnum(field, static_cast<int>(value));
}

// Checks a spec and all its submessages, except masks.
absl::Status CheckSpecKnown(const v1::AttentionSpec& proto, absl::string_view path) {
  RETURN_IF_ERROR(CheckFieldsKnown(proto, path));
  RETURN_IF_ERROR(CheckFieldsKnown(proto.forward(), absl::StrCat(path, ".forward")));
  RETURN_IF_ERROR(
      CheckFieldsKnown(proto.forward().keep_state(), absl::StrCat(path, ".forward.keep_state")));
  RETURN_IF_ERROR(CheckFieldsKnown(proto.gradients(), absl::StrCat(path, ".gradients")));
  RETURN_IF_ERROR(CheckFieldsKnown(proto.modifiers(), absl::StrCat(path, ".modifiers")));
  RETURN_IF_ERROR(
      CheckFieldsKnown(proto.modifiers().bias(), absl::StrCat(path, ".modifiers.bias")));
  RETURN_IF_ERROR(CheckFieldsKnown(proto.outputs(), absl::StrCat(path, ".outputs")));
  RETURN_IF_ERROR(CheckFieldsKnown(proto.dropout(), absl::StrCat(path, ".dropout")));
  return CheckEachKnown(proto.sequences(), absl::StrCat(path, ".sequences"));
}

template <typename T, typename Field>
std::optional<T> Optional(bool present, Field value) {
  return present ? std::optional<T>(value) : std::nullopt;
}

absl::StatusOr<Mask> MaskFromProto(const v1::Mask& proto, const std::string& path) {
  Mask mask;
  RETURN_IF_ERROR(CheckFieldsKnown(proto, path));
  RETURN_IF_ERROR(CheckEachKnown(proto.ranges(), absl::StrCat(path, ".ranges")));
  RETURN_IF_ERROR(CheckEnum(v1::Mask::Alignment_IsValid(proto.alignment()),
                            absl::StrCat(path, ".alignment"), proto.alignment()));
  mask.causal = proto.causal();
  mask.alignment = proto.alignment() == v1::Mask::ALIGNMENT_TOP_LEFT
                       ? Mask::Alignment::kTopLeft
                       : Mask::Alignment::kBottomRight;
  mask.window_left = Optional<int64_t>(proto.has_window_left(), proto.window_left());
  mask.window_right = Optional<int64_t>(proto.has_window_right(), proto.window_right());
  mask.chunk = Optional<int64_t>(proto.has_chunk(), proto.chunk());
  mask.prefix = Optional<int64_t>(proto.has_prefix(), proto.prefix());
  mask.always_visible = Optional<int64_t>(proto.has_always_visible(), proto.always_visible());
  mask.bit_mask = proto.bit_mask();
  mask.query_heads.assign(proto.query_heads().begin(), proto.query_heads().end());
  for (int i = 0; i < proto.ranges_size(); ++i) {
    const v1::MaskRange& range = proto.ranges(i);
    RETURN_IF_ERROR(CheckEnum(v1::MaskRange::Kind_IsValid(range.kind()),
                              absl::StrCat(path, ".ranges[", i, "].kind"), range.kind()));
    // The numbers of the kinds differ by one, apart from UNSPECIFIED, which means full.
    const int kind = std::max(0, static_cast<int>(range.kind()) - 1);
    mask.ranges.push_back({range.q_begin(), range.q_end(), range.k_begin(), range.k_end(),
                           static_cast<MaskRange::Kind>(kind)});
  }
  return mask;
}

v1::Mask MaskToProto(const Mask& mask) {
  v1::Mask proto;
  proto.set_causal(mask.causal);
  if (mask.alignment == Mask::Alignment::kTopLeft) {
    proto.set_alignment(v1::Mask::ALIGNMENT_TOP_LEFT);
  }
  if (mask.window_left) proto.set_window_left(*mask.window_left);
  if (mask.window_right) proto.set_window_right(*mask.window_right);
  if (mask.chunk) proto.set_chunk(*mask.chunk);
  if (mask.prefix) proto.set_prefix(*mask.prefix);
  if (mask.always_visible) proto.set_always_visible(*mask.always_visible);
  proto.set_bit_mask(mask.bit_mask);
  proto.mutable_query_heads()->Add(mask.query_heads.begin(), mask.query_heads.end());
  for (const MaskRange& range : mask.ranges) {
    v1::MaskRange* out = proto.add_ranges();
    out->set_q_begin(range.q_begin);
    out->set_q_end(range.q_end);
    out->set_k_begin(range.k_begin);
    out->set_k_end(range.k_end);
    out->set_kind(static_cast<v1::MaskRange::Kind>(static_cast<int>(range.kind) + 1));
  }
  return proto;
}

absl::Status CheckSpecEnums(const v1::AttentionSpec& proto, absl::string_view path) {
  RETURN_IF_ERROR(
      CheckEnum(v1::DataType_IsValid(proto.dtype()), absl::StrCat(path, ".dtype"), proto.dtype()));
  RETURN_IF_ERROR(CheckEnum(v1::DataType_IsValid(proto.out_dtype()),
                            absl::StrCat(path, ".out_dtype"), proto.out_dtype()));
  RETURN_IF_ERROR(CheckEnum(v1::DataType_IsValid(proto.gradients().d_out_dtype()),
                            absl::StrCat(path, ".gradients.d_out_dtype"),
                            proto.gradients().d_out_dtype()));
  const v1::DataType of_bias = proto.modifiers().bias().dtype();
  RETURN_IF_ERROR(CheckEnum(v1::DataType_IsValid(of_bias),
                            absl::StrCat(path, ".modifiers.bias.dtype"), of_bias));
  RETURN_IF_ERROR(CheckEnum(v1::AttentionSpec::Arithmetic_IsValid(proto.arithmetic()),
                            absl::StrCat(path, ".arithmetic"), proto.arithmetic()));
  return CheckEnum(v1::Outputs::LseBase_IsValid(proto.outputs().lse_base()),
                   absl::StrCat(path, ".outputs.lse_base"), proto.outputs().lse_base());
}

// The number of heads, where 0 means 1.
int32_t HeadsFromProto(int32_t heads) { return heads == 0 ? 1 : heads; }

ScoreModifiers ModifiersFromProto(const v1::ScoreModifiers& proto) {
  ScoreModifiers modifiers;
  modifiers.soft_cap = Optional<double>(proto.has_soft_cap(), proto.soft_cap());
  modifiers.alibi_slopes.assign(proto.alibi_slopes().begin(), proto.alibi_slopes().end());
  modifiers.sinks.assign(proto.sinks().begin(), proto.sinks().end());
  modifiers.lse_offset = proto.lse_offset();
  if (proto.has_bias()) {
    modifiers.bias =
        Bias{static_cast<DataType>(proto.bias().dtype()), HeadsFromProto(proto.bias().heads())};
  }
  return modifiers;
}

void ModifiersToProto(const ScoreModifiers& modifiers, v1::AttentionSpec* proto) {
  if (!modifiers.soft_cap && modifiers.alibi_slopes.empty() && modifiers.sinks.empty() &&
      !modifiers.bias && !modifiers.lse_offset) {
    return;
  }
  v1::ScoreModifiers* out = proto->mutable_modifiers();
  if (modifiers.soft_cap) out->set_soft_cap(*modifiers.soft_cap);
  out->mutable_alibi_slopes()->Add(modifiers.alibi_slopes.begin(), modifiers.alibi_slopes.end());
  out->mutable_sinks()->Add(modifiers.sinks.begin(), modifiers.sinks.end());
  out->set_lse_offset(modifiers.lse_offset);
  if (!modifiers.bias) return;
  out->mutable_bias()->set_dtype(static_cast<v1::DataType>(modifiers.bias->dtype));
  out->mutable_bias()->set_heads(modifiers.bias->heads);
}

}  // namespace

// Checks the set of unknown fields alone and does not list all fields: a spec may hold 65,536
// sequences.
absl::Status CheckFieldsKnown(const google::protobuf::Message& message, absl::string_view path) {
  const google::protobuf::UnknownFieldSet& unknown =
      message.GetReflection()->GetUnknownFields(message);
  return unknown.empty() ? absl::OkStatus() : UnknownField(path, unknown.field(0).number());
}

absl::StatusOr<AttentionSpec> SpecFromProto(const v1::AttentionSpec& proto,
                                            absl::string_view path) {
  RETURN_IF_ERROR(CheckSpecKnown(proto, path));
  RETURN_IF_ERROR(CheckSpecEnums(proto, path));
  AttentionSpec spec;
  spec.dtype = static_cast<DataType>(proto.dtype());
  spec.q_heads = proto.q_heads();
  spec.kv_heads = proto.kv_heads();
  spec.head_dim = proto.head_dim();
  spec.head_dim_v = proto.head_dim_v();
  spec.bit_mask_heads = HeadsFromProto(proto.bit_mask_heads());
  spec.scale = Optional<double>(proto.has_scale(), proto.scale());
  spec.operation = proto.has_gradients() ? Operation::kGradients : Operation::kForward;
  if (proto.forward().has_keep_state()) {
    spec.forward.keep_state = DurationFromProto(proto.forward().keep_state());
  }
  spec.gradients.d_lse = proto.gradients().d_lse();
  spec.gradients.d_bias = proto.gradients().d_bias();
  spec.gradients.d_out_dtype = static_cast<DataType>(proto.gradients().d_out_dtype());
  spec.gradients.state = proto.gradients().state();
  spec.gradients.release_state = proto.gradients().release_state();
  spec.modifiers = ModifiersFromProto(proto.modifiers());
  spec.outputs.lse_base =
      proto.outputs().lse_base() == v1::Outputs::LSE_BASE_2 ? LseBase::k2 : LseBase::kE;
  spec.outputs.max_logit = proto.outputs().max_logit();
  spec.outputs.lse_rest = proto.outputs().lse_rest();
  spec.deterministic = proto.deterministic();
  spec.out_dtype = static_cast<DataType>(proto.out_dtype());
  if (proto.has_dropout()) spec.dropout = Dropout{proto.dropout().rate(), proto.dropout().seed()};
  spec.arithmetic = static_cast<Arithmetic>(proto.arithmetic());
  spec.sequences.reserve(proto.sequences_size());
  for (const v1::Sequence& sequence : proto.sequences()) {
    spec.sequences.push_back({sequence.q_len(), sequence.kv_len(), sequence.session(),
                              sequence.layer(), sequence.mask()});
  }
  for (int i = 0; i < proto.masks_size(); ++i) {
    ASSIGN_OR_RETURN(Mask mask,
                     MaskFromProto(proto.masks(i), absl::StrCat(path, ".masks[", i, "]")));
    spec.masks.push_back(std::move(mask));
  }
  return spec;
}

v1::AttentionSpec SpecToProto(const AttentionSpec& spec) {
  v1::AttentionSpec proto;
  proto.set_dtype(static_cast<v1::DataType>(spec.dtype));
  proto.set_q_heads(spec.q_heads);
  proto.set_kv_heads(spec.kv_heads);
  proto.set_head_dim(spec.head_dim);
  proto.set_head_dim_v(spec.head_dim_v);
  if (spec.bit_mask_heads != 1) proto.set_bit_mask_heads(spec.bit_mask_heads);
  if (spec.scale) proto.set_scale(*spec.scale);
  if (spec.operation == Operation::kGradients) {
    proto.mutable_gradients()->set_d_lse(spec.gradients.d_lse);
    proto.mutable_gradients()->set_d_bias(spec.gradients.d_bias);
    proto.mutable_gradients()->set_d_out_dtype(
        static_cast<v1::DataType>(spec.gradients.d_out_dtype));
    proto.mutable_gradients()->set_state(spec.gradients.state);
    proto.mutable_gradients()->set_release_state(spec.gradients.release_state);
  } else if (spec.forward.keep_state.has_value()) {
    *proto.mutable_forward()->mutable_keep_state() = DurationToProto(*spec.forward.keep_state);
  }
  ModifiersToProto(spec.modifiers, &proto);
  if (spec.outputs.lse_base == LseBase::k2) {
    proto.mutable_outputs()->set_lse_base(v1::Outputs::LSE_BASE_2);
  }
  if (spec.outputs.max_logit) proto.mutable_outputs()->set_max_logit(true);
  if (spec.outputs.lse_rest) proto.mutable_outputs()->set_lse_rest(true);
  proto.set_deterministic(spec.deterministic);
  proto.set_out_dtype(static_cast<v1::DataType>(spec.out_dtype));
  proto.set_arithmetic(static_cast<v1::AttentionSpec::Arithmetic>(spec.arithmetic));
  if (spec.dropout) {
    proto.mutable_dropout()->set_rate(spec.dropout->rate);
    proto.mutable_dropout()->set_seed(spec.dropout->seed);
  }
  for (const Sequence& sequence : spec.sequences) {
    v1::Sequence* out = proto.add_sequences();
    out->set_q_len(sequence.q_len);
    out->set_kv_len(sequence.kv_len);
    out->set_session(sequence.session);
    out->set_layer(sequence.layer);
    out->set_mask(sequence.mask);
  }
  for (const Mask& mask : spec.masks) *proto.add_masks() = MaskToProto(mask);
  return proto;
}

// The enums of both sides have the same values, so casts convert them.
static_assert(v1::Execution::Strategy_MAX == static_cast<int>(kLastStrategy));
static_assert(v1::Execution::Layout_MAX == static_cast<int>(kLastLayout));
static_assert(v1::Execution::HeadDeal_MAX == static_cast<int>(kLastHeadAssignment));

absl::StatusOr<Execution> ExecutionFromProto(const v1::Execution& proto, absl::string_view path) {
  RETURN_IF_ERROR(CheckFieldsKnown(proto, path));
  RETURN_IF_ERROR(CheckEnum(v1::Execution::Strategy_IsValid(proto.strategy()),
                            absl::StrCat(path, ".strategy"), proto.strategy()));
  RETURN_IF_ERROR(CheckEnum(v1::Execution::Layout_IsValid(proto.layout()),
                            absl::StrCat(path, ".layout"), proto.layout()));
  RETURN_IF_ERROR(CheckEnum(v1::Execution::HeadDeal_IsValid(proto.head_deal()),
                            absl::StrCat(path, ".head_deal"), proto.head_deal()));
  Execution execution;
  execution.strategy = static_cast<Strategy>(proto.strategy());
  execution.layout = static_cast<Layout>(proto.layout());
  execution.world_size = proto.world_size();
  execution.ulysses_degree = proto.ulysses_degree();
  execution.ring_degree = proto.ring_degree();
  execution.inner_ring_degree = proto.inner_ring_degree();
  execution.head_deal = static_cast<HeadAssignment>(proto.head_deal());
  execution.stripe = proto.stripe();
  execution.bf16_partials = proto.bf16_partials();
  execution.priority = proto.priority();
  execution.timeline = proto.timeline();
  return execution;
}

v1::Execution ExecutionToProto(const Execution& execution) {
  v1::Execution proto;
  proto.set_strategy(static_cast<v1::Execution::Strategy>(execution.strategy));
  proto.set_layout(static_cast<v1::Execution::Layout>(execution.layout));
  proto.set_world_size(execution.world_size);
  proto.set_ulysses_degree(execution.ulysses_degree);
  proto.set_ring_degree(execution.ring_degree);
  proto.set_inner_ring_degree(execution.inner_ring_degree);
  proto.set_head_deal(static_cast<v1::Execution::HeadDeal>(execution.head_deal));
  proto.set_stripe(execution.stripe);
  proto.set_bf16_partials(execution.bf16_partials);
  proto.set_priority(execution.priority);
  proto.set_timeline(execution.timeline);
  return proto;
}

PlanOptions PlanOptionsOf(const Execution& execution, int64_t granule) {
  return {execution.world_size, execution.layout, std::max<int64_t>(1, execution.stripe),
          std::max<int64_t>(1, granule)};
}

void RowMapToProto(const RowMap& map, google::protobuf::RepeatedPtrField<v1::RowRange>* ranges) {
  for (const RowRange& range : map.ranges()) {
    v1::RowRange* out = ranges->Add();
    out->set_begin(range.begin);
    out->set_block(range.block);
    out->set_stride(range.stride);
    out->set_count(range.count);
  }
}

absl::StatusOr<RowMap> RowMapFromProto(
    const google::protobuf::RepeatedPtrField<v1::RowRange>& ranges) {
  std::vector<RowRange> result;
  int64_t end = 0;  // End of the previous range.
  for (int i = 0; i < ranges.size(); ++i) {
    const v1::RowRange& range = ranges.Get(i);
    int64_t span, last_end;
    const bool valid = range.begin() >= end && range.block() > 0 && range.count() > 0 &&
                       range.stride() >= range.block() &&
                       !__builtin_mul_overflow(range.stride(), range.count() - 1, &span) &&
                       !__builtin_add_overflow(span, range.block(), &span) &&
                       !__builtin_add_overflow(range.begin(), span, &last_end);
    if (!valid) {
      return InvalidField("SHAPE_MISMATCH", absl::StrCat("ranges[", i, "]"),
                          "row ranges must be positive, increasing and disjoint");
    }
    end = last_end;
    result.push_back({range.begin(), range.block(), range.stride(), range.count()});
  }
  return RowMap(std::move(result));
}

v1::Error ErrorToProto(const absl::Status& status) {
  v1::Error error;
  if (status.ok()) return error;
  const ErrorDetail detail = DetailOf(status);
  error.set_code(static_cast<int>(status.code()));
  error.set_reason(ReasonOrCode(status));
  error.set_message(std::string(status.message()));
  error.mutable_metadata()->insert(detail.metadata.begin(), detail.metadata.end());
  for (const FieldViolation& violation : detail.fields) {
    v1::FieldViolation* out = error.add_field_violations();
    out->set_field(violation.field);
    out->set_description(violation.description);
  }
  if (detail.retry_after) *error.mutable_retry_after() = DurationToProto(*detail.retry_after);
  return error;
}

absl::Status ErrorFromProto(const v1::Error& error) {
  if (error.code() == 0) return absl::OkStatus();
  ErrorDetail detail;
  detail.reason = error.reason();
  detail.metadata.insert(error.metadata().begin(), error.metadata().end());
  for (const v1::FieldViolation& violation : error.field_violations()) {
    detail.fields.push_back({violation.field(), violation.description()});
  }
  if (error.has_retry_after()) detail.retry_after = DurationFromProto(error.retry_after());
  return MakeError(static_cast<absl::StatusCode>(error.code()), error.message(), detail);
}

google::protobuf::Duration DurationToProto(absl::Duration duration) {
  google::protobuf::Duration proto;
  // The limit of protobuf. An infinite duration would overflow.
  const absl::Duration bound = absl::Seconds(315576000000);
  duration = std::clamp(duration, -bound, bound);
  proto.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &duration));
  proto.set_nanos(static_cast<int32_t>(duration / absl::Nanoseconds(1)));
  return proto;
}

absl::Duration DurationFromProto(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
}

google::protobuf::Timestamp TimeToProto(absl::Time time) {
  google::protobuf::Timestamp proto;
  time = std::clamp(time, absl::UnixEpoch(), absl::FromUnixSeconds(253402300799));
  const int64_t seconds = absl::ToUnixSeconds(time);
  proto.set_seconds(seconds);
  proto.set_nanos(
      static_cast<int32_t>((time - absl::FromUnixSeconds(seconds)) / absl::Nanoseconds(1)));
  return proto;
}

absl::Time TimeFromProto(const google::protobuf::Timestamp& timestamp) {
  return absl::FromUnixSeconds(timestamp.seconds()) + absl::Nanoseconds(timestamp.nanos());
}

}  // namespace annulus
