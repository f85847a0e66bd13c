#ifndef ANNULUS_CLIENT_LSE_NOTES_H_
#define ANNULUS_CLIENT_LSE_NOTES_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attention/spec.h"
#include "client/safetensors.h"

namespace annulus {

// What files say of their `lse` in their metadata, since nobody can see it in the numbers: `op`
// ("attend", "gradients" or "merge"), `lse_base` ("e" or "2"), `lse_layout` ("heads-tokens" or
// "tokens-heads") and, of attend and gradients, `scale`; of attend also `lse_rules`. What a file
// does not say is as its reader takes it.

SafetensorMetadata NotesOfJob(const AttentionSpec& spec);
SafetensorMetadata NotesOfMerge(LseBase base, bool tokens_heads);

// What decides the LSE of given tensors, beside base and scale: sequences, masks and modifiers of a
// spec, as compact proto3 JSON, or "sha256:" and its digest where that is longer than 1 KiB. Of a
// bias it is said that there is one. The same for specs that say the same in the same words.
std::string LseRulesOf(const AttentionSpec& spec);

// What a reader takes an LSE to be; absent: it may be any.
struct LseForm {
  std::optional<LseBase> base;
  std::optional<bool> tokens_heads;
  std::optional<double> scale;
  std::optional<std::string> rules = std::nullopt;
};

// The scale that a file of attend says; absent: it is none, or says nothing that can be read.
std::optional<double> ScaleSaid(const SafetensorsFile& file);

// Whether the file's `lse`, if it has one, is said to be of the form. INVALID_ARGUMENT /
// LSE_MISMATCH, naming `field`.
absl::Status CheckLse(const SafetensorsFile& file, absl::string_view field, const LseForm& form);

// What all of some files, at least one, say alike, for a file that is made of them.
// INVALID_ARGUMENT / LSE_MISMATCH where their `lse` are not of one base and layout.
absl::StatusOr<SafetensorMetadata> SharedNotes(const std::vector<SafetensorsFile>& files);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_LSE_NOTES_H_
