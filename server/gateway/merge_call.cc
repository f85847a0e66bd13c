#include "server/gateway/merge_call.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/numerics/merge_partials.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "proto/wire/convert.h"

namespace annulus {
namespace {

using Base = v1::Outputs;
using Shapes = v1::Partial;

std::vector<int64_t> ShapeOf(const v1::InlineTensor& tensor) {
  return {tensor.shape().begin(), tensor.shape().end()};
}

absl::Span<const float> NumbersOf(const v1::InlineTensor& tensor) {
  return absl::MakeConstSpan(tensor.values().data(), static_cast<size_t>(tensor.values_size()));
}

LseBase BaseOf(Base::LseBase base) { return base == Base::LSE_BASE_2 ? LseBase::k2 : LseBase::kE; }

LseLayout LayoutOf(Shapes::LseLayout layout) {
  return layout == Shapes::LSE_LAYOUT_HEADS_ROWS ? LseLayout::kHeadsRows : LseLayout::kRowsHeads;
}

// The value is known, and set if there is no default.
absl::Status CheckNamed(bool known, int value, const std::string& path, bool needed) {
  if (!known) {
    return InvalidField("UNKNOWN_ENUM", path, absl::StrCat(value, " is not a known value"));
  }
  if (value != 0 || !needed) return absl::OkStatus();
  return InvalidField("INVALID_REQUEST", path, "must be set; there is no default");
}

absl::Status CheckHowLseIsSaid(Base::LseBase base, Shapes::LseLayout layout,
                               const std::string& path, bool needed) {
  RETURN_IF_ERROR(CheckNamed(Base::LseBase_IsValid(base), base, path + "lse_base", needed));
  return CheckNamed(Shapes::LseLayout_IsValid(layout), layout, path + "lse_layout", needed);
}

absl::StatusOr<FinishedPartial> PartialFromProto(const v1::Partial& proto,
                                                 const std::string& path) {
  RETURN_IF_ERROR(CheckFieldsKnown(proto, path));
  RETURN_IF_ERROR(CheckFieldsKnown(proto.out(), path + ".out"));
  RETURN_IF_ERROR(CheckFieldsKnown(proto.lse(), path + ".lse"));
  RETURN_IF_ERROR(CheckFieldsKnown(proto.lse_rest(), path + ".lse_rest"));
  RETURN_IF_ERROR(CheckHowLseIsSaid(proto.lse_base(), proto.lse_layout(), path + ".", true));
  FinishedPartial partial;
  partial.out_shape = ShapeOf(proto.out());
  partial.lse_shape = ShapeOf(proto.lse());
  partial.rest_shape = ShapeOf(proto.lse_rest());
  partial.out = NumbersOf(proto.out());
  partial.lse = NumbersOf(proto.lse());
  partial.rest = NumbersOf(proto.lse_rest());
  partial.base = BaseOf(proto.lse_base());
  partial.layout = LayoutOf(proto.lse_layout());
  partial.nonfinite_is_empty = proto.nonfinite_is_empty();
  return partial;
}

void TensorToProto(const std::vector<int64_t>& shape, const std::vector<float>& numbers,
                   v1::InlineTensor* tensor) {
  tensor->mutable_shape()->Add(shape.begin(), shape.end());
  tensor->mutable_values()->Add(numbers.begin(), numbers.end());
}

class MergeCall : public GatedCall<v1::MergePartialsRequest, v1::Partial> {
 public:
  MergeCall(grpc::CallbackServerContext* context, grpc::ByteBuffer* response,
            const InlineResources& resources)
      : GatedCall(context, response, resources) {}

  void Start(std::shared_ptr<MergeCall> self, const grpc::ByteBuffer* arrived) {
    Keep(self);
    const absl::Status taken = Take(arrived);
    if (!taken.ok()) return Leave(taken);
    Post([self] {
      self->Leave(self->cancelled_ ? absl::CancelledError("the call was cancelled")
                                   : AnswerMerge(self->request_, &self->response_));
    });
  }

  void OnCancel() override { cancelled_ = true; }

 private:
  absl::Status Take(const grpc::ByteBuffer* arrived) {
    RETURN_IF_ERROR(Enter(arrived));
    return Reserve(MergeBytes(request_)).status();
  }

  std::atomic<bool> cancelled_{false};
};

}  // namespace

int64_t MergeBytes(const v1::MergePartialsRequest& request) {
  int64_t answer = 0;
  for (const v1::Partial& partial : request.partials()) {
    answer =
        std::max(answer, partial.out().values_size() + 2 * int64_t{partial.lse().values_size()});
  }
  return static_cast<int64_t>(request.SpaceUsedLong()) +
         2 * answer * static_cast<int64_t>(sizeof(float));
}

absl::Status AnswerMerge(const v1::MergePartialsRequest& request, v1::Partial* response) {
  RETURN_IF_ERROR(CheckFieldsKnown(request, ""));
  RETURN_IF_ERROR(CheckHowLseIsSaid(request.lse_base(), request.lse_layout(), "", false));
  RETURN_IF_ERROR(CheckPartialCount(request.partials_size()));  // Before there is one for each.
  std::vector<FinishedPartial> partials;
  for (int i = 0; i < request.partials_size(); ++i) {
    ASSIGN_OR_RETURN(partials.emplace_back(),
                     PartialFromProto(request.partials(i), absl::StrCat("partials[", i, "]")));
  }
  RETURN_IF_ERROR(CheckPartials(partials));
  const LseBase base = BaseOf(request.lse_base());
  const LseLayout layout = LayoutOf(request.lse_layout());
  const MergedPartial merged = MergePartials(partials, base, layout);
  if (std::any_of(merged.lse.begin(), merged.lse.end(),
                  [](float lse) { return std::isnan(lse); })) {
    return InvalidField("CORRUPT_PARTIAL", "partials", "a merged LSE is outside the range of fp32");
  }
  TensorToProto(merged.out_shape, merged.out, response->mutable_out());
  TensorToProto(merged.lse_shape, merged.lse, response->mutable_lse());
  TensorToProto(merged.lse_shape, merged.rest, response->mutable_lse_rest());
  response->set_lse_base(base == LseBase::k2 ? Base::LSE_BASE_2 : Base::LSE_BASE_E);
  response->set_lse_layout(layout == LseLayout::kHeadsRows ? Shapes::LSE_LAYOUT_HEADS_ROWS
                                                           : Shapes::LSE_LAYOUT_ROWS_HEADS);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* StartMergeCall(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* arrived,
                                         grpc::ByteBuffer* response,
                                         const InlineResources& resources) {
  auto call = std::make_shared<MergeCall>(context, response, resources);
  call->Start(call, arrived);
  return call.get();
}

}  // namespace annulus
