#include "tests/client/fake_shard.h"

#include <algorithm>

#include "attention/sharding/row_map.h"
#include "base/status_macros.h"
#include "proto/wire/crc32c.h"
#include "proto/wire/tensor_stream.h"

namespace annulus {
namespace {

// Rows [begin, begin + count) of an output.
std::string OutputBytes(const FakeShard& shard, const TensorInfo& tensor, int64_t begin,
                        int64_t count) {
  if (tensor.id == TensorId::kOut) {
    const std::byte* q = shard.memory.at(TensorId::kQ).data();
    return std::string(reinterpret_cast<const char*>(q) + begin * tensor.row_bytes(),
                       count * tensor.row_bytes());
  }
  std::string bytes;
  for (int64_t row = begin; row < begin + count; ++row) {
    const auto value = static_cast<float>(shard.rows.of(tensor).Global(row));
    for (int i = 0; i < tensor.heads * tensor.dim; ++i) {
      bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
  }
  return bytes;
}

}  // namespace

RowMap Striped(int64_t rows, int rank, int world, int64_t stripe) {
  std::vector<RowRange> ranges;
  for (int64_t begin = rank * stripe; begin < rows; begin += world * stripe) {
    const int64_t size = std::min(stripe, rows - begin);
    ranges.push_back({begin, size, size, 1});
  }
  return RowMap(ranges);
}

absl::Status StoreChunk(const v1::Chunk& chunk, const std::vector<TensorInfo>& table,
                        FakeShard* shard) {
  TensorChunk part;
  part.tensor = static_cast<TensorId>(chunk.tensor());
  part.row_begin = chunk.row_begin();
  part.row_count = chunk.row_count();
  part.head_count = chunk.head_count();
  part.crc32c = chunk.crc32c();
  part.data = Payload::Copied(chunk.data().data(), chunk.data().size());
  const TensorInfo& tensor = *FindTensor(table, part.tensor);
  const int64_t rows = shard->rows.of(tensor).rows();
  RETURN_IF_ERROR(CheckChunk(tensor, rows, &part));
  RETURN_IF_ERROR(VerifyCrc(part));
  PlaceRows(tensor, RowMap({{0, rows, rows, 1}}), part, shard->memory[part.tensor].data());
  shard->missing -= static_cast<int64_t>(part.data.size());
  return absl::OkStatus();
}

std::vector<v1::Chunk> FakeOutputs(const FakeShard& shard, const std::vector<TensorInfo>& table,
                                   bool corrupt) {
  std::vector<v1::Chunk> chunks;
  for (const TensorInfo& tensor : table) {
    if (tensor.direction != Direction::kOutput) continue;
    for (int64_t end = shard.rows.of(tensor).rows(); end > 0;) {
      v1::Chunk& chunk = chunks.emplace_back();
      chunk.set_tensor(static_cast<v1::TensorId>(tensor.id));
      chunk.set_row_count(std::min<int64_t>(end, 7));
      chunk.set_row_begin(end -= chunk.row_count());
      chunk.set_data(OutputBytes(shard, tensor, end, chunk.row_count()));
      chunk.set_crc32c(Crc32c(chunk.data().data(), chunk.data().size()) + (corrupt ? 1 : 0));
    }
  }
  return chunks;
}

}  // namespace annulus
