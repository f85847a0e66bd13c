#include "client/cli/files/shard_files.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attention/spec/tensor_table.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "client/cli/files/lse_notes.h"
#include "client/cli/files/shard_notes.h"
#include "client/cli/safetensors/file_error.h"
#include "client/cli/safetensors/safetensor_types.h"
#include "nlohmann/json.hpp"

namespace annulus {
namespace {

using Json = nlohmann::json;

absl::Status BadPlan(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("not a plan of `annulus plan --json`: ", what),
                   {"BAD_PLAN", {}, {}, {}});
}

absl::Status BadTensor(const char* reason, const std::string& name, absl::string_view what) {
  // A name from a file may have any characters.
  const std::string shown = absl::Utf8SafeCEscape(name);
  return MakeError(absl::StatusCode::kInvalidArgument, absl::StrCat("tensor ", shown, " ", what),
                   {reason, {{"tensor", shown}}, {}, {}});
}

absl::StatusOr<int64_t> NumberOf(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number_unsigned() || found->get<uint64_t>() > INT64_MAX) {
    return BadPlan(absl::StrCat("\"", name, "\" is absent or not a whole number of 0 to 2^63 - 1"));
  }
  return found->get<int64_t>();
}

using Ranges = google::protobuf::RepeatedPtrField<v1::RowRange>;
absl::Status ReadRanges(const Json& shard, const char* name, Ranges* ranges) {
  const auto list = shard.find(name);
  if (list == shard.end() || !list->is_array()) {
    return BadPlan(absl::StrCat("a shard has no list \"", name, "\""));
  }
  for (const Json& each : *list) {
    if (!each.is_object()) return BadPlan("a range of rows is not an object");
    v1::RowRange* range = ranges->Add();
    ASSIGN_OR_RETURN(const int64_t begin, NumberOf(each, "begin"));
    ASSIGN_OR_RETURN(const int64_t block, NumberOf(each, "block"));
    ASSIGN_OR_RETURN(const int64_t stride, NumberOf(each, "stride"));
    ASSIGN_OR_RETURN(const int64_t count, NumberOf(each, "count"));
    range->set_begin(begin);
    range->set_block(block);
    range->set_stride(stride);
    range->set_count(count);
  }
  return absl::OkStatus();
}

// The meaning of a tensor's name.
struct Kind {
  TensorId id;
  RowSpace rows;
  int before, after;  // Dimensions before and after the tokens, without a batch.
};
constexpr Kind kKinds[] = {
    {TensorId::kQ, RowSpace::kQuery, 0, 2},       {TensorId::kK, RowSpace::kKey, 0, 2},
    {TensorId::kV, RowSpace::kKey, 0, 2},         {TensorId::kOut, RowSpace::kQuery, 0, 2},
    {TensorId::kDOut, RowSpace::kQuery, 0, 2},    {TensorId::kDq, RowSpace::kQuery, 0, 2},
    {TensorId::kDk, RowSpace::kKey, 0, 2},        {TensorId::kDv, RowSpace::kKey, 0, 2},
    {TensorId::kLse, RowSpace::kQuery, 1, 0},     {TensorId::kMaxLogit, RowSpace::kQuery, 1, 0},
    {TensorId::kDLse, RowSpace::kQuery, 1, 0},    {TensorId::kLseOffset, RowSpace::kQuery, 1, 0},
    {TensorId::kLseRest, RowSpace::kQuery, 1, 0},
};

constexpr char kUnknown[] = "has an unknown name, so its token dimension is unknown";

absl::StatusOr<const Kind*> KindOf(const std::string& name) {
  const auto* kind = std::find_if(std::begin(kKinds), std::end(kKinds),
                                  [&](const Kind& each) { return TensorName(each.id) == name; });
  if (kind != std::end(kKinds)) return kind;
  return BadTensor("UNKNOWN_TENSOR", name, kUnknown);
}

absl::Status CheckAllKnown(const SafetensorsFile& file) {
  for (const SafetensorInfo& info : file.tensors()) {
    if (KindOf(info.name).ok()) continue;
    return BadTensor("UNKNOWN_TENSOR", info.name,
                     absl::StrCat(kUnknown, "; to skip a tensor, name it in --ignore-tensors"));
  }
  return absl::OkStatus();
}

using NamedLayout = std::optional<TensorLayout>;  // Absent: the default.

// True for tensors to which a named layout applies.
bool HasHeadsAndDim(const Kind& kind) { return kind.after == 2; }

