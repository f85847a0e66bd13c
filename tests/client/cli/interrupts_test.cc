#include "client/cli/interrupts.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "client/cli/report.h"
#include "client/cli/safetensors/safetensors.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

std::string PathOf(const std::string& name) { return testing::TempDir() + "/" + name; }

// Reads a byte of a mapped file after it was truncated, on another thread.
void ReadWhatIsCut() {
  const int fd = open(PathOf("input").c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  constexpr int kBytes = 1 << 16;
  if (fd < 0 || ftruncate(fd, kBytes) != 0) return;
  void* const mapped = mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (mapped == MAP_FAILED || ftruncate(fd, 0) != 0) return;
  std::thread([mapped] { (void)*static_cast<const volatile char*>(mapped); }).join();
}

TEST(InterruptsDeathTest, AnInputThatIsCutEndsTheProgramWithALine) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const std::string output = PathOf("output.part");
  std::ofstream(output) << "begun";
  EXPECT_EXIT(
      {
        Interrupts interrupts;
        interrupts.RemoveAtEnd(output);
        ReadWhatIsCut();
      },
      testing::ExitedWithCode(kExitRefused), "annulus: an input file became shorter while");
  EXPECT_FALSE(std::ifstream(output).good()) << "what was begun is left";
}

TEST(InterruptsDeathTest, OneThatNothingTakesEndsIt) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        Interrupts interrupts;
        kill(getpid(), SIGINT);
        for (;;) pause();
      },
      testing::ExitedWithCode(kExitInterrupted), "annulus: interrupted");
}

TEST(InterruptsDeathTest, AnotherErrorOfTheBusIsWhatItWas) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        Interrupts interrupts;
        kill(getpid(), SIGUSR2);  // A signal of another process.
        kill(getpid(), SIGBUS);
        for (;;) pause();
      },
      testing::KilledBySignal(SIGBUS), "");
}

// Ends with the error for a file that must not grow as large as needed.
[[noreturn]] void WriteTooMuch(const std::string& path) {
  Interrupts interrupts;
  const rlimit limit = {4096, 4096};
  if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(kExitOk);
  const std::vector<std::byte> bytes(1 << 16);
  absl::Status status;
  {
    SafetensorsWriter writer = *SafetensorsWriter::Create(path);
    status = writer.Commit({{"a", "U8", {1 << 16}, bytes}});
    if (access(writer.partial().c_str(), F_OK) == 0) _exit(kExitOk);
  }
  _exit(ReportError(status, /*json=*/false));
}

TEST(InterruptsDeathTest, AFileThatMayNotGrowIsAnErrorOfItsWrite) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const std::string path = PathOf("limited");
  EXPECT_EXIT(WriteTooMuch(path), testing::ExitedWithCode(kExitRefused),
              "FILE_ERROR: cannot write .*limited: File too large");
  EXPECT_FALSE(std::ifstream(path).good());
}

TEST(InterruptsTest, WhatWasIgnoredStaysSo) {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  {
    Interrupts interrupts;
    sigset_t blocked;
    ASSERT_EQ(pthread_sigmask(SIG_BLOCK, nullptr, &blocked), 0);
    EXPECT_EQ(sigismember(&blocked, SIGHUP), 0) << "it would be taken";
    EXPECT_EQ(sigismember(&blocked, SIGTERM), 1);
    EXPECT_TRUE(IsIgnored(SIGHUP));
    EXPECT_FALSE(IsIgnored(SIGTERM));
    interrupts.SetCancel([] { ADD_FAILURE() << "a hangup cancelled"; });
    EXPECT_EQ(kill(getpid(), SIGHUP), 0);
  }
  std::signal(SIGHUP, before);
}

TEST(InterruptsTest, WhenItIsGoneSignalsAreAsBefore) {
  struct sigaction before = {}, after = {};
  ASSERT_EQ(sigaction(SIGBUS, nullptr, &before), 0);
  { Interrupts interrupts; }
  ASSERT_EQ(sigaction(SIGBUS, nullptr, &after), 0);
  EXPECT_EQ(after.sa_handler, before.sa_handler);
  ASSERT_EQ(sigaction(SIGXFSZ, nullptr, &after), 0);
  EXPECT_EQ(after.sa_handler, SIG_DFL);
  sigset_t blocked;
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, nullptr, &blocked), 0);
  EXPECT_EQ(sigismember(&blocked, SIGINT), 0);
}

}  // namespace
}  // namespace annulus
