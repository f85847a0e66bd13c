#include "client/cli/files/input_names.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

using testing::HasSubstr;
using testing::Not;

SafetensorsFile FileWith(const std::vector<std::string>& names) {
  const std::string path = testing::TempDir() + "/names.safetensors";
  std::vector<SafetensorView> views;
  for (const std::string& name : names) views.push_back({name, "F32", {0}, {}});
  EXPECT_TRUE(SafetensorsWriter::Create(path)->Commit(views).ok());
  return *SafetensorsFile::Open(path);
}

AttentionSpec Forward() { return {}; }
AttentionSpec Gradients() {
  AttentionSpec spec;
  spec.operation = Operation::kGradients;
  return spec;
}
AttentionSpec ByState() {
  AttentionSpec spec = Gradients();
  spec.gradients.state = "job";
  return spec;
}

// The refused names, one by one.
std::vector<std::string> Refused(const AttentionSpec& spec, const std::vector<std::string>& names) {
  std::vector<std::string> refused;
  for (const std::string& name : names) {
    const absl::Status status = CheckInputNames(FileWith({name}), spec);
    if (status.ok()) continue;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(DetailOf(status).reason, "UNKNOWN_TENSOR");
    refused.push_back(name);
  }
  return refused;
}

TEST(InputNamesTest, InputsAndAnswersPass) {
  const std::vector<std::string> inputs = {"q", "k", "v", "bias", "mask", "lse_offset"};
  const std::vector<std::string> of_forward = {"output", "lse"}, upstream = {"d_out", "d_lse"};
  const std::vector<std::string> answers = {"dq",     "dk",     "dv",      "max_logit",
                                            "d_bias", "d_sink", "lse_rest"};
  const std::vector<std::string> by_mask = {"full_output", "full_lse", "causal_output",
                                            "causal_lse"};
  for (const auto& names : {inputs, of_forward, upstream, answers, by_mask}) {
    EXPECT_THAT(Refused(Forward(), names), testing::IsEmpty());
  }
  for (const auto& names : {inputs, of_forward, upstream, answers}) {
    EXPECT_THAT(Refused(Gradients(), names), testing::IsEmpty());
  }
  EXPECT_EQ(Refused(Gradients(), by_mask), by_mask);
  for (const auto& names : {upstream, answers}) {
    EXPECT_THAT(Refused(ByState(), names), testing::IsEmpty());
  }
  for (const auto& names : {inputs, of_forward, by_mask}) {
    EXPECT_EQ(Refused(ByState(), names), names);
  }
}

TEST(InputNamesTest, OtherNamesAreRefusedInOneLine) {
  const std::vector<std::string> others = {"bit_mask", "attn_mask", "lse-offset", "Q",
                                           "biases",   "sinks",     "d_output"};
  for (const AttentionSpec& spec : {Forward(), Gradients(), ByState()}) {
    EXPECT_EQ(Refused(spec, others), others);
  }
  const absl::Status status =
      CheckInputNames(FileWith({"q", "attn_mask", "k", "bad\nname", "v"}), Forward());
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the input has attn_mask, bad\\nname, but this job takes only q, k, v, "
                        "bias, mask, lse_offset;"));
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("\n")));
}

TEST(InputNamesTest, WhatHasItsPlaceElsewhereIsToldWhere) {
  const auto told = [](const std::string& name, const AttentionSpec& spec) {
    return std::string(CheckInputNames(FileWith({"q", name}), spec).message());
  };
  for (const AttentionSpec& spec : {Forward(), Gradients(), ByState()}) {
    EXPECT_THAT(told("sinks", spec),
                HasSubstr("; sinks: set modifiers.sinks in --spec instead; to skip"));
    EXPECT_THAT(told("alibi_slopes", spec),
                HasSubstr(": set modifiers.alibiSlopes in --spec instead"));
    EXPECT_THAT(told("weird", spec), Not(HasSubstr("modifiers")));
  }
  EXPECT_THAT(told("attn_mask", Forward()),
              HasSubstr("attn_mask: a bit mask must be named mask, an additive mask bias;"));
  EXPECT_THAT(told("attn_mask", ByState()), Not(HasSubstr("must be named mask")));
}

TEST(InputNamesTest, ANameIsLeftAsideWhereAFileHasIt) {
  std::vector<SafetensorsFile> files = {FileWith({"output"}), FileWith({"output", "weird"})};
  for (SafetensorsFile& file : files) file.LeaveAside({"weird"});
  EXPECT_TRUE(CheckLeftAside(files, {"weird"}).ok());
  const absl::Status status = CheckLeftAside(files, {"weird", "od\nd"});
  EXPECT_EQ(DetailOf(status).reason, "MISSING_TENSOR");
  EXPECT_EQ(status.message(), "od\\nd: named in --ignore-tensors, but not in any of the files");
  EXPECT_EQ(CheckLeftAside({files[0]}, {"weird"}).message(),
            "weird: named in --ignore-tensors, but not in the file");
}

TEST(InputNamesTest, WhatIsMissingIsToldWithWhatIsThere) {
  SafetensorsFile file = FileWith({"query", "key\n", "k"});
  const absl::Status status = MissingTensor(file, "q");
  EXPECT_EQ(DetailOf(status).reason, "MISSING_TENSOR");
  EXPECT_EQ(DetailOf(status).fields.at(0).field, "q");
  EXPECT_EQ(status.message(), "q: is not in the file, which has k, key\\n, query");
  EXPECT_EQ(MissingTensor(FileWith({}), "q").message(),
            "q: is not in the file, which has no tensors");
  file.LeaveAside({"k"});
  EXPECT_EQ(MissingTensor(file, "k").message(), "k: is needed, but --ignore-tensors names it");
}

TEST(InputNamesTest, AFileOfAMergeIsNamed) {
  const std::string told(CheckPartialNames(FileWith({"output", "lse_rst"})).message());
  EXPECT_THAT(told,
              HasSubstr("names.safetensors has lse_rst, but a merge takes only output, lse, "));
}

TEST(InputNamesTest, FewOfManyNamesAreSaid) {
  std::vector<std::string> names;
  for (int i = 0; i < 1000; ++i) names.push_back(std::string(10000, 'x') + std::to_string(i));
  const absl::Status status = CheckInputNames(FileWith(names), Forward());
  EXPECT_THAT(std::string(status.message()), HasSubstr(" and 992 more, "));
  EXPECT_LT(status.message().size(), 1000u);
}

}  // namespace
}  // namespace annulus
