#include "client/cli/files/lse_notes.h"

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "client/cli/files/lse_rules.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/wire/sha256.h"

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
  full.masks.resize(1);  // An empty mask counts as none.
  causal.masks[0].causal = true;
  const SafetensorMetadata notes = NotesOfJob(causal);
  const auto form = [](const AttentionSpec& spec) {
    return LseForm{LseBase::kE, false, 0.25, LseRulesOf(spec)};
  };
  EXPECT_EQ(Refusal(notes, form(causal)), "");
  EXPECT_EQ(Refusal(notes, form(full)),
            "inputs[1].lse: the forward job had masks [{\"causal\":true}]; this one has no masks. "
            "Give the same --mask and --spec");
  EXPECT_EQ(LseRulesOf(full), R"({"sequences":[{}]})");
  AttentionSpec sunk = causal, biased = causal, dropped = causal;
  sunk.modifiers.sinks = {0.5};
  sunk.masks.clear();
  EXPECT_THAT(Refusal(notes, form(sunk)),
              testing::HasSubstr(R"(had masks [{"causal":true}] and no modifiers; )"
                                 R"(this one has no masks and modifiers {"sinks":[0.5]}. Give)"));
  biased.modifiers.bias = Bias{DataType::kBf16, 2};
  EXPECT_THAT(Refusal(notes, form(biased)),
              testing::HasSubstr(R"(modifiers {"bias":{}}. Give the same --mask and --spec, and )"
                                 "the same bias"));
  AttentionSpec other_bias = causal;
  other_bias.modifiers.bias = Bias{DataType::kFp32, 1};
  EXPECT_EQ(LseRulesOf(biased), LseRulesOf(other_bias));
  dropped.dropout = Dropout{0.4, 7};
  EXPECT_EQ(LseRulesOf(dropped), LseRulesOf(causal));
  SafetensorMetadata foreign = notes;
  foreign["op"] = "mine";
  EXPECT_EQ(Refusal(foreign, form(full)), "");
}

TEST(LseNotesTest, OfWhatDiffersALittleAllElseIsLeftOut) {
  AttentionSpec spec = Attend(LseBase::kE);
  spec.sequences.resize(3);
  spec.modifiers.soft_cap = 3;
  spec.modifiers.alibi_slopes = {0.5, 0.25};
  const SafetensorMetadata notes = NotesOfJob(spec);
  spec.modifiers.soft_cap = 2.5;
  spec.sequences[1].kv_len = 80;
  EXPECT_THAT(Refusal(notes, {{}, {}, {}, LseRulesOf(spec)}),
              testing::HasSubstr(R"(had modifiers {"softCap":3} and sequences[1] {}; )"
                                 R"(this one has modifiers {"softCap":2.5} and sequences[1] )"
                                 R"({"kvLen":"80"}. )"));
}

