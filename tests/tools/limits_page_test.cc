#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "attention/mask/mask_cost.h"
#include "attention/numerics/merge_partials.h"
#include "attention/schedule/schedule.h"
#include "attention/sharding/shard_plan.h"
#include "attention/spec/received_ranges.h"
#include "client/transport/channels.h"
#include "gtest/gtest.h"
#include "proto/rpc/listen.h"
#include "proto/rpc/message_limits.h"
#include "proto/rpc/request_fields.h"
#include "proto/wire/tensor_stream.h"
#include "server/coordinator_server.h"
#include "server/gateway/gateway_options.h"
#include "server/gateway/inline_job.h"
#include "worker/data_plane/fetch_call.h"
#include "worker/data_plane/shard_board.h"
#include "worker/staging/staged_shard.h"

namespace annulus {
namespace {

std::string Count(int64_t number) {
  std::string text = absl::StrCat(number);
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3) text.insert(at, ",");
  return text;
}

std::string Bytes(int64_t bytes) {
  const char* const units[] = {" B", " KiB", " MiB", " GiB", " TiB"};
  int unit = 0;
  for (; unit < 4 && bytes % 1024 == 0; ++unit) bytes /= 1024;
  return absl::StrCat(bytes, units[unit]);
}

std::string Time(absl::Duration time) {
  const int64_t seconds = absl::ToInt64Seconds(time);
  if (seconds % 3600 == 0) return absl::StrCat(seconds / 3600, " h");
  return seconds % 60 == 0 && seconds > 60 ? absl::StrCat(seconds / 60, " min")
                                           : absl::StrCat(seconds, " s");
}

// The second column of the tables of docs/reference/limits.md, "Limits", in order.
std::vector<std::string> Said() {
  std::ifstream file("docs/reference/limits.md");
  std::vector<std::string> values;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "## ")) inside = line == "## Limits";
    const std::vector<std::string> cells = absl::StrSplit(line, '|');
    if (!inside || cells.size() < 4) continue;
    const std::string value(absl::StripAsciiWhitespace(cells[2]));
    if (!value.empty() && absl::ascii_isdigit(value[0])) values.push_back(value);
  }
  return values;
}

std::vector<std::string> OfRequests(const Limits& limits) {
  return {Count(limits.max_rows),          Count(limits.max_sequences),
          Count(limits.max_heads),         Count(limits.max_head_dim),
          Bytes(limits.max_tensor_bytes),  Count(limits.max_world_size),
          Count(limits.max_masks),         Count(limits.max_mask_ranges),
          Count(limits.max_ranges),        Count(limits.max_ranges_of_row),
          Count(limits.max_mask_chunks),   Count(limits.max_head_classes),
          Count(limits.max_range_cuts),    Count(limits.max_row_intervals),
          Count(limits.max_striped_spans), Count(kMaxStripedMeetings),
          Count(kMaxFoldStripes),          Count(kMaxFoldTasks),
          Count(limits.max_cut_sequences), Count(kMaxSequenceCuts),
          Bytes(limits.max_pair_bytes),    Count(kMaxInlineElements),
          Count(kMaxInlineAnswerElements), Bytes(kMaxInlineBytes),
          Count(kMaxMergePartials),        Count(kMaxMergeNumbers)};
}

std::vector<std::string> OfMessages() {
  return {Bytes(kMaxChunkBytes),
          Count(kMaxMessageChunks),
          Count(FetchCall::kMaxParts),
          Bytes(kMaxStreamMessageBytes),
          Bytes(kMaxTicketMessageBytes),
          Bytes(kMaxCoordinatorMessageBytes),
          Bytes(kMaxQuestionBytes),
          Count(kMaxRequestParts),
          Bytes(kMaxCoordinatorAnswerBytes),
          Count(ReceivedRanges::kMaxFragments),
          Count(StagedShard::kMaxFragmentsOfInput)};
}

std::vector<std::string> AtOnce(const CoordinatorServer::Options& options) {
  const CoordinatorOptions& coordinator = options.coordinator;
  return {Count(coordinator.max_queued_jobs),
          Bytes(coordinator.max_request_bytes),
          Count(options.max_mail),
          Count(coordinator.max_active_jobs),
          Count(coordinator.max_calls_per_job),
          Count(options.max_attend_calls),
          Count(GatewayServiceOptions().max_resting_calls),
          Bytes(options.max_inline_bytes),
          Count(options.max_streams_per_connection),
          Count(ShardBoard::Options().max_calls),
          Count(ShardBoard::Options().max_shard_calls),
          Count(ShardBoard::Options().max_strangers),
          Count(kMaxBlockingCalls),
          Count(coordinator.max_kept_states),
          Count(coordinator.max_workers)};
}

std::vector<std::string> Times(const CoordinatorOptions& coordinator) {
  const ShardBoard::Options board;
  EXPECT_EQ(coordinator.upload_floor_bytes_per_second, 1 << 20);
  EXPECT_EQ(coordinator.max_retained_jobs, 1000u);
  return {Time(coordinator.max_timeout),
          Time(GatewayServiceOptions().first_message_wait),
          Time(GatewayServiceOptions().first_message_wait),
          Time(coordinator.limits.max_keep_state),
          Time(coordinator.max_result_ttl),
          Time(coordinator.default_result_ttl),
          Time(coordinator.upload_grace),
          Time(board.rate.window),
          Bytes(board.rate.floor_bytes_per_second),
          Time(board.download_lease),
          Time(coordinator.regroup_wait),
          Time(board.ticket_wait),
          Time(board.reserve_wait),
          Time(coordinator.job_retention),
          Time(coordinator.lease)};
}

TEST(LimitsPageTest, TheDocsSayWhatTheSourcesSay) {
  const CoordinatorServer::Options options;
  std::vector<std::string> values;
  for (const auto& table : {OfRequests(options.coordinator.limits), OfMessages(), AtOnce(options),
                            Times(options.coordinator)}) {
    values.insert(values.end(), table.begin(), table.end());
  }
  EXPECT_EQ(Said(), values);
}

// Otherwise the gateway of a large cluster would create and drop connections all the time.
TEST(LimitsTest, AChannelIsKeptToEveryWorker) {
  EXPECT_GE(Channels::kMaxChannels, static_cast<size_t>(CoordinatorOptions().max_workers));
}

}  // namespace
}  // namespace annulus
