#include "tests/fuzz/random_requests.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "google/protobuf/unknown_field_set.h"

namespace annulus {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

class Draw {
 public:
  explicit Draw(std::mt19937_64* random) : random_(*random) {}

  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  bool OneIn(int64_t n) { return Below(n) == 0; }
  template <typename T, size_t N>
  T Of(const T (&values)[N]) {
    return values[Below(N)];
  }
  float Number() { return static_cast<float>(Below(4001) - 2000) / 500; }

 private:
  std::mt19937_64& random_;
};

v1::Mask AnyMask(Draw* draw) {
  v1::Mask mask;
  mask.set_causal(!draw->OneIn(3));
  mask.set_alignment(static_cast<v1::Mask::Alignment>(draw->Below(3)));
  if (draw->OneIn(3)) mask.set_window_left(draw->Below(30));
  if (draw->OneIn(4)) mask.set_window_right(draw->Below(20));
  if (draw->OneIn(5)) mask.set_chunk(1 + draw->Below(40));
  if (mask.causal() && draw->OneIn(5)) mask.set_prefix(draw->Below(20));
  if (draw->OneIn(4)) mask.set_always_visible(draw->Below(6));
  for (int64_t n = draw->OneIn(4) ? 1 + draw->Below(4) : 0; n > 0; --n) {
    v1::MaskRange* range = mask.add_ranges();
    range->set_q_begin(draw->Below(40));
    range->set_q_end(range->q_begin() + draw->Below(60));
    range->set_k_begin(draw->Below(40));
    range->set_k_end(range->k_begin() + draw->Below(60));
    range->set_kind(static_cast<v1::MaskRange::Kind>(draw->Below(5)));
  }
  if (draw->OneIn(10)) mask.set_bit_mask(true);
  return mask;
}

void AddMasks(Draw* draw, v1::AttentionSpec* spec) {
  std::vector<int32_t> groups;
  for (int64_t n = draw->OneIn(4) ? draw->Below(3) : 1; n > 0; --n) {
    groups.push_back(spec->masks_size());
    *spec->add_masks() = AnyMask(draw);
    if (!draw->OneIn(4)) continue;
    v1::Mask odd = AnyMask(draw);
    for (int32_t head = 0; head < spec->q_heads(); ++head) {
      if (draw->OneIn(2)) odd.add_query_heads(head);
    }
    if (odd.query_heads_size() > 0) *spec->add_masks() = odd;
  }
  bool bits = false;
  for (const v1::Mask& mask : spec->masks()) bits |= mask.bit_mask();
  if (bits) spec->set_bit_mask_heads(draw->OneIn(2) ? spec->q_heads() : draw->OneIn(2));
  // Each group gets a sequence first, because a group without one is refused.
  const auto count = static_cast<int64_t>(groups.size());
  for (int s = 0; count > 0 && s < spec->sequences_size(); ++s) {
    spec->mutable_sequences(s)->set_mask(groups[s < count ? s : draw->Below(count)]);
  }
}

void AddOptions(Draw* draw, v1::AttentionSpec* spec) {
  if (draw->OneIn(5)) {
    constexpr double kScales[] = {0, 1, -0.3, 0.01, 0.1};
    spec->set_scale(draw->Of(kScales));
  }
  if (draw->OneIn(5)) spec->mutable_modifiers()->set_soft_cap(0.5 + draw->Below(20));
  if (draw->OneIn(5)) {
    for (int32_t i = 0; i < spec->q_heads(); ++i) {
      spec->mutable_modifiers()->add_alibi_slopes(draw->Number() / 8);
    }
  }
  if (draw->OneIn(5)) {
    for (int32_t i = 0; i < spec->q_heads(); ++i) {
      spec->mutable_modifiers()->add_sinks(draw->Number());
    }
  }
  if (draw->OneIn(6)) {
    v1::Bias* bias = spec->mutable_modifiers()->mutable_bias();
    constexpr v1::DataType kDtypes[] = {v1::DATA_TYPE_UNSPECIFIED, v1::DATA_TYPE_FP32,
                                        v1::DATA_TYPE_FP16, v1::DATA_TYPE_BF16};
    bias->set_dtype(draw->Of(kDtypes));
    bias->set_heads(draw->OneIn(2) ? spec->q_heads() : static_cast<int32_t>(draw->Below(2)));
  }
  if (draw->OneIn(10)) spec->mutable_modifiers()->set_lse_offset(true);
  if (draw->OneIn(6)) spec->mutable_outputs()->set_lse_base(v1::Outputs::LSE_BASE_2);
  if (draw->OneIn(6)) spec->mutable_outputs()->set_max_logit(true);
  if (draw->OneIn(6)) spec->mutable_outputs()->set_lse_rest(true);
  if (draw->OneIn(6)) spec->set_deterministic(true);
  if (draw->OneIn(spec->dtype() == v1::DATA_TYPE_FP32 ? 4 : 30))
    spec->set_arithmetic(v1::AttentionSpec::ARITHMETIC_BF16X3);
  if (draw->OneIn(4)) spec->set_out_dtype(draw->OneIn(3) ? spec->dtype() : v1::DATA_TYPE_FP32);
  if (draw->OneIn(8)) {
    spec->mutable_dropout()->set_rate(static_cast<double>(draw->Below(90)) / 100);
    spec->mutable_dropout()->set_seed(draw->Below(1 << 30));
  }
  if (draw->OneIn(4)) {
    spec->mutable_gradients()->set_d_lse(draw->OneIn(2));
    spec->mutable_gradients()->set_d_bias(draw->OneIn(spec->modifiers().has_bias() ? 2 : 9));
    if (draw->OneIn(20)) spec->mutable_gradients()->set_state("job-of-nobody");
    if (draw->OneIn(40)) spec->mutable_gradients()->set_release_state(true);
  } else if (draw->OneIn(8)) {
    spec->mutable_forward()->mutable_keep_state()->set_nanos(
        static_cast<int32_t>(draw->Below(50) * 1000000));
  }
}

v1::Execution AnyExecution(Draw* draw) {
  v1::Execution execution;
  if (!draw->OneIn(3))
    execution.set_strategy(
        static_cast<v1::Execution::Strategy>(draw->Below(v1::Execution::Strategy_ARRAYSIZE)));
  if (!draw->OneIn(3))
    execution.set_layout(
        static_cast<v1::Execution::Layout>(draw->Below(v1::Execution::Layout_ARRAYSIZE)));
  execution.set_world_size(static_cast<int32_t>(draw->OneIn(12) ? draw->Below(9) : draw->Below(5)));
  if (draw->OneIn(12)) execution.set_ulysses_degree(static_cast<int32_t>(draw->Below(5)));
  if (draw->OneIn(12)) execution.set_ring_degree(static_cast<int32_t>(draw->Below(5)));
  if (draw->OneIn(16)) execution.set_inner_ring_degree(static_cast<int32_t>(draw->Below(5)));
  if (draw->OneIn(12))
    execution.set_head_deal(
        static_cast<v1::Execution::HeadDeal>(draw->Below(v1::Execution::HeadDeal_ARRAYSIZE)));
  const bool sends_partials = execution.strategy() == v1::Execution::STRATEGY_RING_PASS_Q ||
                              execution.strategy() == v1::Execution::STRATEGY_TREE;
  if (draw->OneIn(sends_partials ? 2 : 30)) execution.set_bf16_partials(true);
  if (draw->OneIn(8)) execution.set_priority(static_cast<int32_t>(draw->Below(21)) - 10);
  if (execution.layout() == v1::Execution::LAYOUT_STRIPED && draw->OneIn(2)) {
    execution.set_stripe(static_cast<int32_t>(draw->OneIn(3) ? 256 : draw->Below(40)));
  }
  return execution;
}

// Collects every message that is set in the tree.
void Collect(Message* message, std::vector<Message*>* all) {
  all->push_back(message);
  const Reflection* reflection = message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      Collect(reflection->MutableMessage(message, field), all);
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(*message, field); ++i) {
      Collect(reflection->MutableRepeatedMessage(message, field, i), all);
    }
  }
}

