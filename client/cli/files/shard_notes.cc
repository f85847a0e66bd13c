#include "client/cli/files/shard_notes.h"

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "attention/spec/tensor_table.h"
#include "base/error.h"
#include "client/cli/safetensors/file_error.h"
#include "proto/wire/convert.h"
#include "proto/wire/sha256.h"

namespace annulus {
namespace {

constexpr char kRank[] = "shard_rank", kPlan[] = "shard_plan", kLayout[] = "shard_layout";
// Limits texts from a file in messages.
constexpr size_t kShownCharacters = 16;

std::string DigestOf(const PlanRows& plan) {
  std::string text;
  for (int32_t rank = 0; rank < plan.ranks(); ++rank) {
    for (const RowSpace space : {RowSpace::kQuery, RowSpace::kKey}) {
      google::protobuf::RepeatedPtrField<v1::RowRange> ranges;
      RowMapToProto(plan.Of(space, rank), &ranges);
      for (const v1::RowRange& range : ranges) {
        absl::StrAppend(&text, range.begin(), "+", range.block(), "/", range.stride(), "*",
                        range.count(), " ");
      }
      absl::StrAppend(&text, ";");
    }
  }
  return absl::BytesToHexString(Sha256(text));
}

// The file's note, shortened, if it is not `wanted`. Empty if it is, or if there is none.
std::string SaidElse(const SafetensorsFile& file, const char* name, const std::string& wanted) {
  const auto found = file.metadata().find(name);
  if (found == file.metadata().end() || found->second == wanted) return "";
  return absl::StrCat("the metadata of its file has ", name, " ",
                      absl::Utf8SafeCEscape(found->second.substr(0, kShownCharacters)));
}

}  // namespace

void AddShardNotes(const PlanRows& plan, int32_t rank, TensorLayout layout,
                   SafetensorMetadata* metadata) {
  (*metadata)[kRank] = absl::StrCat(rank);
  (*metadata)[kPlan] = DigestOf(plan);
  (*metadata)[kLayout] = std::string(TensorLayoutName(layout));
}

void RemoveShardNotes(SafetensorMetadata* metadata) {
  metadata->erase(kRank);
  metadata->erase(kPlan);
  metadata->erase(kLayout);
}

absl::Status CheckShardNotes(const PlanRows& plan, TensorLayout layout,
                             const std::vector<SafetensorsFile>& files) {
  const std::string layout_name(TensorLayoutName(layout));
  const std::string digest = DigestOf(plan);
  for (size_t rank = 0; rank < files.size(); ++rank) {
    const auto refused = [&, rank = rank](const char* reason, const std::string& what) {
      const absl::Status status =
          MakeError(absl::StatusCode::kInvalidArgument, what, {reason, {}, {{"", what}}, {}});
      return InFile(files[rank].path(), status, absl::StrCat("files[", rank, "]"));
    };
    const std::string other_plan = SaidElse(files[rank], kPlan, digest);
    if (!other_plan.empty()) {
      return refused("INVALID_PLAN", absl::StrCat(other_plan, ", but this plan is ",
                                                  digest.substr(0, kShownCharacters)));
    }
    const std::string other_rank = SaidElse(files[rank], kRank, absl::StrCat(rank));
    if (!other_rank.empty()) {
      return refused("INVALID_RANK",
                     absl::StrCat(other_rank, ", but it was given as the file of rank ", rank));
    }
    const std::string other_layout = SaidElse(files[rank], kLayout, layout_name);
    if (!other_layout.empty()) {
      return refused(
          "SHAPE_MISMATCH",
          absl::StrCat(other_layout, ", but shards of the requested layout are ", layout_name));
    }
  }
  return absl::OkStatus();
}

}  // namespace annulus
