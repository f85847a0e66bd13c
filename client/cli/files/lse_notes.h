#ifndef ANNULUS_CLIENT_CLI_FILES_LSE_NOTES_H_
#define ANNULUS_CLIENT_CLI_FILES_LSE_NOTES_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attention/spec/spec.h"
#include "client/cli/safetensors/safetensors.h"

namespace annulus {

// Metadata of output files ("notes"): properties of `lse` and `output` that their numbers do not
// show.
// - `op`: "attend", "gradients" or "merge"
// - `lse_base`: "e" or "2"; `lse_layout`: "heads-tokens" or "tokens-heads"
// - `scale`: for attend and gradients
// - `lse_rules`, `output_rules` (client/cli/files/lse_rules.h): for attend
// - `bf16_partials`: "true" if partials of an attend job travelled in bf16
//
// If a note is absent, the reader's assumption holds.

SafetensorMetadata NotesOfJob(const AttentionSpec& spec, bool bf16_partials = false);
SafetensorMetadata NotesOfMerge(LseBase base, bool tokens_heads);

// The properties that a reader assumes of an LSE. Absent: any value.
struct LseForm {
  std::optional<LseBase> base;
  std::optional<bool> tokens_heads;
  std::optional<double> scale;
  std::optional<std::string> rules = std::nullopt;  // The text of LseRulesOf().
};

// Checks the notes of the file's `lse`, if it has one, against `form`. INVALID_ARGUMENT /
// LSE_MISMATCH for `field`.
absl::Status CheckLse(const SafetensorsFile& file, absl::string_view field, const LseForm& form);

// True if the file has a note with the base of its `lse`.
bool SaysLseBase(const SafetensorsFile& file);

// Checks that the file's `output` has the spec's dropout, if the file has notes of it.
// INVALID_ARGUMENT / OUTPUT_MISMATCH.
absl::Status CheckOutputRules(const SafetensorsFile& file, const AttentionSpec& spec);
// False if the notes show that partials travelled in fp32.
bool MayBeOfBf16Partials(const SafetensorsFile& file);

// Compares the notes of partials of one attention (of attend and merge). Scale, modifiers and the
// rate of dropout must be equal. Masks, sequences, bias and LSE offset belong to the keys of a
// partial and may differ. At most one partial may have sinks.
class PartNotes {
 public:
  // INVALID_ARGUMENT / LSE_MISMATCH for `lse` if a note differs from an earlier file's.
  absl::Status Take(const SafetensorsFile& file);
  // Adds the common notes to those of the merged file.
  void AddTo(SafetensorMetadata* notes) const;

 private:
  struct Part {
    std::map<std::string, std::string> members;
    std::string path;  // The file's path.
  };
  struct Sinks {
    std::string text, path;
  };
  absl::Status Compare(const char* part, const std::map<std::string, std::string>& members,
                       const std::string& path);

  std::map<std::string, Part> first_;  // By the part's name.
  Sinks sinks_;
};

// The notes that all files (at least one) share, for a file made from them. INVALID_ARGUMENT /
// LSE_MISMATCH if their `lse` differ in base or layout.
absl::StatusOr<SafetensorMetadata> SharedNotes(const std::vector<SafetensorsFile>& files);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_LSE_NOTES_H_
