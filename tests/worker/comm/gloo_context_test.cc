#include "worker/comm/gloo_context.h"

#include <dirent.h>
#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/pair.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "gtest/gtest.h"
#include "worker/comm/bind_address.h"

namespace {
std::atomic<size_t> largest_allocation{0};
}  // namespace

// Also used by the library.
void* operator new(size_t bytes) {
  if (bytes > largest_allocation) largest_allocation = bytes;
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace annulus {
namespace {

namespace tcp = ::gloo::transport::tcp;
using ::gloo::transport::Context;
using ::gloo::transport::Pair;
using ::gloo::transport::UnboundBuffer;

constexpr std::chrono::seconds kTimeout(20);

std::set<std::string> Threads() {
  std::set<std::string> threads;
  DIR* const folder = opendir("/proc/self/task");
  if (folder == nullptr) return threads;
  while (const dirent* entry = readdir(folder))
    if (entry->d_name[0] != '.') threads.insert(entry->d_name);
  closedir(folder);
  return threads;
}

// How often a thread has gone to sleep voluntarily; −1 if this cannot be read.
int64_t Sleeps(const std::string& thread) {
  std::ifstream status("/proc/self/task/" + thread + "/status");
  int64_t count = -1;
  for (std::string line; std::getline(status, line);) {
    if (absl::StartsWith(line, "voluntary_ctxt_switches:"))
      (void)absl::SimpleAtoi(line.substr(line.find(':') + 1), &count);
  }
  return count;
}

// Gloo's lock of a pair, which sends and receives hold.
struct Opener : tcp::Pair {
  static std::mutex& LockOf(::gloo::transport::Pair* pair) {
    return static_cast<tcp::Pair*>(pair)->*(&Opener::m_);
  }
};

class GlooContextTest : public testing::Test {
 protected:
  // Two connected ranks.
  void SetUp() override {
    std::thread([] {}).join();  // TSan creates a thread of its own with the first thread.
    const BindAddress address = ResolveBindAddress("127.0.0.1", "").value();
    for (int rank : {0, 1}) {
      const std::set<std::string> before = Threads();
      devices_[rank] = MakeGlooDevice(address);
      for (const std::string& thread : Threads())
        if (before.count(thread) == 0) loops_[rank].push_back(thread);
      contexts_[rank] = MakeGlooContext(devices_[rank], rank, 2);
      contexts_[rank]->setTimeout(std::chrono::duration_cast<std::chrono::milliseconds>(kTimeout));
      addresses_[rank] = contexts_[rank]->createPair(1 - rank)->address().bytes();
    }
    std::thread other([this] { Connect(1); });
    Connect(0);
    other.join();
  }

  Pair* PairOf(int rank) { return contexts_[rank]->getPair(1 - rank).get(); }
  void Connect(int rank) { PairOf(rank)->connect(addresses_[1 - rank]); }

  std::shared_ptr<tcp::Device> devices_[2];
  std::vector<std::string> loops_[2];  // Threads that the device started.
  std::shared_ptr<Context> contexts_[2];
  std::vector<char> addresses_[2];  // A connected pair reports another address.
};

TEST_F(GlooContextTest, ALoopSleepsWhileAnotherThreadHoldsThePairThatItIsToServe) {
  if (loops_[0].empty() || Sleeps(loops_[0][0]) < 0)
    GTEST_SKIP() << "/proc tells nothing of threads";
  ASSERT_EQ(loops_[0].size(), 1u);
  uint64_t sent = 0x5eed, received = 0;
  auto to = contexts_[0]->createUnboundBuffer(&received, sizeof(received));
  auto from = contexts_[1]->createUnboundBuffer(&sent, sizeof(sent));
  {
    std::unique_lock<std::mutex> held(Opener::LockOf(PairOf(0)));
    from->send(0, 0);  // When this returns, the first bytes are in the other's socket.
    // An idle loop sleeps once per 10 ms of Gloo's; a loop that retries at once never sleeps.
    const int64_t before = Sleeps(loops_[0][0]);
    const auto deadline = std::chrono::steady_clock::now() + kTimeout;
    while (Sleeps(loops_[0][0]) < before + 10) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "the loop does not sleep";
      std::this_thread::yield();
    }
  }
  to->recv(1, 0);
  ASSERT_TRUE(to->waitRecv(nullptr, kTimeout));
  ASSERT_TRUE(from->waitSend(nullptr, kTimeout));
  EXPECT_EQ(received, 0x5eed);
}

// A closing thread holds the lock until the loop has completed a round.
TEST_F(GlooContextTest, APairIsClosedWhileBytesWaitForIt) {
  uint64_t sent = 0x5eed;
  auto from = contexts_[1]->createUnboundBuffer(&sent, sizeof(sent));
  for (int i = 0; i < 100; ++i) from->send(0, i);
  PairOf(0)->close();
  PairOf(1)->close();
}

// All other allocations for a pair are small.
TEST_F(GlooContextTest, APairIsAsLargeByOurHeaderAsInTheLibrary) {
  const std::shared_ptr<Context> own = devices_[0]->createContext(0, 2);
  largest_allocation = 0;
  own->createPair(1);
  EXPECT_EQ(largest_allocation, sizeof(tcp::Pair));
}

}  // namespace
}  // namespace annulus