// `whole`: the shape of a whole tensor, which may have a leading batch; else of a shard.
absl::StatusOr<TensorShape> ShapeInFile(const SafetensorInfo& info, NamedLayout layout,
                                        bool whole) {
  ASSIGN_OR_RETURN(const Kind* const kind, KindOf(info.name));
  const int dims = kind->before + 1 + kind->after, given = static_cast<int>(info.shape.size());
  const bool batch = given == dims + 1;
  const bool named = layout.has_value() && HasHeadsAndDim(*kind);
  const bool may_be = whole ? !named || batch == HasBatch(*layout) : !batch;
  if (!may_be || (given != dims && !batch)) {
    const std::string wanted = whole && named
                                   ? DimensionNames(*layout)
                                   : absl::StrCat(dims, whole ? ", or one more for a batch" : "");
    return BadTensor("SHAPE_MISMATCH", info.name,
                     absl::StrCat("has ", given, " dimensions, not ", wanted));
  }
  const bool heads_first = HasHeadsAndDim(*kind) && ShardLayout(layout) == TensorLayout::kHnd;
  TensorShape shape;
  shape.rows = kind->rows;
  shape.element_bytes = SafetensorElementBytes(info.dtype);
  if (shape.element_bytes == 0) {
    return BadTensor("UNSUPPORTED_DTYPE", info.name,
                     absl::StrCat("is ", info.dtype,
                                  ", but the elements must be of a known size in whole bytes"));
  }
  shape.shape = info.shape;
  shape.token_dim = (heads_first ? 1 : kind->before) + (batch ? 1 : 0);
  shape.has_batch = batch;
  return shape;
}

// True if sequences are not the outermost dimension. Such a tensor is cut as [batch, tokens, heads,
// dim].
bool IsTurned(const std::string& name, NamedLayout layout) {
  const absl::StatusOr<const Kind*> kind = KindOf(name);
  return layout == TensorLayout::kSbhd && kind.ok() && HasHeadsAndDim(**kind);
}

// The bytes of a whole tensor with sequences outermost. `turned` owns them if they had to be
// copied.
absl::StatusOr<absl::Span<const std::byte>> SequencesOutermost(const SafetensorsFile& file,
                                                               NamedLayout layout,
                                                               SafetensorInfo* info,
                                                               std::vector<std::byte>* turned) {
  const absl::Span<const std::byte> bytes = file.Bytes(*info);
  if (!IsTurned(info->name, layout) || info->shape.size() != 4) return bytes;
  const CallerTensor tensor{*layout, SafetensorElementBytes(info->dtype), info->shape, {}};
  turned->resize(bytes.size());
  RETURN_IF_ERROR(PackRows(tensor, bytes, absl::MakeSpan(*turned)));
  info->shape = ShapeIn(TensorLayout::kBshd, ExtentsOf(*layout, info->shape));
  return *turned;
}

// The inverse of SequencesOutermost().
absl::Status TurnBack(NamedLayout layout, int64_t element_bytes, OwnedTensor* tensor) {
  if (!IsTurned(tensor->name, layout)) return absl::OkStatus();
  CallerTensor turned{*layout, element_bytes, {}, {}};
  turned.shape = ShapeIn(*layout, ExtentsOf(TensorLayout::kBshd, tensor->shape));
  std::vector<std::byte> bytes(tensor->bytes.size());
  RETURN_IF_ERROR(UnpackRows(turned, tensor->bytes, absl::MakeSpan(bytes)));
  tensor->bytes = std::move(bytes);
  tensor->shape = std::move(turned.shape);
  return absl::OkStatus();
}

absl::Status Naming(const std::string& name, const absl::Status& status) {
  if (status.ok()) return status;
  ErrorDetail detail = DetailOf(status);
  detail.metadata["tensor"] = name;
  return MakeError(status.code(), absl::StrCat("tensor ", name, ": ", status.message()), detail);
}

absl::Status CheckHasAny(const SafetensorsFile& file) {
  if (!file.tensors().empty()) return absl::OkStatus();
  return InFile(file.path(), MakeError(absl::StatusCode::kInvalidArgument, "it has no tensors",
                                       {"MISSING_TENSOR", {}, {}, {}}));
}

