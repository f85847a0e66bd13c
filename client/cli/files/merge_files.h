#ifndef ANNULUS_CLIENT_CLI_FILES_MERGE_FILES_H_
#define ANNULUS_CLIENT_CLI_FILES_MERGE_FILES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "annulus/v1/attention.pb.h"
#include "attention/spec/spec.h"
#include "base/error.h"
#include "client/cli/files/lse_notes.h"
#include "client/cli/safetensors/safetensors.h"

namespace annulus {

// How files say the LSE of a partial.
struct PartialFileRules {
  LseBase base = LseBase::kE;
  bool tokens_heads = false;  // [.., tokens, heads], else [.., heads, tokens].
  bool nonfinite_is_empty = false;
};

// Partials in files, of any size, merged by calls of MergePartials: each takes some rows and heads
// of all of them. A file holds `output`, [tokens, heads, dim] or [batch, tokens, heads, dim] of
// F32, F16 or BF16, `lse`, F32, and maybe `lse_rest`, shaped as lse. Movable.
class MergeFiles {
 public:
  // At least one. INVALID_ARGUMENT naming file and tensor: MISSING_TENSOR, SHAPE_MISMATCH (also
  // where the files differ), UNSUPPORTED_DTYPE, LSE_MISMATCH (its file says other rules, or that it
  // is part of another attention than one before it: client/cli/files/lse_notes.h). INPUT_TWICE:
  // one file is given twice. LIMIT_EXCEEDED: too many files for one row to fit a call.
  static absl::StatusOr<MergeFiles> Open(std::vector<SafetensorsFile> files,
                                         const PartialFileRules& rules, LseBase answer_base);

  int64_t calls() const { return row_blocks_ * head_blocks_; }
  v1::MergePartialsRequest Request(int64_t call) const;
  // An error that answers it, which names a value by its place in the call, with the file, row and
  // head in its stead.
  absl::Status InFiles(int64_t call, const absl::Status& error) const;
  // The answer to it. INTERNAL / UNEXPECTED_OUTPUT: of another shape.
  absl::Status Take(int64_t call, const v1::Partial& answer);

  // After all calls: `output`, `lse` and `lse_rest`, F32, in the shapes of the input.
  // INPUT_CHANGED (SafetensorsFile::CheckUnchanged).
  absl::Status WriteOutputs(SafetensorsWriter* file) const;

  const std::vector<SafetensorsFile>& files() const { return files_; }
  // Of the tensors that WriteOutputs writes, without the file's header.
  int64_t output_bytes() const;
  int64_t rows() const { return batch_ * tokens_; }
  int64_t heads() const { return heads_; }

 private:
  struct Block {
    int64_t row_begin, row_end, head_begin, head_end;
  };
  MergeFiles() = default;
  // An error of one file's tensor, which it names, with the file.
  absl::Status InInput(size_t file, const absl::Status& status) const;
  absl::Status TakeFile(size_t file, const std::vector<int64_t>& shape);
  Block BlockOf(int64_t call) const;
  // The place in its file of a place in a call, and which file it is, if it is one's.
  std::optional<size_t> NameCell(const Block& block, FieldViolation* violation) const;
  int64_t LseIndex(int64_t row, int64_t head) const;
  void FillPartial(const SafetensorsFile& file, const Block& block, v1::Partial* partial) const;
  std::vector<int64_t> LseShape() const;

  std::vector<SafetensorsFile> files_;
  PartNotes notes_;
  PartialFileRules rules_;
  LseBase answer_base_ = LseBase::kE;
  bool has_batch_ = false;
  int64_t batch_ = 1, tokens_ = 0, heads_ = 0, dim_ = 0;
  int64_t block_rows_ = 1, block_heads_ = 1, row_blocks_ = 0, head_blocks_ = 0;
  std::vector<float> out_, lse_, rest_;  // As files have them.
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_MERGE_FILES_H_
