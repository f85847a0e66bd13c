#include "proto/wire/chunk_header.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace annulus {

absl::Status CheckChunkHeader(const TensorInfo& tensor, int64_t rows, int64_t bytes,
                              ChunkHeader* chunk) {
  if (chunk->row_begin < 0 || chunk->row_count < 1 || chunk->row_begin > rows ||
      chunk->row_count > rows - chunk->row_begin) {
    return InvalidField(
        "CHUNK_OUT_OF_RANGE", "chunk.row_begin",
        absl::StrCat("rows ", chunk->row_begin, " + ", chunk->row_count, " are not within the ",
                     rows, " rows of ", TensorName(tensor.id)));
  }
  if (chunk->head_count == 0 && chunk->head_begin == 0) chunk->head_count = tensor.heads;
  if (chunk->head_begin < 0 || chunk->head_count < 1 || chunk->head_begin > tensor.heads ||
      chunk->head_count > tensor.heads - chunk->head_begin) {
    return InvalidField("CHUNK_OUT_OF_RANGE", "chunk.head_begin",
                        absl::StrCat("heads ", chunk->head_begin, " + ", chunk->head_count, " of ",
                                     tensor.heads, " heads of ", TensorName(tensor.id)));
  }
  const int64_t row_bytes = tensor.row_bytes() / tensor.heads * chunk->head_count;
  // A division, because the product of hostile counts may overflow.
  if (bytes % row_bytes != 0 || bytes / row_bytes != chunk->row_count) {
    return InvalidField("TENSOR_BYTES_MISMATCH", "chunk.data",
                        absl::StrCat("has ", bytes, " bytes, but ", chunk->row_count, " rows of ",
                                     TensorName(tensor.id), " have ", row_bytes, " bytes each"));
  }
  return absl::OkStatus();
}

absl::Status CheckChunkCrc(const ChunkHeader& chunk, uint32_t got) {
  if (!chunk.crc32c.has_value() || got == *chunk.crc32c) return absl::OkStatus();
  return MakeError(absl::StatusCode::kDataLoss,
                   absl::StrCat("bytes of ", TensorName(chunk.tensor), " from row ",
                                chunk.row_begin, " do not have the checksum of their chunk"),
                   {"CHECKSUM_MISMATCH",
                    {{"tensor", std::string(TensorName(chunk.tensor))},
                     {"row_begin", absl::StrCat(chunk.row_begin)},
                     {"expected", absl::StrCat(absl::Hex(*chunk.crc32c, absl::kZeroPad8))},
                     {"got", absl::StrCat(absl::Hex(got, absl::kZeroPad8))}},
                    {},
                    {}});
}

}  // namespace annulus
