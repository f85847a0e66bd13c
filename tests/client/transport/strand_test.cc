#include "client/transport/strand.h"

#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace annulus {
namespace {

TEST(StrandTest, RunsOneAtATimeAndInTheOrderOfEachThread) {
  Strand strand;
  std::vector<int> last(4, -1);
  int64_t count = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 5000; ++i) {
        strand.Post([&, thread, i] {
          EXPECT_EQ(last[thread], i - 1);
          last[thread] = i;
          ++count;
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 20000);
}

TEST(StrandTest, WhatIsPostedInsideRunsAfterwards) {
  Strand strand;
  std::vector<int> order;
  strand.Post([&] {
    strand.Post([&] { order.push_back(2); });
    order.push_back(1);
  });
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(StrandTest, TheLastFunctionMayEndTheStrand) {
  struct Owner {
    Strand strand;
  };
  auto owner = std::make_shared<Owner>();
  std::weak_ptr<Owner> watch = owner;
  Strand* strand = &owner->strand;
  strand->Post([owner = std::move(owner)] { owner->strand.Post([owner] {}); });
  EXPECT_TRUE(watch.expired());
}

}  // namespace
}  // namespace annulus
