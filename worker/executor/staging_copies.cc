#include "worker/executor/staging_copies.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "attention/spec/tensor_table.h"
#include "base/status_macros.h"

namespace annulus {
namespace {

// Maps a section of a block's rows to its tensor.
struct Section {
  BlockKind kind;
  TensorId tensor;
  int index;
};
constexpr Section kSections[] = {
    {BlockKind::kQ, TensorId::kQ, 0},           {BlockKind::kKv, TensorId::kK, 0},
    {BlockKind::kKv, TensorId::kV, 1},          {BlockKind::kOut, TensorId::kOut, 0},
    {BlockKind::kOut, TensorId::kLse, 1},       {BlockKind::kOut, TensorId::kMaxLogit, 2},
    {BlockKind::kOut, TensorId::kLseRest, 3},   {BlockKind::kOut, TensorId::kDOut, 4},
    {BlockKind::kQGrad, TensorId::kQ, 0},       {BlockKind::kQGrad, TensorId::kDOut, 1},
    {BlockKind::kQGrad, TensorId::kLse, 2},     {BlockKind::kQGrad, TensorId::kDLse, 3},
    {BlockKind::kQGrad, TensorId::kLseRest, 4}, {BlockKind::kPairs, TensorId::kBias, 0},
    {BlockKind::kPairs, TensorId::kBitMask, 1}, {BlockKind::kPairs, TensorId::kLseOffset, 2},
    {BlockKind::kDqOut, TensorId::kDq, 0},      {BlockKind::kDkvOut, TensorId::kDk, 0},
    {BlockKind::kDkvOut, TensorId::kDv, 1},     {BlockKind::kDSinkOut, TensorId::kDSink, 0},
    {BlockKind::kDBias, TensorId::kDBias, 0},
};

// True if blocks of this job have the section.
bool Has(const BlockLayout& layout, const Section& section) {
  if (section.tensor == TensorId::kBias) return layout.pairs().has_bias;
  if (section.tensor == TensorId::kBitMask) return layout.pairs().has_bits;
  if (section.tensor == TensorId::kLseOffset) return layout.pairs().has_offset;
  if (section.tensor == TensorId::kLseRest) return layout.lse_rest(section.kind);
  if (section.tensor == TensorId::kDOut)
    return layout.rounds_d_out() == (section.kind == BlockKind::kOut);
  return section.tensor != TensorId::kMaxLogit || layout.max_logit();
}

// Replaces an absent optional input. Holds at least as many zeros as a row of that input has bytes.
constexpr std::byte kZeros[4096] = {};
constexpr int64_t kMaxZeros = sizeof(kZeros);

// One section of a block's rows, and the same elements of the planar tensor.
struct Strip {
  int32_t buffer = 0;
  int section = 0;
  std::byte* in_block = nullptr;  // nullptr if the buffer stays in staging.
  int64_t block_stride = 0;
  std::byte* in_tensor = nullptr;
  int64_t tensor_stride = 0;
  int64_t width = 0;
  int64_t rows = 0;
};

// The number of this rank's rows in shards before `shard`, as staging holds them.
int64_t RowsBefore(const RankProgram& program, int32_t shard, RowSpace space) {
  int64_t rows = 0;
  for (int32_t s = 0; s < shard; ++s) {
    const Shard& other = program.plan.shards[s];
    if (other.owner != program.rank) continue;
    rows += other.rows(space).rows();
  }
  return rows;
}

// Enumerates the row blocks of a program's buffers.
class Strips {
 public:
  Strips(const RankProgram& program, const StagedTensors& staged, std::byte* arena)
      : program_(program), staged_(staged), arena_(arena), table_(TensorTable(program.spec)) {}

