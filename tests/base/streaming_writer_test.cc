#include "base/streaming_writer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

namespace annulus {
namespace {

std::string Counted(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 7 + i / 256);
  return bytes;
}

TEST(StreamingWriterTest, CopiesAnySizeAtAnyPlaceAndNothingElse) {
  const std::string source = Counted(1024);
  for (size_t size : {0, 1, 15, 63, 64, 65, 127, 128, 200, 600}) {
    for (size_t to = 0; to < 130; ++to) {
      for (size_t from : {0, 1, 16, 77}) {
        std::string got(1024, '#');
        std::string wanted = got;
        StreamingWriter().Copy(got.data() + to, source.data() + from, size);
        wanted.replace(to, size, source, from, size);
        ASSERT_EQ(got, wanted) << size << " bytes from " << from << " to " << to;
      }
    }
  }
}

TEST(StreamingWriterTest, PiecesFollowOneAnother) {
  const std::string source = Counted(100000);
  std::string got(source.size(), '#');
  {
    StreamingWriter writer;
    for (size_t done = 0; done < source.size(); done += 1000) {
      writer.Copy(got.data() + done, source.data() + done, 1000);
    }
  }
  EXPECT_EQ(got, source);
}

TEST(StreamingWriterTest, AnotherThreadSeesTheBytesOnceTheWriterIsGone) {
  const std::string source = Counted(1 << 20);
  std::string target(source.size(), '#');
  std::atomic<bool> written{false};
  std::thread reader([&] {
    while (!written.load(std::memory_order_acquire)) std::this_thread::yield();
    EXPECT_EQ(target, source);
  });
  StreamingWriter().Copy(target.data(), source.data(), source.size());
  written.store(true, std::memory_order_release);
  reader.join();
}

}  // namespace
}  // namespace annulus