absl::Status CheckHasAll(const std::vector<SafetensorInfo>& wanted, const SafetensorsFile& file,
                         size_t rank) {
  for (const SafetensorInfo& info : wanted) {
    // The names are known, so there are few.
    RETURN_IF_ERROR(KindOf(info.name).status());
    if (file.Find(info.name) != nullptr) continue;
    return InFile(file.path(), BadTensor("MISSING_TENSOR", info.name,
                                         absl::StrCat("is missing in the file of rank ", rank,
                                                      ", but present in that of another rank")));
  }
  return absl::OkStatus();
}

absl::Status CheckSameNames(const std::vector<SafetensorsFile>& files) {
  for (size_t rank = 1; rank < files.size(); ++rank) {
    RETURN_IF_ERROR(CheckHasAll(files[0].tensors(), files[rank], rank));
    RETURN_IF_ERROR(CheckHasAll(files[rank].tensors(), files[0], 0));
  }
  return absl::OkStatus();
}

std::string RanksText(const PlanRows& plan) {
  const int32_t last = plan.ranks() - 1;
  if (last < 0) return "none";
  return last == 0 ? "only rank 0" : absl::StrCat("ranks 0 ", last == 1 ? "and " : "to ", last);
}

// For example "F32 [3, 8, 64]".
std::string Text(const std::string& dtype, const std::vector<int64_t>& shape) {
  return absl::StrCat(dtype, " [", absl::StrJoin(shape, ", "), "]");
}

// The shape of the whole tensor, from a shard's.
absl::StatusOr<TensorShape> WholeShape(const PlanRows& plan, const SafetensorInfo& info,
                                       int64_t batch, NamedLayout layout) {
  ASSIGN_OR_RETURN(TensorShape shape, ShapeInFile(info, layout, /*whole=*/false));
  const int64_t rows = plan.rows(shape.rows);
  shape.shape[static_cast<size_t>(shape.token_dim)] = rows;
  if (batch <= 0) return shape;
  if (rows % batch != 0) {
    return BadTensor("SHAPE_MISMATCH", info.name,
                     absl::StrCat("has ", rows, " rows, not a multiple of --batch ", batch));
  }
  shape.shape[static_cast<size_t>(shape.token_dim)] = rows / batch;
  shape.shape.insert(shape.shape.begin(), batch);
  shape.has_batch = true;
  ++shape.token_dim;
  return shape;
}

absl::Status CheckGivenOnce(const std::vector<SafetensorsFile>& files) {
  for (size_t i = 0; i < files.size(); ++i) {
    if (!SafetensorsFile::IsGivenBefore(files, i)) continue;
    return InFile(files[i].path(),
                  MakeError(absl::StatusCode::kInvalidArgument,
                            "it is given twice, but it can be the file of only one rank",
                            {"INPUT_TWICE", {}, {}, {}}));
  }
  return absl::OkStatus();
}

absl::Status CheckBatch(NamedLayout layout, int64_t batch) {
  if (!layout.has_value() || HasBatch(*layout) == (batch > 0)) return absl::OkStatus();
  return InvalidField("SHAPE_MISMATCH", "batch",
                      absl::StrCat("is ", batch, ", but the layout is ", DimensionNames(*layout)));
}

}  // namespace

TensorLayout ShardLayout(std::optional<TensorLayout> layout) {
  const bool heads_first = layout == TensorLayout::kHnd || layout == TensorLayout::kBhsd;
  return heads_first ? TensorLayout::kHnd : TensorLayout::kThd;
}

absl::StatusOr<v1::Plan> ParsePlan(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return BadPlan("it is not a JSON object");
  const auto shards = json.find("shards");
  if (shards == json.end() || !shards->is_array()) return BadPlan("it has no list \"shards\"");
  v1::Plan plan;
  for (const Json& each : *shards) {
    if (!each.is_object()) return BadPlan("a shard is not an object");
    v1::ShardPlan* shard = plan.add_shards();
    ASSIGN_OR_RETURN(const int64_t rank, NumberOf(each, "rank"));
    if (rank != plan.shards_size() - 1) return BadPlan("the ranks are not 0, 1, … in order");
    shard->set_rank(static_cast<int32_t>(rank));
    RETURN_IF_ERROR(ReadRanges(each, "q_rows", shard->mutable_q_rows()));
    RETURN_IF_ERROR(ReadRanges(each, "kv_rows", shard->mutable_kv_rows()));
  }
  return plan;
}

std::vector<SafetensorView> ViewsOf(const std::vector<OwnedTensor>& tensors) {
  std::vector<SafetensorView> views;
  for (const OwnedTensor& tensor : tensors)
    views.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes});
  return views;
}