constexpr int64_t kWhole[] = {0,
                              1,
                              2,
                              3,
                              7,
                              64,
                              255,
                              -1,
                              -2,
                              1 << 20,
                              int64_t{1} << 31,
                              int64_t{1} << 40,
                              std::numeric_limits<int64_t>::max(),
                              std::numeric_limits<int64_t>::min()};
constexpr double kReal[] = {0,
                            -0.0,
                            1,
                            -1,
                            0.5,
                            1e-30,
                            1e-300,
                            1e30,
                            1e300,
                            std::numeric_limits<double>::quiet_NaN(),
                            std::numeric_limits<double>::infinity(),
                            -std::numeric_limits<double>::infinity()};

void SetSingle(Draw* draw, const FieldDescriptor* field, Message* message) {
  const Reflection* reflection = message->GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection->SetInt32(message, field, static_cast<int32_t>(draw->Of(kWhole)));
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection->SetInt64(message, field, draw->Of(kWhole));
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection->SetUInt64(message, field, static_cast<uint64_t>(draw->Of(kWhole)));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection->SetDouble(message, field, draw->Of(kReal));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return reflection->SetFloat(message, field, static_cast<float>(draw->Of(kReal)));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->SetBool(message, field, draw->OneIn(2));
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection->SetEnumValue(message, field, static_cast<int>(draw->Below(14)) - 1);
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection->SetString(message, field, draw->OneIn(2) ? "" : "one");
    case FieldDescriptor::CPPTYPE_MESSAGE:
      reflection->MutableMessage(message, field);
      return;
    default:
      return;
  }
}

