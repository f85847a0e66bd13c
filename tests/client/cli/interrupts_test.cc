#include "client/cli/interrupts.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>
#include <thread>

#include "client/cli/report.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

std::string PathOf(const std::string& name) { return testing::TempDir() + "/" + name; }

// Reads a byte of a file that is cut when it is mapped already, on a thread of its own.
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
        kill(getpid(), SIGUSR2);  // Somebody else's.
        kill(getpid(), SIGBUS);
        for (;;) pause();
      },
      testing::KilledBySignal(SIGBUS), "");
}

TEST(InterruptsTest, WhenItIsGoneSignalsAreAsBefore) {
  struct sigaction before = {}, after = {};
  ASSERT_EQ(sigaction(SIGBUS, nullptr, &before), 0);
  { Interrupts interrupts; }
  ASSERT_EQ(sigaction(SIGBUS, nullptr, &after), 0);
  EXPECT_EQ(after.sa_handler, before.sa_handler);
  sigset_t blocked;
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, nullptr, &blocked), 0);
  EXPECT_EQ(sigismember(&blocked, SIGINT), 0);
}

}  // namespace
}  // namespace annulus