  // Only for buffers that stay in staging (`in_staging` = true) or that do not (false).
  absl::Status ForEach(const std::vector<int32_t>& buffers, bool in_staging,
                       absl::FunctionRef<absl::Status(const Strip&)> fn) const {
    if (staged_.data.size() != table_.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "there are ", staged_.data.size(), " staged tensors, but the job has ", table_.size()));
    }
    for (const int32_t buffer : buffers) {
      if (program_.stays(buffer) != in_staging) continue;
      bool known = false;
      for (const Section& section : kSections) {
        if (section.kind != program_.schedule.buffers[buffer].kind) continue;
        known = true;
        if (!Has(program_.layout, section)) continue;
        ASSIGN_OR_RETURN(const Strip strip, Find(buffer, section));
        RETURN_IF_ERROR(fn(strip));
      }
      if (!known) return absl::UnimplementedError("no tensor belongs to a block of this kind");
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<Strip> Find(int32_t buffer, const Section& section) const {
    const TensorInfo* tensor = FindTensor(table_, section.tensor);
    if (section.tensor == TensorId::kDLse && tensor == nullptr) return Zeros(buffer, section);
    std::byte* data = tensor == nullptr ? nullptr : staged_.data[tensor - table_.data()];
    if (data == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", TensorName(section.tensor), " is not staged"));
    }
    const Block& block = program_.schedule.buffers[buffer];
    // A tensor of one head applies to all heads of the block.
    const bool for_all = tensor->heads == 1;
    const int64_t head_begin = for_all ? 0 : block.head_begin;
    const int64_t heads = for_all ? 1 : block.head_end - block.head_begin;
    Strip strip = InBlock(buffer, section);
    const int64_t head_bytes = tensor->row_bytes() / tensor->heads;
    const int64_t row = RowsBefore(program_, block.shard, tensor->rows) + block.row_begin;
    strip.in_tensor = data + row * tensor->row_bytes() + head_begin * head_bytes;
    strip.tensor_stride = tensor->row_bytes();
    strip.width = heads * head_bytes;
    return strip;
  }

  Strip InBlock(int32_t buffer, const Section& section) const {
    const Block& block = program_.schedule.buffers[buffer];
    const int32_t heads = block.head_end - block.head_begin;
    Strip strip;
    strip.buffer = buffer;
    strip.section = section.index;
    if (!program_.stays(buffer)) {
      strip.in_block = arena_ + program_.placement.slots[buffer].offset +
                       program_.layout.SectionOffset(block.kind, heads, section.index);
    }
    strip.block_stride = program_.layout.RowBytes(block.kind, heads);
    strip.rows = block.row_end - block.row_begin;
    return strip;
  }

  absl::StatusOr<Strip> Zeros(int32_t buffer, const Section& section) const {
    const Block& block = program_.schedule.buffers[buffer];
    Strip strip = InBlock(buffer, section);
    strip.in_tensor = const_cast<std::byte*>(kZeros);  // Never written: the source of a copy.
    strip.tensor_stride = 0;
    strip.width = (block.head_end - block.head_begin) * int64_t{sizeof(float)};
    if (strip.width > kMaxZeros)
      return absl::UnimplementedError("too many heads for the zeros of an absent d_lse");
    return strip;
  }

  const RankProgram& program_;
  const StagedTensors& staged_;
  std::byte* const arena_;
  const std::vector<TensorInfo> table_;
};

// Called before each piece of a copy.
absl::Status GoOn(const KernelControl& control) {
  if (control.stopped()) return absl::CancelledError("the copy was stopped");
  control.Count(1);
  return absl::OkStatus();
}

}  // namespace

absl::Status ForEachPiece(const Copy2d& copy, int64_t most,
                          absl::FunctionRef<absl::Status(const Copy2d&)> fn) {
  const int64_t rows = std::max<int64_t>(1, most / std::max<int64_t>(1, copy.width));
  for (int64_t row = 0; row < copy.rows; row += rows) {
    Copy2d piece = copy;
    piece.target += row * copy.target_stride;
    piece.source += row * copy.source_stride;
    piece.rows = std::min(rows, copy.rows - row);
    RETURN_IF_ERROR(fn(piece));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SectionPlaces>> PlacesInStaging(const RankProgram& program,
                                                           const StagedTensors& staged) {
  std::vector<SectionPlaces> places(program.schedule.buffers.size());
  const Strips strips(program, staged, /*arena=*/nullptr);
  for (const std::vector<int32_t>* buffers :
       {&program.schedule.inputs, &program.schedule.outputs}) {
    RETURN_IF_ERROR(strips.ForEach(*buffers, true, [&](const Strip& s) {
      places[s.buffer][s.section] = {s.in_tensor, s.tensor_stride};
      return absl::OkStatus();
    }));
  }
  return places;
}

absl::Status CopyInputs(const RankProgram& program, const StagedTensors& staged, std::byte* arena,
                        Device& device, const KernelControl& control) {
  return Strips(program, staged, arena)
      .ForEach(program.schedule.inputs, false, [&](const Strip& s) {
        const Copy2d copy{s.in_block,      s.block_stride, s.in_tensor,
                          s.tensor_stride, s.width,        s.rows};
        return ForEachPiece(copy, kCopyPieceBytes, [&](const Copy2d& piece) -> absl::Status {
          RETURN_IF_ERROR(GoOn(control));
          return device.CopyIn(piece);
        });
      });
}

absl::Status CopyOutputs(const RankProgram& program, const StagedTensors& staged, std::byte* arena,
                         Device& device, const KernelControl& control) {
  return Strips(program, staged, arena)
      .ForEach(program.schedule.outputs, false, [&](const Strip& s) {
        const Copy2d copy{s.in_tensor,    s.tensor_stride, s.in_block,
                          s.block_stride, s.width,         s.rows};
        return ForEachPiece(copy, kCopyPieceBytes, [&](const Copy2d& piece) -> absl::Status {
          RETURN_IF_ERROR(GoOn(control));
          return device.CopyOut(piece);
        });
      });
}

}  // namespace annulus
