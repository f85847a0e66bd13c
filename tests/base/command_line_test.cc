#include "base/command_line.h"

#include "base/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

using ::testing::HasSubstr;

class CommandLineTest : public testing::Test {
 protected:
  CommandLineTest() : app_("annulus-worker", "Computes.") {
    AddInteger(&app_, {"--threads", "Compute threads"}, {1, 64}, &threads_, "threads");
    AddDuration(&app_, {"--lease", "Lease"}, {absl::Seconds(1), absl::Hours(1)}, &lease_);
    AddBytes(&app_, {"--staging", "Staging memory"}, {0, int64_t{1} << 40}, &staging_);
    AddBytesOrZero(&app_, {"--share", "Memory; 0: a share"}, {1 << 20, int64_t{1} << 40}, &share_);
    AddAddress(&app_, {"--address", "Where to listen"}, &address_);
    AddChoice(&app_, {"--layout", "Rows of ranks"}, {"auto", "zig-zag"}, &layout_);
    AddFile(&app_, {"--input", "What to read"}, &input_);
    AddFiles(&app_, {"--part", "What to read, too"}, &parts_);
    AddName(&app_, {"--slot", "Name of its place"}, {1, 8}, &slot_);
    AddText(&app_, {"--even", "A number"}, "EVEN", "", [this](const std::string& text) {
      if (text.empty() || (text.back() - '0') % 2 != 0) {
        return absl::InvalidArgumentError(text + " is odd");
      }
      even_ = text;
      return absl::OkStatus();
    });
    AddSwitch(&app_, {"--steady", "The same again"}, &steady_);
    AddSwitch(&app_, {"--loud", "Says it all"}, &loud_);
    AddLogFlags(&app_, &log_);
  }
  // The exit code, or -1 if the program would continue.
  int Parse(std::vector<const char*> flags) {
    flags.insert(flags.begin(), "annulus-worker");
    testing::internal::CaptureStderr();
    testing::internal::CaptureStdout();
    const auto code = ParseCommandLine(&app_, static_cast<int>(flags.size()), flags.data());
    error_ = testing::internal::GetCapturedStderr();
    output_ = testing::internal::GetCapturedStdout();
    return code.value_or(-1);
  }

  CommandLine app_;
  int64_t threads_ = 2;
  absl::Duration lease_ = absl::Seconds(5);
  int64_t staging_ = int64_t{64} << 20;
  int64_t share_ = 0;
  std::string address_ = "127.0.0.1:8001";
  std::string layout_ = "auto";
  std::string input_, slot_ = "w0", even_;
  std::vector<std::string> parts_;
  std::optional<bool> steady_;
  bool loud_ = false;
  LogOptions log_;
  std::string error_, output_;
};

TEST_F(CommandLineTest, DefaultsStay) {
  EXPECT_EQ(Parse({}), -1);
  EXPECT_EQ(threads_, 2);
  EXPECT_EQ(lease_, absl::Seconds(5));
  EXPECT_EQ(address_, "127.0.0.1:8001");
}

