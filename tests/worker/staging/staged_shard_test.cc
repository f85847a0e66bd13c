#include "worker/staging/staged_shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "attention/spec/spec.h"
#include "base/error.h"
#include "proto/wire/chunk_header.h"
#include "proto/wire/crc32c.h"
#include "tests/sanitized.h"

namespace annulus {
namespace {

ShardShape SmallShape(int64_t q_rows = 5, int64_t kv_rows = 7, bool keeps_state = false) {
  AttentionSpec spec;
  if (keeps_state) spec.forward.keep_state = absl::Seconds(1);
  spec.dtype = DataType::kBf16;
  spec.q_heads = 4;
  spec.kv_heads = 2;
  spec.head_dim = 3;
  return {TensorTable(spec), q_rows, kv_rows};
}

class StagedShardTest : public testing::Test {
 protected:
  void SetUp() override { shard_ = Make(SmallShape()); }

  std::shared_ptr<StagedShard> Make(const ShardShape& shape) {
    auto shard = StagedShard::Create(pool_.get(), shape, [this] { ++freed_; });
    EXPECT_TRUE(shard.ok()) << shard.status();
    return *shard;
  }

  // Bytes of a whole tensor that encode their position.
  static std::string Whole(const ShardShape& shape, TensorId id) {
    const TensorInfo* tensor = FindTensor(shape.tensors, id);
    std::string bytes(shape.rows(*tensor) * tensor->row_bytes(), '\0');
    for (size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<char>(i * 7 + static_cast<int>(id));
    return bytes;
  }
  static std::string Part(const ShardShape& shape, const ChunkHeader& chunk) {
    const TensorInfo* tensor = FindTensor(shape.tensors, chunk.tensor);
    const std::string whole = Whole(shape, chunk.tensor);
    const int64_t head_bytes = tensor->row_bytes() / tensor->heads;
    const int32_t heads = chunk.head_count == 0 ? tensor->heads : chunk.head_count;
    std::string part;
    for (int64_t row = chunk.row_begin; row < chunk.row_begin + chunk.row_count; ++row) {
      part += whole.substr(row * tensor->row_bytes() + chunk.head_begin * head_bytes,
                           heads * head_bytes);
    }
    return part;
  }

  absl::Status Put(UploadCall* call, const ChunkHeader& chunk) {
    const std::string bytes = Part(shard_->shape(), chunk);
    return PutBytes(call, chunk, bytes);
  }
  absl::Status PutBytes(UploadCall* call, const ChunkHeader& header, const std::string& bytes) {
    // In uneven pieces, including an empty one.
    const absl::string_view view(bytes);
    const size_t cut = bytes.size() / 3;
    const std::vector<absl::string_view> pieces = {view.substr(0, cut), view.substr(cut, 0),
                                                   view.substr(cut)};
    ArrivingChunk chunk{header, pieces};
    return shard_->Write(call, chunk);
  }
  absl::Status PutAll(UploadCall* call) {
    for (TensorId id : {TensorId::kQ, TensorId::kK, TensorId::kV}) {
      const TensorInfo* tensor = FindTensor(shard_->shape().tensors, id);
      absl::Status status = Put(call, {id, 0, shard_->shape().rows(*tensor), 0, 0, {}});
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  void ExpectContents() {
    for (size_t i = 0; i < shard_->shape().tensors.size(); ++i) {
      const TensorInfo& tensor = shard_->shape().tensors[i];
      if (tensor.direction != Direction::kInput) continue;
      const std::string wanted = Whole(shard_->shape(), tensor.id);
      EXPECT_EQ(std::memcmp(shard_->tensor_data(i), wanted.data(), wanted.size()), 0)
          << TensorName(tensor.id);
    }
  }
  static std::string Reason(const absl::Status& status) { return DetailOf(status).reason; }

  std::shared_ptr<MemoryBudget> budget_ = MemoryBudget::Create("staging", 1 << 20);
  std::shared_ptr<PagePool> pool_ = PagePool::Create(budget_);
  int freed_ = 0;
  std::shared_ptr<StagedShard> shard_;
};

TEST_F(StagedShardTest, AnLseOfLostDigitsNeedsItsRest) {
  AttentionSpec spec;
  spec.dtype = DataType::kBf16;
  spec.q_heads = spec.kv_heads = 2;
  spec.head_dim = 3;
  spec.operation = Operation::kGradients;
  const auto put = [&](float lse) {
    shard_ = Make({TensorTable(spec), 2, 7});
    const float values[] = {1, -INFINITY, 65535, lse};
    UploadCall call;
    return PutBytes(&call, {TensorId::kLse, 0, 2, 0, 0, {}},
                    std::string(reinterpret_cast<const char*>(values), sizeof(values)));
  };
  for (const float lse : {-1e9f, 65536.0f, -3.4e38f}) {
    const absl::Status refused = put(lse);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(Reason(refused), "LSE_TOO_COARSE");
    EXPECT_EQ(DetailOf(refused).fields[0].field, "lse");
    EXPECT_NE(refused.message().find("row 1 of the shard, head 1"), std::string::npos) << refused;
    EXPECT_EQ(shard_->received_bytes(), 0);
  }
  for (const float lse : {-65535.0f, INFINITY, NAN}) EXPECT_TRUE(put(lse).ok()) << lse;
  spec.outputs.lse_rest = true;
  EXPECT_TRUE(put(-1e9f).ok());
}

// A result that no client fetches has memory of its own.
TEST_F(StagedShardTest, KeptResultsHaveTheirPlace) {
  AttentionSpec spec;
  spec.dtype = DataType::kBf16;
  spec.q_heads = spec.kv_heads = 2;
  spec.head_dim = 3;
  spec.forward.keep_state = absl::Seconds(1);
  const ShardShape shape{TensorTable(spec), 5, 7};
  EXPECT_EQ(shape.bytes(Direction::kKept), 5 * 2 * 4);
  EXPECT_EQ(shape.own_bytes(),
            shape.bytes(Direction::kInput) + shape.bytes(Direction::kOutput) + 40);
  shard_ = Make(shape);
  EXPECT_EQ(shard_->output_bytes(), shape.bytes(Direction::kOutput));
  const TensorInfo* rest = FindTensor(shape.tensors, TensorId::kLseRest);
  std::memset(shard_->tensor_data(rest - shape.tensors.data()), 1, 40);
}

TEST_F(StagedShardTest, WholeTensorsCompleteIt) {
  UploadCall call;
  EXPECT_FALSE(shard_->complete());
  ASSERT_TRUE(PutAll(&call).ok());
  EXPECT_TRUE(shard_->complete());
  EXPECT_EQ(shard_->received_bytes(), 5 * 24 + 7 * 12 + 7 * 12);
  EXPECT_EQ(shard_->expected_bytes(), shard_->received_bytes());
  EXPECT_EQ(shard_->output_bytes(), 5 * 24 + 5 * 16);
  EXPECT_TRUE(shard_->Missing(10).empty());
  ExpectContents();
}

TEST_F(StagedShardTest, LargeInputsArriveInAnyPieces) {
  pool_ = PagePool::Create(MemoryBudget::Create("staging", 16 << 20));
  shard_ = Make(SmallShape(5, 200000));
  ASSERT_GT(shard_->expected_bytes(), 4 << 20) << "past the caches";
  UploadCall call;
  ASSERT_TRUE(Put(&call, {TensorId::kQ, 0, 5, 0, 0, {}}).ok());
  ASSERT_TRUE(Put(&call, {TensorId::kK, 0, 3, 0, 0, {}}).ok());
  ASSERT_TRUE(Put(&call, {TensorId::kK, 3, 70000, 0, 0, {}}).ok());
  ASSERT_TRUE(Put(&call, {TensorId::kK, 70003, 129997, 0, 0, {}}).ok());
  ASSERT_TRUE(Put(&call, {TensorId::kV, 0, 200000, 1, 1, {}}).ok());
  EXPECT_FALSE(shard_->complete());
  ASSERT_TRUE(Put(&call, {TensorId::kV, 0, 200000, 0, 1, {}}).ok());
  EXPECT_TRUE(shard_->complete());
  ExpectContents();
}

ShardShape ByState(int64_t q_rows = 5, int64_t kv_rows = 7) {
  AttentionSpec spec;
  spec.dtype = DataType::kBf16;
  spec.q_heads = 4;
  spec.kv_heads = 2;
  spec.head_dim = 3;
  spec.operation = Operation::kGradients;
  spec.gradients.state = "job";
  return {TensorTable(spec), q_rows, kv_rows};
}

TEST_F(StagedShardTest, BorrowsWhatAnotherOneHas) {
  shard_ = Make(SmallShape(5, 7, /*keeps_state=*/true));
  freed_ = 0;
  UploadCall call;
  ASSERT_TRUE(PutAll(&call).ok());
  const int64_t kept = budget_->used_bytes();
  auto borrower = StagedShard::Create(
      pool_.get(), ByState(), [this] { ++freed_; }, shard_);
  ASSERT_TRUE(borrower.ok()) << borrower.status();
  // d_out, dq, dk and dv.
  EXPECT_EQ(budget_->used_bytes() - kept, 2 * 5 * 24 + 2 * 7 * 12);
  EXPECT_EQ((*borrower)->expected_bytes(), 5 * 24) << "d_out alone";
  EXPECT_EQ((*borrower)->output_bytes(), 5 * 24 + 2 * 7 * 12);
  const std::vector<TensorInfo>& table = (*borrower)->shape().tensors;
  for (size_t i = 0; i < table.size(); ++i) {
    if (table[i].direction != Direction::kLent) continue;
    const auto* lent = FindTensor(shard_->shape().tensors, table[i].id);
    EXPECT_EQ((*borrower)->tensor_data(i),
              shard_->tensor_data(lent - shard_->shape().tensors.data()));
  }
  const std::string bytes(24, 'x');
  const std::vector<absl::string_view> pieces = {bytes};
  UploadCall second;
  EXPECT_EQ(Reason((*borrower)->Write(&second, {{TensorId::kQ, 0, 1, 0, 0, {}}, pieces})),
            "UNKNOWN_TENSOR");
  // The lender's memory stays as long as it is lent.
  shard_.reset();
  EXPECT_EQ(freed_, 0);
  borrower->reset();
  EXPECT_EQ(freed_, 2);
  EXPECT_EQ(budget_->used_bytes(), 0);
}

TEST_F(StagedShardTest, BorrowsNothingThatIsNotThere) {
  shard_ = Make(SmallShape(5, 7, /*keeps_state=*/true));
  const auto refused = [&](const ShardShape& shape, std::shared_ptr<StagedShard> lender) {
    return Reason(StagedShard::Create(pool_.get(), shape, nullptr, std::move(lender)).status()) ==
           "INVALID_PLAN";
  };
  EXPECT_TRUE(refused(ByState(), nullptr));
  EXPECT_TRUE(refused(ByState(), shard_)) << "not complete";
  UploadCall call;
  ASSERT_TRUE(PutAll(&call).ok());
  EXPECT_FALSE(refused(ByState(), shard_));
  EXPECT_TRUE(refused(ByState(4, 7), shard_)) << "other rows";
  EXPECT_TRUE(refused(ByState(5, 8), shard_)) << "other rows";
  ShardShape other = ByState();
  other.tensors[0].heads = 2;
  EXPECT_TRUE(refused(other, shard_)) << "other heads";
  auto borrower = StagedShard::Create(pool_.get(), ByState(), nullptr, shard_);
  EXPECT_TRUE(refused(ByState(), *borrower)) << "what is lent is not lent on";
}

TEST_F(StagedShardTest, ItsBytesReturnWithTheLastReference) {
  EXPECT_EQ(budget_->used_bytes(), 5 * 24 + 2 * 7 * 12 + 5 * 24 + 5 * 16);
  auto other = shard_;
  shard_.reset();
  EXPECT_EQ(freed_, 0);
  other.reset();
  EXPECT_EQ(freed_, 1);
  EXPECT_EQ(budget_->used_bytes(), 0);
}

TEST_F(StagedShardTest, NothingToPutIsComplete) {
  shard_ = Make(SmallShape(0, 0));
  EXPECT_TRUE(shard_->complete());
  EXPECT_EQ(shard_->expected_bytes(), 0);
}

TEST_F(StagedShardTest, RandomRectanglesInAnyOrder) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    shard_ = Make(SmallShape(1 + random() % 20, random() % 20));
    std::vector<ChunkHeader> cells;
    for (TensorId id : {TensorId::kQ, TensorId::kK, TensorId::kV}) {
      const TensorInfo* tensor = FindTensor(shard_->shape().tensors, id);
      const int64_t rows = shard_->shape().rows(*tensor);
      for (int64_t row = 0; row < rows;) {
        const int64_t count = std::min<int64_t>(rows - row, 1 + random() % 4);
        for (int32_t head = 0; head < tensor->heads;) {
          const int32_t heads = std::min<int32_t>(tensor->heads - head, 1 + random() % 4);
          cells.push_back({id, row, count, head, heads, {}});
          head += heads;
        }
        row += count;
      }
    }
    std::shuffle(cells.begin(), cells.end(), random);
    UploadCall call;
    for (const ChunkHeader& chunk : cells) {
      ASSERT_FALSE(shard_->complete());
      ASSERT_TRUE(Put(&call, chunk).ok());
    }
    EXPECT_TRUE(shard_->complete());
    ExpectContents();
  }
}

TEST_F(StagedShardTest, RefusesWhatIsOutOfRange) {
  UploadCall call;
  constexpr int64_t kHuge = int64_t{1} << 62;
  const std::vector<std::pair<ChunkHeader, std::string>> cases = {
      {{TensorId::kOut, 0, 1, 0, 0, {}}, "UNKNOWN_TENSOR"},
      {{TensorId::kBias, 0, 1, 0, 0, {}}, "UNKNOWN_TENSOR"},
      {{TensorId::kQ, 0, 6, 0, 0, {}}, "CHUNK_OUT_OF_RANGE"},
      {{TensorId::kQ, 5, 1, 0, 0, {}}, "CHUNK_OUT_OF_RANGE"},
      {{TensorId::kQ, -1, 1, 0, 0, {}}, "CHUNK_OUT_OF_RANGE"},
      {{TensorId::kQ, 1, 0, 0, 0, {}}, "CHUNK_OUT_OF_RANGE"},
      {{TensorId::kQ, 1, kHuge, 0, 0, {}}, "CHUNK_OUT_OF_RANGE"},
      {{TensorId::kQ, kHuge, kHuge, 0, 0, {}}, "CHUNK_OUT_OF_RANGE"},
      {{TensorId::kQ, 0, 1, 0, 5, {}}, "CHUNK_OUT_OF_RANGE"},
      {{TensorId::kQ, 0, 1, 4, 1, {}}, "CHUNK_OUT_OF_RANGE"},
      {{TensorId::kQ, 0, 1, 1, 0, {}}, "CHUNK_OUT_OF_RANGE"},
      {{TensorId::kQ, 0, 1, 0, -1, {}}, "CHUNK_OUT_OF_RANGE"},
      {{TensorId::kQ, 0, 2, 0, 0, {}}, "TENSOR_BYTES_MISMATCH"},
      {{TensorId::kQ, 0, 1, 0, 2, {}}, "TENSOR_BYTES_MISMATCH"},
  };
  for (const auto& [chunk, reason] : cases) {
    EXPECT_EQ(Reason(PutBytes(&call, chunk, std::string(24, 'x'))), reason)
        << TensorName(chunk.tensor) << " " << chunk.row_begin << " " << chunk.row_count;
  }
  EXPECT_EQ(shard_->received_bytes(), 0);
}

TEST_F(StagedShardTest, AWrongChecksumLeavesNoTrace) {
  UploadCall call;
  ChunkHeader chunk{TensorId::kQ, 1, 2, 0, 0, 12345};
  const absl::Status status = Put(&call, chunk);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Reason(status), "CHECKSUM_MISMATCH");
  EXPECT_EQ(shard_->received_bytes(), 0);
  const std::string bytes = Part(shard_->shape(), chunk);
  chunk.crc32c = Crc32c(bytes.data(), bytes.size());
  EXPECT_TRUE(Put(&call, chunk).ok());
  EXPECT_EQ(shard_->received_bytes(), 48);
}

TEST_F(StagedShardTest, OverlapInOneCallIsRefused) {
  UploadCall call;
  ASSERT_TRUE(Put(&call, {TensorId::kQ, 0, 3, 0, 0, {}}).ok());
  EXPECT_EQ(Reason(Put(&call, {TensorId::kQ, 2, 2, 0, 0, {}})), "CHUNK_OVERLAP");
  EXPECT_EQ(Reason(Put(&call, {TensorId::kQ, 0, 3, 0, 0, {}})), "CHUNK_OVERLAP");
  EXPECT_EQ(shard_->received_bytes(), 72);
}

TEST_F(StagedShardTest, ALaterCallMayRepeatTheSameBytes) {
  UploadCall first, second, third;
  ASSERT_TRUE(Put(&first, {TensorId::kQ, 0, 3, 1, 2, {}}).ok());
  EXPECT_EQ(shard_->received_bytes(), 36);
  const std::vector<MissingPiece> missing = shard_->Missing(10);
  ASSERT_EQ(missing.size(), 3u);
  EXPECT_EQ(missing[0].rows, (Interval{0, 5}));
  ASSERT_TRUE(PutAll(&second).ok());
  EXPECT_TRUE(shard_->complete());
  ExpectContents();
  EXPECT_EQ(Reason(PutBytes(&third, {TensorId::kQ, 0, 1, 0, 0, {}}, std::string(24, 'x'))),
            "CHUNK_OVERLAP");
  ExpectContents();
}

TEST_F(StagedShardTest, ACallIsThroughWhenItHasBroughtAllInputs) {
  UploadCall first, rest, again;
  ASSERT_TRUE(Put(&first, {TensorId::kQ, 0, 3, 1, 2, {}}).ok());
  EXPECT_EQ(first.bytes, 36);
  ASSERT_TRUE(PutAll(&rest).ok());
  EXPECT_EQ(rest.bytes, shard_->expected_bytes());
  ASSERT_TRUE(Put(&again, {TensorId::kQ, 0, 3, 1, 2, {}}).ok());
  EXPECT_EQ(again.bytes, 36);
  const std::string wrong(36, 'x');
  EXPECT_EQ(Reason(PutBytes(&again, {TensorId::kQ, 3, 2, 1, 2, {}}, wrong.substr(0, 24))),
            "CHUNK_OVERLAP");
  EXPECT_EQ(again.bytes, 36);
}

TEST_F(StagedShardTest, MissingNamesRunsOfEveryTensor) {
  UploadCall call;
  ASSERT_TRUE(Put(&call, {TensorId::kQ, 2, 1, 0, 0, {}}).ok());
  ASSERT_TRUE(Put(&call, {TensorId::kV, 0, 7, 0, 0, {}}).ok());
  const std::vector<MissingPiece> missing = shard_->Missing(10);
  ASSERT_EQ(missing.size(), 3u);
  EXPECT_EQ(missing[0].tensor, TensorId::kQ);
  EXPECT_EQ(missing[1].rows, (Interval{3, 5}));
  EXPECT_EQ(missing[2].tensor, TensorId::kK);
  EXPECT_EQ(shard_->Missing(2).size(), 2u);
}

// Each call alone is within its limits.
TEST_F(StagedShardTest, AllCallsTogetherAreBoundedInPieces) {
  if (kSanitized) GTEST_SKIP() << "400,000 chunks";
  constexpr size_t kPieces = ReceivedRanges::kMaxFragments / 2;  // Pieces of each call.
  constexpr int64_t kRows = 2 * kPieces;
  const ShardShape shape = SmallShape(kRows, 1);
  auto pool = PagePool::Create(MemoryBudget::Create("staging", 16 << 20));
  shard_ = *StagedShard::Create(pool.get(), shape, nullptr);
  const std::string row(shape.tensors[0].row_bytes(), '\0');
  constexpr size_t kCalls = 3 * StagedShard::kMaxFragmentsOfInput / kPieces;
  std::vector<std::unique_ptr<UploadCall>> calls;
  for (size_t i = 0; i < kCalls; ++i) {
    calls.push_back(std::make_unique<UploadCall>());
    for (int64_t at = 0; at < kRows; at += 2)
      ASSERT_TRUE(PutBytes(calls.back().get(), {TensorId::kQ, at, 1, 0, 0, {}}, row).ok());
  }
  const auto one_more = [&] {
    UploadCall call;
    return Reason(PutBytes(&call, {TensorId::kQ, 0, 1, 0, 0, {}}, row));
  };
  EXPECT_EQ(one_more(), "TOO_MANY_FRAGMENTS");
  // A chunk that joins pieces is accepted.
  EXPECT_TRUE(PutBytes(calls.back().get(), {TensorId::kQ, 1, 1, 0, 0, {}}, row).ok());
  calls.pop_back();
  EXPECT_EQ(one_more(), "");
}

TEST_F(StagedShardTest, CallsInParallelFillOneShard) {
  shard_ = Make(SmallShape(400, 400));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      UploadCall call;
      for (int64_t row = t * 80; row < t * 80 + 160; row += 8) {  // Neighbours overlap by half.
        for (TensorId id : {TensorId::kQ, TensorId::kK, TensorId::kV}) {
          EXPECT_TRUE(Put(&call, {id, row, 8, 0, 0, {}}).ok());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(shard_->complete());
  ExpectContents();
}

}  // namespace
}  // namespace annulus
