// A service that ended early must not yield a measurement.

#include "benchmarks/serve.h"

#include <signal.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace annulus::bench {
namespace {

const std::vector<std::string>& Flags() {
  static const auto& flags =
      *new std::vector<std::string>{"--threads", "1", "--worker-flag=--measure-time=20ms"};
  return flags;
}

// The coordinator, then the workers.
std::vector<pid_t> ChildrenOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/task/", pid, "/children"));
  return {std::istream_iterator<pid_t>(file), std::istream_iterator<pid_t>()};
}

void ServeAndEnd(int workers, const std::vector<int>& killed) {
  {
    Serve serve(workers, Flags());
    const std::vector<pid_t> children = ChildrenOf(serve.pid());
    for (const int child : killed) kill(children.at(child), SIGKILL);
  }
  std::exit(0);
}

TEST(BenchServe, EndsQuietly) { EXPECT_EXIT(ServeAndEnd(2, {}), testing::ExitedWithCode(0), "^$"); }

TEST(BenchServe, AWorkerThatEndedIsNotOverlooked) {
  EXPECT_EXIT(ServeAndEnd(2, {2}), testing::ExitedWithCode(1), "worker-1 was ended by signal 9");
}

TEST(BenchServe, NorIsTheEndOfAll) {
  EXPECT_EXIT(ServeAndEnd(1, {0, 1}), testing::ExitedWithCode(1),
              "coordinator was ended by signal 9");
}

TEST(BenchServe, AServiceThatDoesNotStartSaysWhy) {
  EXPECT_EXIT(Serve(1, {"--worker-flag=--kernel=foo"}), testing::ExitedWithCode(1),
              "instead of its ready line\n(.*\n)*.*--kernel");
}

}  // namespace
}  // namespace annulus::bench
