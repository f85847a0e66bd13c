#include "base/log.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "base/steady_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace annulus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

class LogTest : public testing::Test {
 protected:
  void Init(LogFormat format, LogLevel level = LogLevel::kInfo) {
    InitLogging({level, format, "worker-3", &stream_});
  }
  ~LogTest() override { InitLogging({}); }
  std::ostringstream stream_;
};

TEST_F(LogTest, TextLineCarriesLevelComponentAndJob) {
  Init(LogFormat::kText);
  LogWarning("job-7", "lost ", 2, " workers");
  EXPECT_THAT(stream_.str(), MatchesRegex("20[0-9-]+T[0-9:.]+Z W worker-3 job=job-7 "
                                          "lost 2 workers\n"));
}

TEST_F(LogTest, TextStaysOnOneLineWhateverTheMessage) {
  Init(LogFormat::kText);
  LogInfo(kNoJob, "two\nlines \x1b[31m");
  EXPECT_THAT(stream_.str(), HasSubstr("worker-3 two lines \\x1b[31m\n"));
  EXPECT_THAT(stream_.str(), Not(HasSubstr("job=")));
}

TEST_F(LogTest, TextIsWhatThePagesQuote) {
  Init(LogFormat::kText);
  LogError(kNoJob, "kernel path \"amx\", 30 µs");
  EXPECT_THAT(stream_.str(), HasSubstr("worker-3 kernel path \"amx\", 30 µs\n"));
}

TEST_F(LogTest, JsonLineParsesWhateverTheMessage) {
  Init(LogFormat::kJson);
  LogError("job-7", "quote \" newline \n and no UTF-8 \xff {}");
  const nlohmann::json line = nlohmann::json::parse(stream_.str());
  EXPECT_EQ(line["level"], "error");
  EXPECT_EQ(line["component"], "worker-3");
  EXPECT_EQ(line["job"], "job-7");
  EXPECT_EQ(line["message"], "quote \" newline \n and no UTF-8 \xEF\xBF\xBD {}");
}

TEST_F(LogTest, LinesBelowTheLevelAreDropped) {
  Init(LogFormat::kText, LogLevel::kWarning);
  LogInfo("job-7", "dropped");
  LogError("job-7", "kept");
  EXPECT_FALSE(LogEnabled(LogLevel::kInfo));
  EXPECT_THAT(stream_.str(), Not(HasSubstr("dropped")));
  EXPECT_THAT(stream_.str(), HasSubstr("kept"));
}

TEST_F(LogTest, LinesOfManyThreadsStayWhole) {
  Init(LogFormat::kJson);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 50; ++i) LogInfo("job-7", "line ", i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<std::string> lines = absl::StrSplit(stream_.str(), '\n', absl::SkipEmpty());
  EXPECT_EQ(lines.size(), 200u);
  for (const std::string& line : lines) EXPECT_TRUE(nlohmann::json::accept(line)) << line;
}

using Ends = std::pair<int, int>;  // (read end, write end).

Ends Pipe() {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  return {ends[0], ends[1]};
}

Ends Terminal() {
  const int reader = posix_openpt(O_RDWR | O_NOCTTY);
  EXPECT_EQ(grantpt(reader), 0);
  EXPECT_EQ(unlockpt(reader), 0);
  return {reader, open(ptsname(reader), O_RDWR | O_NOCTTY)};
}

Ends Sockets() {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  return {ends[0], ends[1]};
}

// Standard error, read only when the test calls Read.
class Reader {
 public:
  explicit Reader(Ends ends) : ends_(ends), stderr_(dup(STDERR_FILENO)) {
    EXPECT_EQ(fcntl(ends_.first, F_SETFL, O_NONBLOCK), 0);
    EXPECT_EQ(dup2(ends_.second, STDERR_FILENO), STDERR_FILENO);
    InitLogging({LogLevel::kInfo, LogFormat::kText, "worker-3", nullptr});
  }
  ~Reader() {
    dup2(stderr_, STDERR_FILENO);
    for (const int file : {stderr_, ends_.first, ends_.second}) close(file);
    InitLogging({});
  }
  // The lines written since the last call.
  std::vector<std::string> Read() {
    std::string text;
    char piece[4096];
    for (ssize_t got; (got = read(ends_.first, piece, sizeof(piece))) > 0;) text.append(piece, got);
    return absl::StrSplit(text, absl::ByAnyChar("\r\n"), absl::SkipEmpty());
  }

 private:
  const Ends ends_;
  const int stderr_;
};

class ReaderTest : public testing::Test, public Reader {
 protected:
  ReaderTest() : Reader(Pipe()) {}
};

TEST_F(ReaderTest, WhoLogsDoesNotWaitForAReaderThatStandsStill) {
  constexpr int kLines = 3000;
  const std::string padding(100, 'x');
  for (int i = 0; i < kLines; ++i) LogInfo(kNoJob, padding, " line ", i);
  const std::vector<std::string> first = Read();
  EXPECT_GT(first.size(), 10);
  EXPECT_LT(first.size(), kLines / 2);
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_THAT(first[i], MatchesRegex(absl::StrCat(".* I worker-3 x+ line ", i)));
  }
  LogError("job-7", "now there is room");
  EXPECT_THAT(Read(),
              ElementsAre(MatchesRegex(absl::StrCat(".* W worker-3 standard error was blocked: ",
                                                    kLines - first.size(), " lines were dropped")),
                          MatchesRegex(".* E worker-3 job=job-7 now there is room")));
  LogInfo(kNoJob, "and again");
  EXPECT_THAT(Read(), ElementsAre(HasSubstr("and again")));
}

// A part of a long line may have been written.
TEST_F(ReaderTest, WhatFollowsALineThatWasCutBeginsAnew) {
  LogInfo(kNoJob, std::string(1 << 20, 'x'));
  const std::vector<std::string> cut = Read();
  ASSERT_EQ(cut.size(), 1u);
  EXPECT_LT(cut[0].size(), 1u << 20);
  LogInfo(kNoJob, "next");
  EXPECT_THAT(Read(), ElementsAre(HasSubstr("1 lines were dropped"), HasSubstr("next")));
}

// A terminal may report room and then write nothing. If there are many lines, some may be
// truncated.
TEST(ReadersTest, WhoLogsWaitsForNoneOfAnyKind) {
  for (const auto& make : {Pipe, Terminal, Sockets}) {
    Reader reader(make());
    for (int i = 0; i < 200; ++i) LogInfo(kNoJob, std::string(3000, 'x'));
    EXPECT_EQ(fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK, 0) << "others write to it, too";
    bool told = false;
    const absl::Time deadline = SteadyNow() + absl::Seconds(20);
    while (!told && SteadyNow() < deadline) {
      (void)reader.Read();
      LogInfo(kNoJob, "now there is room");
      for (const std::string& line : reader.Read()) {
        told |= absl::StrContains(line, "lines were dropped");
      }
    }
    EXPECT_TRUE(told);
  }
}

TEST(ParseLogTest, RefusesUnknownWords) {
  EXPECT_EQ(ParseLogLevel("warning").value(), LogLevel::kWarning);
  EXPECT_EQ(ParseLogFormat("json").value(), LogFormat::kJson);
  EXPECT_EQ(ParseLogLevel("loud").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseLogFormat("xml").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace annulus
