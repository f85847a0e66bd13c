#include "worker/data_plane/copy_pool.h"

#include <gtest/gtest.h>

#include <thread>

#include "proto/wire/chunk_header.h"

namespace annulus {
namespace {

// The thread that runs work on `bytes` bytes.
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
