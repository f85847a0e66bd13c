#include "worker/data_plane/copy_pool.h"

#include <gtest/gtest.h>

#include <thread>

#include "proto/wire/chunk_header.h"

namespace annulus {
namespace {

// The thread in which work on so many bytes runs.
std::thread::id ThreadOf(int64_t bytes) {
  std::thread::id thread;
  {
    CopyPool pool(1);
    pool.Run(bytes, [&thread] { thread = std::this_thread::get_id(); });
  }
  return thread;
}

TEST(CopyPoolTest, WhatOneMessageBringsStaysWithItsThread) {
  EXPECT_EQ(ThreadOf(kMaxChunkBytes), std::this_thread::get_id());
}

TEST(CopyPoolTest, MoreDoesNot) {
  EXPECT_NE(ThreadOf(kMaxChunkBytes + 1), std::this_thread::get_id());
}

}  // namespace
}  // namespace annulus
