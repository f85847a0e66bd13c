#include "client/cli/files/shard_tensor.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "proto/wire/convert.h"

namespace annulus {
namespace {

// Bounds the work: each row is visited once. Plans of the service are far smaller.
constexpr int64_t kMaxRows = int64_t{1} << 28;

using Ranges = google::protobuf::RepeatedPtrField<v1::RowRange>;

absl::Status InvalidPlan(absl::string_view field, absl::string_view what) {
  return InvalidField("INVALID_PLAN", absl::StrCat("plan.", field), what);
}

absl::StatusOr<RowMap> RowsOf(const Ranges& ranges, const std::string& field) {
  absl::StatusOr<RowMap> rows = RowMapFromProto(ranges);
  if (!rows.ok()) return InvalidPlan(field, rows.status().message());
  return rows;
}

// The number of rows of all maps together. Each row of [0, rows) must be in exactly one of them.
absl::StatusOr<int64_t> RowsOfAll(const std::vector<RowMap>& ranks, const char* side) {
  int64_t rows = 0;
  for (const RowMap& rank : ranks) {
    if (rank.rows() > kMaxRows - rows) return InvalidPlan("shards", "have more than 2^28 rows");
    rows += rank.rows();
  }
  std::vector<bool> taken(static_cast<size_t>(rows), false);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    bool good = true;
    ranks[rank].ForEachRun({0, ranks[rank].rows()}, [&](int64_t, int64_t global, int64_t count) {
      for (int64_t row = global; good && row < global + count; ++row) {
        good = row < rows && !taken[row];
        if (good) taken[row] = true;
      }
    });
    if (good) continue;
    return InvalidPlan(absl::StrCat("shards[", rank, "].", side),
                       "has a row that another shard has too, or that is past the end of the job");
  }
  return rows;
}

// The product of dimensions [begin, end), which are not negative. Absent if it overflows.
std::optional<int64_t> Product(const std::vector<int64_t>& shape, size_t begin, size_t end) {
  int64_t product = 1;
  for (size_t i = begin; i < end; ++i) {
    if (__builtin_mul_overflow(product, shape[i], &product)) return std::nullopt;
  }
  return product;
}

// A checked tensor: for each of `batch` sequences, `blocks` blocks of `tokens` rows of `row_bytes`.
struct Extents {
  int64_t batch = 1, blocks = 1, tokens = 0, row_bytes = 0;
  int64_t bytes() const { return batch * blocks * tokens * row_bytes; }
};

absl::Status BadShape(const char* field, absl::string_view what) {
  return InvalidField("SHAPE_MISMATCH", absl::StrCat("tensor.", field), what);
}

absl::StatusOr<Extents> ExtentsOf(const PlanRows& plan, const TensorShape& tensor) {
  const size_t dims = tensor.shape.size(), first = tensor.has_batch ? 1 : 0;
  if (tensor.element_bytes <= 0) return BadShape("element_bytes", "must be more than 0");
  if (tensor.token_dim < static_cast<int>(first) || tensor.token_dim >= static_cast<int>(dims)) {
    return BadShape("token_dim", "is not a dimension of the shape after the batch");
  }
  if (std::any_of(tensor.shape.begin(), tensor.shape.end(), [](int64_t n) { return n < 0; })) {
    return BadShape("shape", "has a negative dimension");
  }
  const auto token_dim = static_cast<size_t>(tensor.token_dim);
  std::vector<int64_t> all = tensor.shape;
  all.push_back(tensor.element_bytes);
  // Zero dimensions must not hide an overflow of the others.
  std::vector<int64_t> largest = all;
  for (int64_t& n : largest) n = std::max<int64_t>(n, 1);
  if (!Product(largest, 0, largest.size())) return BadShape("shape", "has too many elements");
  Extents extents;
  if (tensor.has_batch) extents.batch = all[0];
  extents.blocks = *Product(all, first, token_dim);
  extents.tokens = all[token_dim];
  extents.row_bytes = *Product(all, token_dim + 1, all.size());
  const int64_t rows = extents.batch * extents.tokens;
  if (rows == plan.rows(tensor.rows)) return extents;
  return BadShape("shape",
                  absl::StrCat("has ", rows, " rows, but the plan has ", plan.rows(tensor.rows),
                               tensor.rows == RowSpace::kQuery ? " query rows" : " key rows"));
}

absl::Status CheckRank(const PlanRows& plan, int32_t rank) {
  if (rank >= 0 && rank < plan.ranks()) return absl::OkStatus();
  return InvalidField("INVALID_RANK", "rank",
                      absl::StrCat("is ", rank, ", but the plan has ", plan.ranks(), " ranks"));
}

absl::Status WrongBytes(const std::string& field, size_t bytes, int64_t wanted) {
  return InvalidField("TENSOR_BYTES_MISMATCH", field,
                      absl::StrCat("has ", bytes, " bytes, not ", wanted));
}

// Requires a checked tensor and rank.
std::vector<int64_t> ShapeOfShard(const PlanRows& plan, const TensorShape& tensor, int32_t rank) {
  std::vector<int64_t> shape = tensor.shape;
  shape[static_cast<size_t>(tensor.token_dim)] = plan.Of(tensor.rows, rank).rows();
  if (tensor.has_batch) shape.erase(shape.begin());
  return shape;
}

// A run of rows: its offsets in the tensor and in the shard, and its length, in bytes.
struct Run {
  int64_t in_tensor, in_shard, bytes;
};

// Calls fn for all runs of a rank's rows, block by block. A run is contiguous in tensor and shard.
void ForEachRun(const RowMap& rows, const Extents& of, absl::FunctionRef<void(const Run&)> fn) {
  rows.ForEachRun({0, rows.rows()}, [&](int64_t local, int64_t global, int64_t count) {
    while (count > 0) {  // Once for each sequence.
      const int64_t sequence = global / of.tokens, token = global % of.tokens;
      const int64_t taken = std::min(count, of.tokens - token);
      for (int64_t block = 0; block < of.blocks; ++block) {
        fn({((sequence * of.blocks + block) * of.tokens + token) * of.row_bytes,
            (block * rows.rows() + local) * of.row_bytes, taken * of.row_bytes});
      }
      local += taken;
      global += taken;
      count -= taken;
    }
  });
}

void Copy(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

absl::StatusOr<PlanRows> PlanRows::Of(const v1::Plan& plan) {
  PlanRows rows;
  for (const v1::ShardPlan& shard : plan.shards()) {
    const std::string path = absl::StrCat("shards[", rows.q_.size(), "].");
    if (shard.rank() != rows.ranks())
      return InvalidPlan(path + "rank", "is not the index of its shard");
    ASSIGN_OR_RETURN(RowMap q, RowsOf(shard.q_rows(), path + "q_rows"));
    ASSIGN_OR_RETURN(RowMap kv, RowsOf(shard.kv_rows(), path + "kv_rows"));
    rows.q_.push_back(std::move(q));
    rows.kv_.push_back(std::move(kv));
  }
  if (rows.q_.empty()) return InvalidPlan("shards", "must not be empty");
  ASSIGN_OR_RETURN(rows.q_rows_, RowsOfAll(rows.q_, "q_rows"));
  ASSIGN_OR_RETURN(rows.kv_rows_, RowsOfAll(rows.kv_, "kv_rows"));
  return rows;
}

absl::StatusOr<std::vector<int64_t>> ShardShape(const PlanRows& plan, const TensorShape& tensor,
                                                int32_t rank) {
  RETURN_IF_ERROR(CheckRank(plan, rank));
  RETURN_IF_ERROR(ExtentsOf(plan, tensor).status());
  return ShapeOfShard(plan, tensor, rank);
}

absl::StatusOr<TensorShard> ShardTensor(const PlanRows& plan, const TensorShape& tensor,
                                        absl::Span<const std::byte> bytes, int32_t rank) {
  RETURN_IF_ERROR(CheckRank(plan, rank));
  ASSIGN_OR_RETURN(const Extents extents, ExtentsOf(plan, tensor));
  if (static_cast<int64_t>(bytes.size()) != extents.bytes()) {
    return WrongBytes("tensor.bytes", bytes.size(), extents.bytes());
  }
  const RowMap& rows = plan.Of(tensor.rows, rank);
  TensorShard shard;
  shard.shape = ShapeOfShard(plan, tensor, rank);
  shard.bytes.resize(static_cast<size_t>(rows.rows() * extents.blocks * extents.row_bytes));
  ForEachRun(rows, extents, [&](const Run& run) {
    Copy(shard.bytes.data() + run.in_shard, bytes.data() + run.in_tensor, run.bytes);
  });
  return shard;
}

absl::StatusOr<std::vector<std::byte>> UnshardTensor(
    const PlanRows& plan, const TensorShape& tensor,
    absl::Span<const absl::Span<const std::byte>> shards) {
  ASSIGN_OR_RETURN(const Extents extents, ExtentsOf(plan, tensor));
  if (static_cast<int64_t>(shards.size()) != plan.ranks()) {
    return InvalidField(
        "TENSOR_BYTES_MISMATCH", "shards",
        absl::StrCat("has ", shards.size(), " entries for ", plan.ranks(), " ranks"));
  }
  std::vector<std::byte> bytes(static_cast<size_t>(extents.bytes()));
  for (int32_t rank = 0; rank < plan.ranks(); ++rank) {
    const RowMap& rows = plan.Of(tensor.rows, rank);
    const absl::Span<const std::byte> shard = shards[static_cast<size_t>(rank)];
    const int64_t wanted = rows.rows() * extents.blocks * extents.row_bytes;
    if (static_cast<int64_t>(shard.size()) != wanted) {
      return WrongBytes(absl::StrCat("shards[", rank, "]"), shard.size(), wanted);
    }
    ForEachRun(rows, extents, [&](const Run& run) {
      Copy(bytes.data() + run.in_tensor, shard.data() + run.in_shard, run.bytes);
    });
  }
  return bytes;
}

}  // namespace annulus