void AddOne(Draw* draw, const FieldDescriptor* field, Message* message) {
  const Reflection* reflection = message->GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection->AddInt32(message, field, static_cast<int32_t>(draw->Of(kWhole)));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return reflection->AddFloat(message, field, static_cast<float>(draw->Of(kReal)));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      reflection->AddMessage(message, field);
      return;
    default:
      return;
  }
}

void DamageField(Draw* draw, const FieldDescriptor* field, Message* message) {
  const Reflection* reflection = message->GetReflection();
  if (draw->OneIn(6)) return reflection->ClearField(message, field);
  if (!field->is_repeated()) return SetSingle(draw, field, message);
  if (draw->OneIn(2) && reflection->FieldSize(*message, field) > 0) {
    return reflection->RemoveLast(message, field);
  }
  for (int64_t n = draw->OneIn(8) ? 300 : 1; n > 0; --n) AddOne(draw, field, message);
}

}  // namespace

RandomRequest MakeRequest(std::mt19937_64* random) {
  Draw draw(random);
  RandomRequest request;
  v1::AttentionSpec& spec = request.spec;
  constexpr v1::DataType kDtypes[] = {v1::DATA_TYPE_FP32, v1::DATA_TYPE_FP16, v1::DATA_TYPE_BF16};
  spec.set_dtype(draw.Of(kDtypes));
  spec.set_kv_heads(1 + static_cast<int32_t>(draw.Below(3)));
  spec.set_q_heads(spec.kv_heads() * (1 + static_cast<int32_t>(draw.Below(3))));
  spec.set_head_dim(1 + static_cast<int32_t>(draw.OneIn(8) ? draw.Below(128) : draw.Below(24)));
  if (draw.OneIn(2)) spec.set_head_dim_v(8 + static_cast<int32_t>(draw.Below(24)));
  for (int64_t n = 1 + draw.Below(3); n > 0; --n) {
    v1::Sequence* sequence = spec.add_sequences();
    sequence->set_q_len(draw.Below(draw.OneIn(10) ? 300 : 50));
    sequence->set_kv_len(draw.Below(draw.OneIn(10) ? 600 : 60));
  }
  AddMasks(&draw, &spec);
  AddOptions(&draw, &spec);
  request.execution = AnyExecution(&draw);
  return request;
}

void Damage(std::mt19937_64* random, Message* message) {
  Draw draw(random);
  for (int64_t n = 1 + draw.Below(3); n > 0; --n) {
    std::vector<Message*> all;
    Collect(message, &all);
    Message* one = all[draw.Below(static_cast<int64_t>(all.size()))];
    if (draw.OneIn(12)) {
      one->GetReflection()->MutableUnknownFields(one)->AddVarint(100 + draw.Below(50), 1);
      continue;
    }
    const int fields = one->GetDescriptor()->field_count();
    if (fields == 0) continue;
    DamageField(&draw, one->GetDescriptor()->field(static_cast<int>(draw.Below(fields))), one);
  }
}

}  // namespace annulus
