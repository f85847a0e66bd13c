#include "benchmarks/bench_report.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace annulus::bench {
namespace {

Entry WithBar(double ratio, double bar, bool higher_is_better) {
  Entry entry;
  entry.name = "goodput";
  entry.ratio = ratio;
  entry.bar = bar;
  entry.higher_is_better = higher_is_better;
  return entry;
}

TEST(ReportTest, MedianAndSpread) {
  EXPECT_EQ(Summarize({3}).median, 3);
  EXPECT_EQ(Summarize({5, 1, 3}).median, 3);
  EXPECT_EQ(Summarize({4, 2, 1, 3}).median, 2.5);
  EXPECT_DOUBLE_EQ(Summarize({4, 2, 3}).spread, 2.0 / 3);
}

TEST(ReportTest, RoundsAreComparedOneByOne) {
  const Entry entry = EntryOfRounds({2, 9, 4}, {4, 10, 4});  // The ratios are 0.5, 0.9 and 1.
  EXPECT_EQ(entry.value, 4);
  EXPECT_DOUBLE_EQ(*entry.ratio, 0.9);
  EXPECT_EQ(*entry.ceiling, 4);
  EXPECT_EQ(entry.repeats, 3);
  EXPECT_DOUBLE_EQ(entry.spread, 0.5 / 0.9);
}

TEST(ReportTest, BarIsJudgedInItsDirection) {
  const auto json = nlohmann::json::parse(
      ToJson({WithBar(0.8, 0.7, true), WithBar(0.6, 0.7, true), WithBar(1.2, 1.35, false),
              WithBar(1.4, 1.35, false), Entry{}}));
  EXPECT_EQ(json[0]["met"], true);
  EXPECT_EQ(json[1]["met"], false);
  EXPECT_EQ(json[2]["met"], true);
  EXPECT_EQ(json[3]["met"], false);
  EXPECT_TRUE(json[4]["met"].is_null());
  EXPECT_TRUE(json[4]["ratio"].is_null());
  EXPECT_EQ(json[2]["better"], "lower");
}

// Must match FIELDS of tools/testing/run_benchmarks.py.
TEST(ReportTest, AnEntryHasElevenFields) {
  Entry full = WithBar(0.8, 0.7, true);
  full.ceiling = 9;
  for (const auto& entry : nlohmann::json::parse(ToJson({full, Entry{}}))) {
    std::set<std::string> fields;
    for (const auto& [field, value] : entry.items()) fields.insert(field);
    EXPECT_EQ(fields,
              (std::set<std::string>{"name", "value", "unit", "compared_to", "ratio", "better",
                                     "bar", "met", "ceiling", "repeats", "spread"}));
  }
}

TEST(ReportTest, AProgramTakesItsOwnFlagOnly) {
  int64_t value = 7;
  const auto read = [&value](std::vector<const char*> argv) {
    argv.insert(argv.begin(), "program");
    return ReadOnlyFlag(static_cast<int>(argv.size()), argv.data(), "--tokens", 64, &value);
  };
  EXPECT_TRUE(read({}));
  EXPECT_EQ(value, 7);
  EXPECT_TRUE(read({"--tokens", "64"}));
  EXPECT_EQ(value, 64);
  EXPECT_FALSE(read({"--tokens", "63"}));
  EXPECT_FALSE(read({"--tokens", "many"}));
  EXPECT_FALSE(read({"--tokens"}));
  EXPECT_FALSE(read({"--threads", "64"}));
}

}  // namespace
}  // namespace annulus::bench
