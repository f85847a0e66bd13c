#include "client/cli/report.h"

#include <fstream>
#include <iostream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/error.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

const std::map<absl::StatusCode, ExitCode>& Codes() {
  static const auto* table = new std::map<absl::StatusCode, ExitCode>{
      {absl::StatusCode::kOk, kExitOk},
      {absl::StatusCode::kCancelled, kExitInterrupted},
      {absl::StatusCode::kUnknown, kExitFailed},
      {absl::StatusCode::kInvalidArgument, kExitRefused},
      {absl::StatusCode::kDeadlineExceeded, kExitDeadline},
      {absl::StatusCode::kNotFound, kExitRefused},
      {absl::StatusCode::kAlreadyExists, kExitRefused},
      {absl::StatusCode::kPermissionDenied, kExitRefused},
      {absl::StatusCode::kResourceExhausted, kExitTryAgain},
      {absl::StatusCode::kFailedPrecondition, kExitRefused},
      {absl::StatusCode::kAborted, kExitTryAgain},
      {absl::StatusCode::kOutOfRange, kExitRefused},
      {absl::StatusCode::kUnimplemented, kExitRefused},
      {absl::StatusCode::kInternal, kExitFailed},
      {absl::StatusCode::kUnavailable, kExitTryAgain},
      {absl::StatusCode::kDataLoss, kExitWrongAnswer},
      {absl::StatusCode::kUnauthenticated, kExitRefused}};
  return *table;
}

// The table of docs/reference/command-line.md: its text for each exit code.
std::map<int, std::string> Documented() {
  std::ifstream file("docs/reference/command-line.md");
  std::map<int, std::string> rows;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line == "**Exit codes.**") inside = true;
    const std::vector<std::string> cells = absl::StrSplit(line, absl::MaxSplits('|', 2));
    int code = 0;
    if (inside && cells.size() == 3 && absl::SimpleAtoi(cells[1], &code)) rows[code] = cells[2];
    if (inside && !rows.empty() && line.empty()) break;
  }
  return rows;
}

std::set<std::string> Matches(const std::string& text, const char* pattern) {
  const std::regex regex(pattern);
  std::set<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) {
    found.insert((*it)[1]);
  }
  return found;
}

TEST(ReportTest, EveryStatusHasItsExitCode) {
  EXPECT_EQ(Codes().size(), 17u);
  for (const auto& [code, exit_code] : Codes()) {
    EXPECT_EQ(ExitCodeOf(absl::Status(code, "so")), exit_code) << absl::StatusCodeToString(code);
  }
  EXPECT_EQ(ExitCodeOf(absl::DataLossError("")), 6);
  EXPECT_EQ(ExitCodeOf(absl::CancelledError("")), 130);
}

// Statuses that the page does not list with an exit code have "no code of its own".
TEST(ReportTest, ThePageNamesTheStatusesOfEachExitCode) {
  const std::map<int, std::string> rows = Documented();
  std::map<std::string, int> said;
  for (const auto& [exit_code, text] : rows) {
    for (const std::string& word : Matches(text, "`([A-Z_]+)`")) said[word] = exit_code;
  }
  for (const auto& [code, exit_code] : Codes()) {
    const std::string name = absl::StatusCodeToString(code);
    if (exit_code == kExitOk || exit_code == kExitFailed) {
      EXPECT_EQ(said.count(name), 0u) << name;
    } else {
      EXPECT_EQ(said[name], exit_code) << name;
    }
  }
}

TEST(ReportTest, AnErrorIsOneLineAndOneForEachField) {
  std::ostringstream told;
  std::streambuf* const before = std::cerr.rdbuf(told.rdbuf());
  ErrorDetail detail = {"BAD_SPEC", {}, {{"spec", "no JSON: Unexpected end.\n\n^"}}, {}};
  ReportError(MakeError(absl::StatusCode::kInvalidArgument, "not\na spec", detail),
              /*json=*/false);
  std::cerr.rdbuf(before);
  EXPECT_EQ(told.str(),
            "annulus: INVALID_ARGUMENT / BAD_SPEC: not a spec\n"
            "  spec: no JSON: Unexpected end. ^\n");
}

