#include "client/transport/scatter.h"

#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "proto/wire/convert.h"

namespace annulus {
namespace {

// A run of rows below this size is cheaper to copy than to carry as its own slice.
constexpr int64_t kLongRunBytes = 16 << 10;

absl::Status InvalidPlan(absl::string_view what) {
  return MakeError(absl::StatusCode::kInternal, absl::StrCat("the plan is wrong: ", what),
                   {"INVALID_PLAN", {}, {}, {}});
}

absl::Status CheckRows(const RowMap& map, int64_t rows) {
  if (map.rows() > 0 && (map.Global(0) < 0 || map.Global(map.rows() - 1) >= rows)) {
    return InvalidPlan("a shard has rows outside of the job");
  }
  return absl::OkStatus();
}

int64_t BytesPerRow(const TensorInfo& tensor, const TensorChunk& chunk) {
  return tensor.row_bytes() / tensor.heads * chunk.head_count;
}

}  // namespace

absl::StatusOr<std::vector<ShardRows>> RowsOfPlan(const v1::Plan& plan, const AttentionSpec& spec) {
  std::vector<ShardRows> shards;
  int64_t q_rows = 0, kv_rows = 0;
  for (const v1::ShardPlan& shard : plan.shards()) {
    if (shard.rank() != static_cast<int32_t>(shards.size()))
      return InvalidPlan("the ranks are not 0, 1, … in order");
    ShardRows rows;
    ASSIGN_OR_RETURN(rows.q, RowMapFromProto(shard.q_rows()));
    ASSIGN_OR_RETURN(rows.kv, RowMapFromProto(shard.kv_rows()));
    RETURN_IF_ERROR(CheckRows(rows.q, spec.q_rows()));
    RETURN_IF_ERROR(CheckRows(rows.kv, spec.kv_rows()));
    q_rows += rows.q.rows();
    kv_rows += rows.kv.rows();
    shards.push_back(std::move(rows));
  }
  if (q_rows != spec.q_rows() || kv_rows != spec.kv_rows()) {
    return InvalidPlan("the rows of its shards do not add up to those of the job");
  }
  return shards;
}

ShardRows WholeJob(const AttentionSpec& spec) {
  const auto all = [](int64_t rows) {
    return rows == 0 ? RowMap() : RowMap({RowRange{0, rows, rows, 1}});
  };
  return {all(spec.q_rows()), all(spec.kv_rows())};
}

Payload CollectRows(const TensorInfo& tensor, const RowMap& rows, Interval shard,
                    const std::byte* base, const std::shared_ptr<const void>& owner) {
  const int64_t row_bytes = tensor.row_bytes();
  int64_t runs = 0;
  rows.ForEachRun(shard, [&](int64_t, int64_t, int64_t) { ++runs; });
  if (shard.length() * row_bytes < runs * kLongRunBytes) {
    return Payload::Filled(shard.length() * row_bytes, [&](std::byte* target) {
      rows.ForEachRun(shard, [&](int64_t local, int64_t global, int64_t count) {
        std::memcpy(target + (local - shard.begin) * row_bytes, base + global * row_bytes,
                    count * row_bytes);
      });
    });
  }
  Payload payload;
  rows.ForEachRun(shard, [&](int64_t, int64_t global, int64_t count) {
    payload.Append(Payload::Shared(owner, base + global * row_bytes, count * row_bytes));
  });
  return payload;
}

void PlaceRows(const TensorInfo& tensor, const RowMap& rows, const TensorChunk& chunk,
               std::byte* base) {
  const int64_t row_bytes = tensor.row_bytes();
  const int64_t part_bytes = BytesPerRow(tensor, chunk);
  const int64_t head_offset = row_bytes / tensor.heads * chunk.head_begin;
  PayloadReader reader(chunk.data);
  const Interval shard{chunk.row_begin, chunk.row_begin + chunk.row_count};
  rows.ForEachRun(shard, [&](int64_t, int64_t global, int64_t count) {
    std::byte* target = base + global * row_bytes + head_offset;
    if (part_bytes == row_bytes) {
      reader.Read(target, count * row_bytes);
      return;
    }
    for (; count > 0; --count, target += row_bytes) reader.Read(target, part_bytes);
  });
}

TensorChunk ScatterChunk(const TensorInfo& tensor, const RowMap& rows, const TensorChunk& chunk) {
  const Interval shard = rows.Local({chunk.row_begin, chunk.row_begin + chunk.row_count});
  TensorChunk part;
  part.tensor = chunk.tensor;
  part.row_begin = shard.begin;
  part.row_count = shard.length();
  part.head_begin = chunk.head_begin;
  part.head_count = chunk.head_count;
  const int64_t row_bytes = BytesPerRow(tensor, chunk);
  int64_t runs = 0, passed = chunk.row_begin;
  rows.ForEachRun(shard, [&](int64_t, int64_t, int64_t) { ++runs; });
  PayloadReader reader(chunk.data);
  const auto skip_to = [&](int64_t global, int64_t count) {
    reader.Skip((global - passed) * row_bytes);
    passed = global + count;
  };
  if (part.row_count * row_bytes < runs * kLongRunBytes) {
    part.data = Payload::Filled(part.row_count * row_bytes, [&](std::byte* target) {
      rows.ForEachRun(shard, [&](int64_t local, int64_t global, int64_t count) {
        skip_to(global, count);
        reader.Read(target + (local - shard.begin) * row_bytes, count * row_bytes);
      });
    });
  } else {
    rows.ForEachRun(shard, [&](int64_t, int64_t global, int64_t count) {
      skip_to(global, count);
      reader.Take(count * row_bytes, &part.data);
    });
  }
  return part;
}

absl::StatusOr<const TensorInfo*> CheckInput(const std::vector<TensorInfo>& table, int64_t q_rows,
                                             int64_t kv_rows, TensorChunk* chunk) {
  const TensorInfo* tensor = FindTensor(table, chunk->tensor);
  if (tensor == nullptr || tensor->direction != Direction::kInput) {
    return InvalidField("UNKNOWN_TENSOR", "chunk.tensor",
                        absl::StrCat(TensorName(chunk->tensor), " is not an input of this job"));
  }
  const bool query = tensor->rows == RowSpace::kQuery;
  RETURN_IF_ERROR(CheckChunk(*tensor, query ? q_rows : kv_rows, chunk));
  return tensor;
}

absl::StatusOr<std::vector<TensorChunk>> ScatterToRanks(const AttentionSpec& spec,
                                                        const std::vector<TensorInfo>& table,
                                                        const std::vector<ShardRows>& ranks,
                                                        TensorChunk chunk) {
  ASSIGN_OR_RETURN(const TensorInfo* tensor,
                   CheckInput(table, spec.q_rows(), spec.kv_rows(), &chunk));
  std::vector<TensorChunk> parts;
  for (const ShardRows& rows : ranks) {
    TensorChunk part = ScatterChunk(*tensor, rows.of(*tensor), chunk);
    // The part has the same bytes as the chunk, so the CRC is the same.
    const bool whole = part.row_count == chunk.row_count;
    if (part.row_count > 0) part.crc32c = whole ? chunk.crc32c : part.data.Crc32c();
    parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<TensorChunk> GatherChunk(const RowMap& rows, const TensorChunk& chunk) {
  const int64_t row_bytes = static_cast<int64_t>(chunk.data.size()) / chunk.row_count;
  std::vector<TensorChunk> parts;
  PayloadReader reader(chunk.data);
  const Interval shard{chunk.row_begin, chunk.row_begin + chunk.row_count};
  rows.ForEachRun(shard, [&](int64_t, int64_t global, int64_t count) {
    TensorChunk part;
    part.tensor = chunk.tensor;
    part.row_begin = global;
    part.row_count = count;
    part.head_begin = chunk.head_begin;
    part.head_count = chunk.head_count;
    reader.Take(count * row_bytes, &part.data);
    if (chunk.crc32c.has_value()) {
      part.crc32c = count == chunk.row_count ? *chunk.crc32c : part.data.Crc32c();
    }
    parts.push_back(std::move(part));
  });
  return parts;
}

std::vector<TensorChunk> GatherChunks(const std::vector<TensorInfo>& table, const ShardRows& rows,
                                      const std::vector<TensorChunk>& chunks) {
  std::vector<TensorChunk> all;
  for (const TensorChunk& chunk : chunks) {
    for (TensorChunk& part : GatherChunk(rows.of(*FindTensor(table, chunk.tensor)), chunk)) {
      all.push_back(std::move(part));
    }
  }
  return all;
}

}  // namespace annulus