absl::StatusOr<std::vector<OwnedTensor>> ShardFile(const PlanRows& plan,
                                                   const SafetensorsFile& file, int32_t rank,
                                                   std::optional<TensorLayout> layout) {
  if (rank < 0 || rank >= plan.ranks()) {
    const std::string what = absl::StrCat(rank, " is not in the plan, which has ", RanksText(plan));
    return MakeError(absl::StatusCode::kInvalidArgument, absl::StrCat("--rank: ", what),
                     {"INVALID_RANK", {}, {{"rank", what}}, {}});
  }
  RETURN_IF_ERROR(CheckHasAny(file));
  RETURN_IF_ERROR(CheckAllKnown(file));
  RETURN_IF_ERROR(CheckLse(file, "lse", {std::nullopt, /*tokens_heads=*/false, std::nullopt}));
  std::vector<OwnedTensor> tensors;
  for (SafetensorInfo info : file.tensors()) {
    RETURN_IF_ERROR(ShapeInFile(info, layout, /*whole=*/true).status());
    std::vector<std::byte> turned;
    const auto bytes = SequencesOutermost(file, layout, &info, &turned);
    RETURN_IF_ERROR(Naming(info.name, bytes.status()));
    ASSIGN_OR_RETURN(const TensorShape shape, ShapeInFile(info, layout, /*whole=*/true));
    absl::StatusOr<TensorShard> shard = ShardTensor(plan, shape, *bytes, rank);
    RETURN_IF_ERROR(Naming(info.name, shard.status()));
    tensors.push_back({info.name, info.dtype, std::move(shard->shape), std::move(shard->bytes)});
  }
  RETURN_IF_ERROR(file.CheckUnchanged());
  return tensors;
}

absl::StatusOr<std::vector<OwnedTensor>> UnshardFiles(const PlanRows& plan,
                                                      const std::vector<SafetensorsFile>& files,
                                                      int64_t batch,
                                                      std::optional<TensorLayout> layout) {
  RETURN_IF_ERROR(CheckBatch(layout, batch));
  if (files.size() != static_cast<size_t>(plan.ranks())) {
    const auto counted = [](int64_t count, const char* noun) {
      return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
    };
    const std::string what = absl::StrCat(counted(static_cast<int64_t>(files.size()), "file"),
                                          " for a plan of ", counted(plan.ranks(), "rank"));
    return MakeError(absl::StatusCode::kInvalidArgument, what,
                     {"INVALID_RANK", {}, {{"files", what}}, {}});
  }
  RETURN_IF_ERROR(CheckShardNotes(plan, ShardLayout(layout), files));
  RETURN_IF_ERROR(CheckGivenOnce(files));
  RETURN_IF_ERROR(CheckSameNames(files));
  RETURN_IF_ERROR(CheckHasAny(files[0]));
  std::vector<OwnedTensor> tensors;
  for (const SafetensorInfo& info : files[0].tensors()) {
    ASSIGN_OR_RETURN(const TensorShape shape, WholeShape(plan, info, batch, layout));
    std::vector<absl::Span<const std::byte>> shards;
    for (int32_t rank = 0; rank < plan.ranks(); ++rank) {
      const SafetensorsFile& file = files[static_cast<size_t>(rank)];
      const SafetensorInfo* part = file.Find(info.name);
      absl::StatusOr<std::vector<int64_t>> wanted = ShardShape(plan, shape, rank);
      RETURN_IF_ERROR(Naming(info.name, wanted.status()));
      if (part->dtype != info.dtype || part->shape != *wanted) {
        return InFile(file.path(), BadTensor("SHAPE_MISMATCH", info.name,
                                             absl::StrCat("of rank ", rank, " is ",
                                                          Text(part->dtype, part->shape), ", not ",
                                                          Text(info.dtype, *wanted))));
      }
      shards.push_back(file.Bytes(*part));
    }
    absl::StatusOr<std::vector<std::byte>> whole = UnshardTensor(plan, shape, shards);
    RETURN_IF_ERROR(Naming(info.name, whole.status()));
    tensors.push_back({info.name, info.dtype, shape.shape, *std::move(whole)});
    RETURN_IF_ERROR(TurnBack(layout, shape.element_bytes, &tensors.back()));
  }
  for (const SafetensorsFile& file : files) RETURN_IF_ERROR(file.CheckUnchanged());
  return tensors;
}

}  // namespace annulus
