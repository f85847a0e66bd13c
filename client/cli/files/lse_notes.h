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

// What files say of their `lse` and `output` in their metadata, since nobody can see it in the
// numbers: `op` ("attend", "gradients" or "merge"), `lse_base` ("e" or "2"), `lse_layout`
// ("heads-tokens" or "tokens-heads") and, of attend and gradients, `scale`; of attend also
// `lse_rules` and `output_rules` (client/cli/files/lse_rules.h) and, where partials travelled in
// bf16, `bf16_partials` ("true"). What a file does not say is as its reader takes it.

SafetensorMetadata NotesOfJob(const AttentionSpec& spec, bool bf16_partials = false);
SafetensorMetadata NotesOfMerge(LseBase base, bool tokens_heads);

// What a reader takes an LSE to be; absent: it may be any.
struct LseForm {
  std::optional<LseBase> base;
  std::optional<bool> tokens_heads;
  std::optional<double> scale;
  std::optional<std::string> rules = std::nullopt;  // LseRulesOf.
};

// Whether the file's `lse`, if it has one, is said to be of the form. INVALID_ARGUMENT /
// LSE_MISMATCH, naming `field`.
absl::Status CheckLse(const SafetensorsFile& file, absl::string_view field, const LseForm& form);

// Whether the file says of which base its `lse` is.
bool SaysLseBase(const SafetensorsFile& file);

// Whether the file's `output`, where it says of which job it is, is that of the spec's: dropout.
// INVALID_ARGUMENT / OUTPUT_MISMATCH.
absl::Status CheckOutputRules(const SafetensorsFile& file, const AttentionSpec& spec);
// False where it says that its partials travelled in fp32.
bool MayBeOfBf16Partials(const SafetensorsFile& file);

// What files of parts of one attention, of our own jobs and merges, must say alike: scale,
// modifiers and the rate of dropout. Not masks and sequences, nor whether there is a bias or an LSE
// offset: these are of the keys of a part. Sinks are in one of them at most.
class PartNotes {
 public:
  // INVALID_ARGUMENT / LSE_MISMATCH, naming `lse`: it says other than one before it.
  absl::Status Take(const SafetensorsFile& file);
  // What they have said, for the file that is made of them.
  void AddTo(SafetensorMetadata* notes) const;

 private:
  struct Part {
    std::map<std::string, std::string> members;
    std::string path;  // Of the file.
  };
  struct Sinks {
    std::string text, path;
  };
  absl::Status Compare(const char* part, const std::map<std::string, std::string>& members,
                       const std::string& path);

  std::map<std::string, Part> first_;  // By name.
  Sinks sinks_;
};

// What all of some files, at least one, say alike, for a file that is made of them.
// INVALID_ARGUMENT / LSE_MISMATCH where their `lse` are not of one base and layout.
absl::StatusOr<SafetensorMetadata> SharedNotes(const std::vector<SafetensorsFile>& files);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_LSE_NOTES_H_