TEST(LseNotesTest, LongRulesAreDigestsOfTheirParts) {
  AttentionSpec spec = Attend(LseBase::kE);
  spec.sequences.resize(1000);
  spec.modifiers.soft_cap = 3;
  spec.modifiers.sinks = std::vector<float>(100, 0.5f);
  const SafetensorMetadata notes = NotesOfJob(spec);
  const std::string rules = notes.at("lse_rules");
  EXPECT_LT(rules.size(), 1024u);
  EXPECT_THAT(rules, testing::HasSubstr(R"("sequences":"sha256:)"));
  EXPECT_THAT(rules, testing::HasSubstr(R"("sinks":"sha256:)"));
  EXPECT_EQ(PartOfRules(rules, "modifiers").at("softCap"), "3");
  EXPECT_EQ(Refusal(notes, {{}, {}, {}, LseRulesOf(spec)}), "");
  AttentionSpec other = spec;
  other.sequences[999].q_len = 1;
  const std::string refusal = Refusal(notes, {{}, {}, {}, LseRulesOf(other)});
  EXPECT_THAT(refusal, testing::HasSubstr("the forward job had sequences \"sha256:"));
  EXPECT_LT(refusal.size(), 400u);
  other = spec;
  other.modifiers.sinks[99] = 0;
  EXPECT_THAT(Refusal(notes, {{}, {}, {}, LseRulesOf(other)}),
              testing::HasSubstr(R"(had modifiers {"sinks":"sha256:)"));
  // The format of older files.
  SafetensorMetadata whole = notes;
  whole["lse_rules"] = absl::StrCat("sha256:", absl::BytesToHexString(Sha256(LseRulesOf(spec))));
  EXPECT_EQ(Refusal(whole, {{}, {}, {}, LseRulesOf(spec)}), "");
  EXPECT_THAT(Refusal(whole, {{}, {}, {}, LseRulesOf(other)}),
              testing::HasSubstr("had other rules than this one: sha256:"));
}

TEST(LseNotesTest, RulesThatNobodyWroteEndCleanly) {
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  for (const std::string& rules : {std::string("{"), std::string("7"), "{\"masks\":" + deep + "}",
                                   std::string("{\"a\x1b\":1}"), std::string("{\"\\u001b[2J\":1}"),
                                   std::string(1 << 20, 'x')}) {
    const SafetensorMetadata notes = {{"op", "attend"}, {"lse_rules", rules}};
    const std::string refusal = Refusal(notes, {{}, {}, {}, "{\"masks\":[{\"causal\":true}]}"});
    EXPECT_THAT(refusal, testing::HasSubstr("the forward job had "));
    EXPECT_LT(refusal.size(), 600u);
    EXPECT_EQ(refusal.find('\x1b'), std::string::npos);
    EXPECT_TRUE(PartOfRules(rules, "modifiers").empty());
  }
}

TEST(LseNotesTest, AScaleIsSaidInAsFewDigitsAsItTakes) {
  AttentionSpec spec = Attend(LseBase::kE);
  spec.scale = 0.3;
  EXPECT_EQ(NotesOfJob(spec).at("scale"), "0.3");
  EXPECT_EQ(ShortestText(1.0 / 3), "0.3333333333333333");
  EXPECT_EQ(ShortestText(0.1 + 0.2), "0.30000000000000004");
  EXPECT_EQ(ShortestText(2), "2");
  EXPECT_THAT(Refusal({{"op", "attend"}, {"scale", "0.29999999999999999"}}, {{}, {}, 0.25}),
              testing::HasSubstr("scale 0.3, not 0.25"));
}

TEST(LseNotesTest, AnotherDropoutThanThatOfTheForwardJobIsRefused) {
  AttentionSpec none = Attend(LseBase::kE), dropped = none, other = none, nothing = none;
  dropped.dropout = Dropout{0.25, 5};
  other.dropout = Dropout{0.25, 6};
  nothing.dropout = Dropout{0, 5};
  const auto refusal = [](const SafetensorMetadata& notes, const AttentionSpec& spec) {
    const absl::Status status = CheckOutputRules(FileSaying(notes, "output"), spec);
    if (status.ok()) return std::string();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(DetailOf(status).reason, "OUTPUT_MISMATCH");
    return std::string(status.message());
  };
  EXPECT_EQ(refusal(NotesOfJob(dropped), dropped), "");
  EXPECT_EQ(refusal(NotesOfJob(none), nothing), "");
  EXPECT_EQ(refusal(NotesOfJob(nothing), none), "");
  EXPECT_EQ(refusal(NotesOfJob(dropped), none),
            R"(output: the forward job had dropout {"rate":0.25,"seed":"5"}; this one has no )"
            "dropout. Give the same --spec");
  EXPECT_EQ(refusal(NotesOfJob(none), dropped),
            R"(output: the forward job had no dropout; this one has dropout )"
            R"({"rate":0.25,"seed":"5"}. Give the same --spec)");
  EXPECT_EQ(refusal(NotesOfJob(dropped), other),
            R"(output: the forward job had dropout {"seed":"5"}; this one has dropout )"
            R"({"seed":"6"}. Give the same --spec)");
  SafetensorMetadata unsaid = NotesOfJob(dropped), foreign = unsaid;
  unsaid.erase("output_rules");
  foreign["op"] = "mine";
  for (const SafetensorMetadata& notes : {unsaid, foreign, SafetensorMetadata()}) {
    EXPECT_EQ(refusal(notes, none), "");
  }
}

TEST(LseNotesTest, PartialsInBf16AreSaid) {
  const AttentionSpec spec = Attend(LseBase::kE);
  EXPECT_FALSE(MayBeOfBf16Partials(FileSaying(NotesOfJob(spec))));
  EXPECT_TRUE(MayBeOfBf16Partials(FileSaying(NotesOfJob(spec, /*bf16_partials=*/true))));
  EXPECT_TRUE(MayBeOfBf16Partials(FileSaying({})));
}

// The combined notes of several files.
absl::StatusOr<SafetensorMetadata> Together(const std::vector<SafetensorMetadata>& notes) {
  PartNotes parts;
  for (const SafetensorMetadata& each : notes) {
    const absl::Status status = parts.Take(FileSaying(each));
    if (!status.ok()) return status;
  }
  SafetensorMetadata said;
  parts.AddTo(&said);
  return said;
}

TEST(LseNotesTest, PartsOfOneAttentionHaveOneRule) {
  AttentionSpec spec = Attend(LseBase::kE);
  spec.sequences.resize(1);
  spec.modifiers.soft_cap = 3;
  spec.modifiers.alibi_slopes = {0.5};
  spec.dropout = Dropout{0.25, 5};
  AttentionSpec masked = spec, sunk = spec, scaled = spec, uncapped = spec, kept = spec,
                many = spec;
  masked.masks.resize(1);
  masked.masks[0].causal = true;
  masked.sequences[0].kv_len = 80;
  masked.modifiers.bias = Bias{DataType::kBf16, 2};
  masked.modifiers.lse_offset = true;
  masked.dropout->seed = 6;
  many.sequences.resize(1000);
  sunk.modifiers.sinks = {0.5};
  scaled.scale = 0.75;
  uncapped.modifiers.soft_cap.reset();
  kept.dropout.reset();
  const auto notes = [](const AttentionSpec& each) { return NotesOfJob(each); };
  const auto told = [&](const std::vector<SafetensorMetadata>& all) {
    const absl::Status status = Together(all).status();
    EXPECT_EQ(DetailOf(status).reason, "LSE_MISMATCH") << status;
    return std::string(status.message());
  };
  const auto joined = Together({notes(spec), notes(masked), {}, notes(many), notes(sunk)});
  ASSERT_TRUE(joined.ok()) << joined.status();
  SafetensorMetadata merged = NotesOfMerge(LseBase::kE, false);
  merged.insert(joined->begin(), joined->end());
  EXPECT_EQ(merged.at("scale"), "0.25");
  EXPECT_THAT(merged.at("lse_rules"), testing::HasSubstr("sinks"));
  EXPECT_TRUE(Together({merged, notes(masked)}).ok());
  for (const auto& all : {std::vector{notes(sunk), notes(sunk)},
                          {merged, notes(sunk)},
                          {notes(spec), notes(sunk), notes(masked), notes(sunk)}}) {
    EXPECT_THAT(told(all), testing::HasSubstr("lse: both its job and that of /"));
  }
  EXPECT_THAT(told({notes(spec), notes(uncapped)}),
              testing::ContainsRegex("its job had no modifiers.softCap, but that of /.* had "
                                     "modifiers.softCap 3: these are not partials of the same "
                                     "attention"));
  EXPECT_THAT(told({notes(uncapped), notes(many)}), testing::HasSubstr("modifiers.softCap 3"));
  EXPECT_THAT(told({merged, notes(uncapped)}), testing::HasSubstr("no modifiers.softCap"));
  EXPECT_THAT(told({notes(spec), notes(scaled)}), testing::HasSubstr("its job had scale 0.75, "));
  EXPECT_THAT(told({notes(spec), notes(kept)}),
              testing::HasSubstr("had no dropout.rate, but that of"));
}

TEST(LseNotesTest, ADigestOfAllRulesSaysNothingOfAPart) {
  AttentionSpec sunk = Attend(LseBase::kE);
  sunk.modifiers.sinks = {0.5};
  SafetensorMetadata digest = NotesOfJob(sunk);
  digest["lse_rules"] = "sha256:" + std::string(64, '0');
  EXPECT_TRUE(Together({digest, NotesOfJob(sunk), digest}).ok());
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
