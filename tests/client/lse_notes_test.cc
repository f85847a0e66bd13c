#include "client/lse_notes.h"

#include <string>
#include <vector>

#include "attention/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

SafetensorsFile FileSaying(const SafetensorMetadata& notes, const std::string& tensor = "lse") {
  const std::string path = testing::TempDir() + "/notes.safetensors";
  EXPECT_TRUE(SafetensorsWriter::Create(path)->Commit({{tensor, "F32", {0}, {}}}, notes).ok());
  return *SafetensorsFile::Open(path);
}

std::string Refusal(const SafetensorMetadata& notes, const LseForm& form) {
  const absl::Status status = CheckLse(FileSaying(notes), "inputs[1].lse", form);
  if (status.ok()) return "";
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(DetailOf(status).reason, "LSE_MISMATCH");
  EXPECT_EQ(DetailOf(status).fields.at(0).field, "inputs[1].lse");
  return std::string(status.message());
}

AttentionSpec Attend(LseBase base) {
  AttentionSpec spec;
  spec.head_dim = 16;
  spec.outputs.lse_base = base;
  return spec;
}

TEST(LseNotesTest, WhatAJobWritesFitsItsOwnFormAlone) {
  const LseForm natural = {LseBase::kE, false, 0.25}, base_2 = {LseBase::k2, false, 0.25};
  const SafetensorMetadata of_e = NotesOfJob(Attend(LseBase::kE)),
                           of_2 = NotesOfJob(Attend(LseBase::k2));
  EXPECT_EQ(Refusal(of_e, natural), "");
  EXPECT_EQ(Refusal(of_2, base_2), "");
  EXPECT_THAT(Refusal(of_2, natural), testing::HasSubstr("lse_base 2, not e"));
  EXPECT_THAT(Refusal(of_e, base_2), testing::HasSubstr("lse_base e, not 2"));
  EXPECT_THAT(Refusal(of_e, {LseBase::kE, true, {}}),
              testing::HasSubstr("lse_layout heads-tokens, not tokens-heads"));
  EXPECT_THAT(Refusal(of_e, {LseBase::kE, false, 0.5}), testing::HasSubstr("scale 0.25, not 0.5"));
  EXPECT_EQ(Refusal(of_2, {}), "");
  AttentionSpec gradients = Attend(LseBase::kE);
  gradients.operation = Operation::kGradients;
  EXPECT_EQ(NotesOfJob(gradients).count("lse_base"), 0u);
}

TEST(LseNotesTest, AMaskThatWasForgottenShows) {
  AttentionSpec causal = Attend(LseBase::kE), full = causal;
  causal.sequences.resize(1);
  full.sequences.resize(1);
  causal.masks.resize(1);
  full.masks.resize(1);  // Of nothing: as none.
  causal.masks[0].causal = true;
  const SafetensorMetadata notes = NotesOfJob(causal);
  const auto form = [](const AttentionSpec& spec) {
    return LseForm{LseBase::kE, false, 0.25, LseRulesOf(spec)};
  };
  EXPECT_EQ(Refusal(notes, form(causal)), "");
  EXPECT_THAT(Refusal(notes, form(full)), testing::HasSubstr("causal"));
  EXPECT_EQ(LseRulesOf(full), R"({"sequences":[{}]})");
  AttentionSpec sunk = causal, biased = causal, dropped = causal;
  sunk.modifiers.sinks = {0.5};
  EXPECT_THAT(Refusal(notes, form(sunk)),
              testing::HasSubstr(R"(,\"modifiers\":{\"sinks\":[0.5]}})"));
  biased.modifiers.bias = Bias{DataType::kBf16, 2};
  EXPECT_NE(Refusal(notes, form(biased)), "");
  AttentionSpec other_bias = causal;
  other_bias.modifiers.bias = Bias{DataType::kFp32, 1};
  EXPECT_EQ(LseRulesOf(biased), LseRulesOf(other_bias));
  dropped.dropout = Dropout{0.4, 7};
  EXPECT_EQ(LseRulesOf(dropped), LseRulesOf(causal));
  SafetensorMetadata foreign = notes;
  foreign["op"] = "mine";
  EXPECT_EQ(Refusal(foreign, form(full)), "");
}

TEST(LseNotesTest, LongRulesAreADigest) {
  AttentionSpec spec = Attend(LseBase::kE);
  spec.sequences.resize(1000);
  const std::string rules = LseRulesOf(spec);
  EXPECT_EQ(rules.substr(0, 7), "sha256:");
  EXPECT_EQ(rules.size(), 7u + 64u);
  const SafetensorMetadata notes = NotesOfJob(spec);
  spec.sequences[999].q_len = 1;
  EXPECT_LT(Refusal(notes, {{}, {}, {}, LseRulesOf(spec)}).size(), 250u);
  EXPECT_NE(Refusal(notes, {{}, {}, {}, LseRulesOf(spec)}), "");
}

TEST(LseNotesTest, WhatAMergeWritesIsOfAnyScale) {
  const SafetensorMetadata notes = NotesOfMerge(LseBase::k2, true);
  EXPECT_EQ(Refusal(notes, {LseBase::k2, true, 0.5}), "");
  EXPECT_NE(Refusal(notes, {LseBase::kE, true, {}}), "");
  EXPECT_NE(Refusal(notes, {LseBase::k2, false, {}}), "");
}

TEST(LseNotesTest, AFileThatSaysNothingIsTakenAsItsReaderDoes) {
  EXPECT_EQ(Refusal({}, {LseBase::k2, true, 0.5}), "");
  EXPECT_EQ(Refusal({{"scale", "about 1"}, {"made", "by hand"}}, {LseBase::kE, false, 0.5}), "");
  EXPECT_TRUE(
      CheckLse(FileSaying({{"lse_base", "2"}}, "output"), "lse", {LseBase::kE, {}, {}}).ok());
}

TEST(LseNotesTest, OtherWordsAreRefusedWhateverTheyAre) {
  const std::string refusal =
      Refusal({{"lse_base", "10\n" + std::string(10000, 'x')}}, {LseBase::kE, {}, {}});
  EXPECT_THAT(refusal, testing::HasSubstr("lse_base 10\\nxxx"));
  EXPECT_LT(refusal.size(), 200u);
  EXPECT_NE(Refusal({{"op", "attend"}, {"scale", "half"}}, {{}, {}, 0.5}), "");
}

TEST(LseNotesTest, WhatAllFilesSayIsShared) {
  const auto shared = [](const std::vector<SafetensorMetadata>& notes) {
    std::vector<SafetensorsFile> files;
    for (const SafetensorMetadata& of_file : notes) files.push_back(FileSaying(of_file));
    return SharedNotes(files);
  };
  const SafetensorMetadata base_2 = {{"lse_base", "2"}, {"rank", "0"}};
  EXPECT_EQ(*shared({base_2}), base_2);
  EXPECT_EQ(*shared({base_2, {{"lse_base", "2"}, {"rank", "1"}}, base_2}),
            (SafetensorMetadata{{"lse_base", "2"}}));
  EXPECT_TRUE(shared({{{"lse_base", "e"}}, {}})->empty());
  for (const auto& notes : {std::vector<SafetensorMetadata>{base_2, {}}, {{}, base_2}}) {
    EXPECT_EQ(DetailOf(shared(notes).status()).reason, "LSE_MISMATCH");
  }
}

}  // namespace
}  // namespace annulus
