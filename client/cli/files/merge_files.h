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

// The form of the partials' LSE in the files.
struct PartialFileRules {
  LseBase base = LseBase::kE;
  bool tokens_heads = false;  // [.., tokens, heads] if true, else [.., heads, tokens].
  bool nonfinite_is_empty = false;
};

// Partials in files of any size, merged by calls of MergePartials. Each call takes a block of rows
// and heads of all files. A file has `output` ([tokens, heads, dim] or [batch, tokens, heads, dim];
// F32, F16 or BF16), `lse` (F32) and optionally `lse_rest` (as lse). Movable.
//
//   ASSIGN_OR_RETURN(MergeFiles merge, MergeFiles::Open(std::move(files), rules, LseBase::kE));
//   for (int64_t call = 0; call < merge.calls(); ++call) {
//     ASSIGN_OR_RETURN(v1::Partial answer, client.MergePartials(merge.Request(call)));
//     RETURN_IF_ERROR(merge.Take(call, answer));
//   }
//   RETURN_IF_ERROR(merge.WriteOutputs(&writer));
class MergeFiles {
 public:
  // Requires at least one file. INVALID_ARGUMENT, with file and tensor:
  // - INPUT_TWICE: a file is given twice
  // - MISSING_TENSOR, SHAPE_MISMATCH (also between files), UNSUPPORTED_DTYPE
  // - LSE_MISMATCH: the notes differ from `rules` or belong to another attention
  //   (client/cli/files/lse_notes.h)
  // - LIMIT_EXCEEDED: too many files for one row and head in a call
  //
  // RESOURCE_EXHAUSTED / OUT_OF_MEMORY for the answer.
  static absl::StatusOr<MergeFiles> Open(std::vector<SafetensorsFile> files,
                                         const PartialFileRules& rules, LseBase answer_base);

  int64_t calls() const { return row_blocks_ * head_blocks_; }
  v1::MergePartialsRequest Request(int64_t call) const;
  // Translates an error of a call: the place in the request becomes file, row and head.
  absl::Status InFiles(int64_t call, const absl::Status& error) const;
  // Stores the answer of a call. INTERNAL / UNEXPECTED_OUTPUT if its shape, base or layout is not
  // the requested one.
  absl::Status Take(int64_t call, const v1::Partial& answer);

  // Call after all calls. Writes `output`, `lse` and `lse_rest` in F32, in the shapes of the input.
  // FAILED_PRECONDITION / INPUT_CHANGED; errors of SafetensorsWriter::Commit().
  absl::Status WriteOutputs(SafetensorsWriter* file) const;

  const std::vector<SafetensorsFile>& files() const { return files_; }
  // The bytes of the tensors that WriteOutputs() writes, without the header.
  int64_t output_bytes() const;
  int64_t rows() const { return batch_ * tokens_; }
  int64_t heads() const { return heads_; }

 private:
  struct Block {
    int64_t row_begin, row_end, head_begin, head_end;
  };
  MergeFiles() = default;
  // Adds the file to an error of its tensor.
  absl::Status InInput(size_t file, const absl::Status& status) const;
  absl::Status TakeFile(size_t file, const std::vector<int64_t>& shape);
  Block BlockOf(int64_t call) const;
  // Replaces a path in the request by the place in the file. Returns the file's number; nothing if
  // the path belongs to no file.
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
  std::vector<float> out_, lse_, rest_;  // In the layout of the files.
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_MERGE_FILES_H_