std::string Told(const absl::Status& status) {
  std::ostringstream told;
  std::streambuf* const before = std::cerr.rdbuf(told.rdbuf());
  ReportError(status, /*json=*/false);
  std::cerr.rdbuf(before);
  return told.str();
}

// True if a line about the field follows the message.
bool IsToldApart(const std::string& message, const FieldViolation& field) {
  const std::string told =
      Told(MakeError(absl::StatusCode::kInvalidArgument, message, {"SO", {}, {field}, {}}));
  const std::string first = "annulus: INVALID_ARGUMENT / SO: " + message + "\n";
  EXPECT_EQ(told.substr(0, first.size()), first);
  return told.size() > first.size();
}

TEST(ReportTest, AFieldThatTheMessageTellsIsNotToldTwice) {
  EXPECT_FALSE(IsToldApart("k: another rank than q", {"k", "another rank than q"}));
  EXPECT_FALSE(IsToldApart("attempt 4: spec.scale: 7", {"spec.scale", "7"}));
  EXPECT_FALSE(IsToldApart("a/b: lse: is NaN", {"inputs[1].lse", "is NaN"}));
  EXPECT_FALSE(IsToldApart("a/b: of rank 2", {"files[0]", "of rank 2"}));
  EXPECT_FALSE(IsToldApart("1 file for 2 ranks", {"files", "1 file for 2 ranks"}));
  EXPECT_TRUE(IsToldApart("k: another rank than q", {"v", "another rank than q"}));
  EXPECT_TRUE(IsToldApart("k: another rank than q", {"k", "another batch than q"}));
  EXPECT_TRUE(IsToldApart("too large: 7", {"spec.scale", "7"}));
  EXPECT_TRUE(IsToldApart("k", {"k", ""}));
}

TEST(ReportTest, WhatIsCountedHasItsPlural) {
  EXPECT_EQ(CountText(0, "row"), "0 rows");
  EXPECT_EQ(CountText(1, "partial"), "1 partial");
  EXPECT_EQ(CountText(12, "call"), "12 calls");
}

TEST(ReportTest, WhatMovesATerminalIsWrittenOut) {
  EXPECT_EQ(Told(InvalidField("BAD_SPEC", "a\x1b[2J", std::string("b\0c\xff", 4))),
            "annulus: INVALID_ARGUMENT / BAD_SPEC: a\\x1b[2J: b\\x00c\\xff\n");
  const ErrorDetail detail = {"BAD_SPEC", {}, {{"a\x1b[2J", std::string("b\0c\xff", 4)}}, {}};
  EXPECT_EQ(Told(MakeError(absl::StatusCode::kInvalidArgument, "no", detail)),
            "annulus: INVALID_ARGUMENT / BAD_SPEC: no\n  a\\x1b[2J: b\\x00c\\xff\n");
}

TEST(ReportTest, AnErrorWithoutAMessageIsToldAllTheSame) {
  EXPECT_EQ(Told(absl::UnavailableError("")), "annulus: UNAVAILABLE: the server gave no message\n");
  EXPECT_NE(Told(absl::UnimplementedError("")).find("check that --address is the coordinator"),
            std::string::npos);
}

TEST(ReportTest, ThePageAndTheHelpListTheSameExitCodes) {
  std::set<std::string> rows;
  for (const auto& [exit_code, text] : Documented()) rows.insert(std::to_string(exit_code));
  EXPECT_EQ(rows.size(), 8u);
  EXPECT_EQ(Matches(kExitCodes, "[ \n]([0-9]+) "), rows);
}

}  // namespace
}  // namespace annulus