TEST_F(CommandLineTest, ReadsEveryForm) {
  EXPECT_EQ(Parse({"--threads=64", "--lease", "1m30s", "--staging=2GB", "--address", "[::1]:0",
                   "--layout=zig_zag", "--log-level=error", "--log-format=json", "--input=a b",
                   "--slot=12345678", "--even=4", "--part=b", "--part", "a"}),
            -1)
      << error_;
  EXPECT_EQ(threads_, 64);
  EXPECT_EQ(lease_, absl::Seconds(90));
  EXPECT_EQ(staging_, 2000000000);
  EXPECT_EQ(address_, "[::1]:0");
  EXPECT_EQ(layout_, "zig-zag");
  EXPECT_EQ(input_, "a b");
  EXPECT_EQ(parts_, (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ(slot_, "12345678");
  EXPECT_EQ(even_, "4");
  EXPECT_EQ(log_.level, LogLevel::kError);
  EXPECT_EQ(log_.format, LogFormat::kJson);
}

TEST_F(CommandLineTest, ZeroMayStandBesideARange) {
  EXPECT_EQ(Parse({"--share=1MiB"}), -1) << error_;
  EXPECT_EQ(share_, 1 << 20);
  EXPECT_EQ(Parse({"--share=0B"}), -1) << error_;
  EXPECT_EQ(share_, 0);
}

TEST(ParseHostTest, APortMayFollow) {
  using Place = std::pair<std::string, int>;
  EXPECT_EQ(*ParseHost("worker.example"), Place("worker.example", 0));
  EXPECT_EQ(*ParseHost("worker.example:0"), Place("worker.example", 0));
  EXPECT_EQ(*ParseHost("worker.example:8004"), Place("worker.example", 8004));
  EXPECT_EQ(*ParseHost("[::1]"), Place("[::1]", 0));
  EXPECT_EQ(*ParseHost("[::1]:8004"), Place("[::1]", 8004));
  for (const char* wrong : {"", ":", ":8004", "host:", "host:65536", "::1", "a host"}) {
    EXPECT_FALSE(ParseHost(wrong).ok()) << wrong;
  }
}

TEST(IsEveryAddressTest, KnowsAllItsForms) {
  for (const char* host : {"0.0.0.0", "0", "[::]", "[0:0::0]"}) {
    EXPECT_TRUE(IsEveryAddress(host)) << host;
  }
  for (const char* host : {"", "127.0.0.1", "[::1]", "localhost", "0.0.0.0:1", "[]"}) {
    EXPECT_FALSE(IsEveryAddress(host)) << host;
  }
}

TEST_F(CommandLineTest, ASwitchMayBeSwitchedOff) {
  EXPECT_EQ(Parse({}), -1);
  EXPECT_FALSE(steady_.has_value());
  EXPECT_EQ(Parse({"--steady=false"}), -1);
  EXPECT_EQ(steady_, std::optional<bool>(false));
  EXPECT_EQ(Parse({"--steady"}), -1);
  EXPECT_EQ(steady_, std::optional<bool>(true));
  EXPECT_EQ(Parse({"--loud=true"}), -1);
  EXPECT_TRUE(loud_);
  EXPECT_EQ(Parse({"--loud=false"}), -1);
  EXPECT_FALSE(loud_);
}

TEST_F(CommandLineTest, ASwitchIsOnOrOff) {
  for (const std::string value : {"maybe", "0x", "-1", "1", "99999999999999999999999", "{}x"}) {
    for (const std::string name : {"--steady=", "--loud="}) {
      EXPECT_EQ(Parse({(name + value).c_str()}), kUsageExitCode) << value;
      EXPECT_THAT(error_, HasSubstr("'" + value + "' is not one of true|false (see --help)\n"));
    }
  }
  EXPECT_FALSE(steady_.has_value());
  EXPECT_FALSE(loud_);
}

TEST_F(CommandLineTest, AWrongFlagEndsWithOneLineAndTwo) {
  for (const char* flag : {"--threads=0",
                           "--threads=65",
                           "--threads=1.5",
                           "--threads=",
                           "--lease=5",
                           "--lease=0s",
                           "--lease=nan",
                           "--staging=-1",
                           "--staging=2XB",
                           "--staging=99999999TiB",
                           "--share=1",
                           "--share=2TiB",
                           "--address=8001",
                           "--address=:1",
                           "--address=a:65536",
                           "--address=a:b",
                           "--layout=ring",
                           "--log-level=loud",
                           "--log-format=xml",
                           "--slot=123456789",
                           "--even=3",
                           "--unknown=1",
                           "word"}) {
    EXPECT_EQ(Parse({flag}), kUsageExitCode) << flag;
    EXPECT_EQ(std::count(error_.begin(), error_.end(), '\n'), 1) << error_;
    EXPECT_THAT(error_, HasSubstr("annulus-worker: ")) << flag;
    EXPECT_EQ(output_, "") << flag;
  }
  for (const char* flag : {"--input", "--part", "--slot"}) {
    EXPECT_EQ(Parse({flag, ""}), kUsageExitCode) << flag;
  }
  EXPECT_EQ(Parse({"--threads=65"}), kUsageExitCode);
  EXPECT_THAT(error_, HasSubstr("--threads: 65 is out of range, 1 to 64 threads (see"));
  EXPECT_EQ(Parse({"--lease=2h"}), kUsageExitCode);
  EXPECT_THAT(error_, HasSubstr("--lease: 2h is out of range, 1s to 1h (see"));
  EXPECT_EQ(Parse({"--staging=2TiB"}), kUsageExitCode);
  EXPECT_THAT(error_, HasSubstr("--staging: 2TiB is out of range, 0B to 1TiB (see"));
}

TEST_F(CommandLineTest, SaysWhatWasMeant) {
  EXPECT_EQ(Parse({"--treads=3", "more"}), kUsageExitCode);
  EXPECT_EQ(
      error_,
      "annulus-worker: not expected: --treads=3 more; did you mean --threads? (see --help)\n");
  EXPECT_EQ(Parse({"word"}), kUsageExitCode);
  EXPECT_EQ(error_, "annulus-worker: not expected: word (see --help)\n");
  EXPECT_EQ(Parse({"--threads=3", "--threads", "4"}), kUsageExitCode);
  EXPECT_EQ(error_, "annulus-worker: --threads: given twice (see --help)\n");
  EXPECT_EQ(Parse({"--layout"}), kUsageExitCode);
  EXPECT_EQ(error_, "annulus-worker: --layout: its value is missing (see --help)\n");
}

TEST_F(CommandLineTest, SaysWhatWasMeantByACommandsFlag) {
  std::string text;
  AddFile(app_.AddCommand("read", "Read a file"), {"--source", "What to read"}, &text);
  EXPECT_EQ(Parse({"read", "--suorce", "x"}), kUsageExitCode);
  EXPECT_THAT(error_, HasSubstr("not expected: --suorce x; did you mean --source? (see"));
}

TEST_F(CommandLineTest, HelpShowsUnitRangeAndDefault) {
  EXPECT_EQ(Parse({"--help"}), 0);
  EXPECT_EQ(error_, "");
  EXPECT_THAT(output_, HasSubstr("1 to 64 threads=2"));
  EXPECT_THAT(output_, HasSubstr("TIME, 1s to 1h=5s"));
  EXPECT_THAT(output_, HasSubstr("0B to 1TiB=64MiB"));
  EXPECT_THAT(output_, HasSubstr("BYTES, 0 or 1MiB to 1TiB=0"));
  EXPECT_THAT(output_, HasSubstr("--input [DIR/]FILE "));
  EXPECT_THAT(output_, HasSubstr("--part [DIR/]FILE ... "));
  EXPECT_THAT(output_, HasSubstr("NAME, 1 to 8 characters=w0"));
}

TEST_F(CommandLineTest, TheVersionIsThatOfTheProgram) {
  EXPECT_EQ(Parse({"--version"}), 0);
  EXPECT_EQ(output_, std::string("annulus-worker ") + kVersion + "\n");
  EXPECT_EQ(error_, "");
}

TEST(ParseBytesTest, RoundTripsThroughItsText) {
  for (int64_t bytes :
       {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{1} << 20, int64_t{3} << 40}) {
    EXPECT_EQ(ParseBytes(FormatBytes(bytes)).value(), bytes);
  }
  EXPECT_FALSE(ParseBytes("").ok());
  EXPECT_FALSE(ParseBytes("MiB").ok());
}

}  // namespace
}  // namespace annulus
