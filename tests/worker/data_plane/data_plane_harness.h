#ifndef ANNULUS_TESTS_WORKER_DATA_PLANE_DATA_PLANE_HARNESS_H_
#define ANNULUS_TESTS_WORKER_DATA_PLANE_DATA_PLANE_HARNESS_H_

// PutShard, FetchShard and GetShardStatus without gRPC: the test plays the streams.
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "attention/spec/spec.h"
#include "gtest/gtest.h"
#include "proto/wire/crc32c.h"
#include "tests/worker/agent/event_log.h"
#include "tests/worker/data_plane/call_outcome.h"
#include "worker/data_plane/fetch_call.h"
#include "worker/data_plane/put_call.h"

namespace annulus {

class DataPlaneTest : public testing::Test {
 protected:
  DataPlaneTest() : board_(BoardOptions()) { board_.SetIdentity(identity_); }

  ShardBoard::Options BoardOptions() {
    ShardBoard::Options options;
    options.now = [this] { return Now(); };
    options.wall = [this] { return Now() + skew_; };
    options.report = [this](EventLog::Event event) {
      reporter_ = std::this_thread::get_id();
      if (on_event_) on_event_(event);
      log_.Add(std::move(event));
    };
    options.max_calls = 8;
    return options;
  }
  // `rows` query rows and as many key rows, of 2 heads of 4 fp32 each.
  std::shared_ptr<StagedShard> Open(const ShardId& id, int64_t rows,
                                    std::optional<absl::Duration> download_time = {}) {
    AttentionSpec spec;
    spec.dtype = DataType::kFp32;
    spec.q_heads = spec.kv_heads = 2;
    spec.head_dim = 4;
    auto shard = *StagedShard::Create(pool_.get(), {TensorTable(spec), rows, rows}, nullptr);
    board_.Open(id, "alice", shard, {absl::Minutes(5), download_time});
    return shard;
  }
  std::string Ticket(const ShardId& id, int64_t rows, const std::string& principal = "alice") {
    TicketClaims claims{id.job_id,
                        id.attempt,
                        id.rank,
                        identity_.incarnation,
                        principal,
                        rows * 96,
                        Now() + absl::Hours(1)};
    return SignTicket(identity_.ticket_key, claims);
  }
  std::shared_ptr<PutCall> Put(PutStream* stream, const std::string& ticket) {
    auto call = std::make_shared<PutCall>(&board_, &copies_, stream);
    call->Start();
    PutMessage message;
    message.ticket = ticket;
    call->OnMessage(std::move(message));
    return call;
  }
  static PutMessage Chunk(TensorId id, int64_t row, int64_t count, char fill = 'x') {
    PutMessage message;
    PutMessage::Part& part = message.parts.emplace_back();
    part.header.tensor = id;
    part.header.row_begin = row;
    part.header.row_count = count;
    auto bytes = std::make_shared<std::string>(count * 32, fill);
    part.header.crc32c = Crc32c(bytes->data(), bytes->size());
    part.pieces = {absl::string_view(*bytes)};
    message.storage = bytes;
    return message;
  }
  std::shared_ptr<FetchCall> Fetch(FetchStream* stream, v1::FetchShardRequest request) {
    auto call = std::make_shared<FetchCall>(&board_, &copies_, stream);
    call->Start(request);
    return call;
  }
  v1::FetchShardRequest All(const ShardId& id, int64_t rows) {
    v1::FetchShardRequest request;
    request.set_ticket(Ticket(id, rows));
    return request;
  }
  absl::Time Now() const { return absl::FromUnixNanos(now_); }
  void Advance(absl::Duration duration) { now_ += absl::ToInt64Nanoseconds(duration); }

  std::atomic<int64_t> now_{absl::ToUnixNanos(absl::FromUnixSeconds(360000))};
  absl::Duration skew_;  // Difference of this worker's clock from the coordinator's.
  const Identity identity_{"incarnation", std::string(kTicketKeyBytes, 'k')};
  const ShardId id_{"job", 1, 0};
  const v1::ShardReport report_ = [] {
    v1::ShardReport report;
    report.set_bytes_sent(321);
    return report;
  }();
  EventLog log_;
  std::atomic<std::thread::id> reporter_;  // Thread of the last event.
  std::function<void(const EventLog::Event&)> on_event_;
  std::shared_ptr<MemoryBudget> budget_ = MemoryBudget::Create("staging", 64 << 20);
  std::shared_ptr<PagePool> pool_ = PagePool::Create(budget_);
  ShardBoard board_;
  CopyPool copies_{2};
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_DATA_PLANE_DATA_PLANE_HARNESS_H_
