#ifndef ANNULUS_TESTS_WORKER_LANE_LANE_FIXTURE_H_
#define ANNULUS_TESTS_WORKER_LANE_LANE_FIXTURE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/lane/lane_harness.h"

namespace annulus {

// Workers that form groups of all of them, and run jobs.
class LaneTest : public testing::Test {
 protected:
  using Command = control::v1::WorkerCommand;
  using Event = control::v1::WorkerEvent;

  void Make(int ranks, LaneHost::Options of_first = {}) {
    Add(std::move(of_first));
    while (this->ranks() < ranks) Add({});
  }
  void Add(LaneHost::Options options) {
    hosts_.push_back(std::make_unique<LaneHost>(&hub_, std::move(options)));
  }
  int ranks() const { return static_cast<int>(hosts_.size()); }

  // Opens and connects the next group.
  void Form() {
    InProcessHub::Options options;
    options.size = ranks();
    hub_ = std::make_shared<InProcessHub>(options);
    ++generation_;
    Command connect;
    *connect.mutable_connect_group()->mutable_generation() = GenerationOf(Group());
    connect.mutable_connect_group()->mutable_timeout()->set_seconds(20);
    for (int rank = 0; rank < ranks(); ++rank) {
      Command open;
      *open.mutable_open_group()->mutable_generation() = GenerationOf(Group());
      open.mutable_open_group()->set_rank(rank);
      open.mutable_open_group()->set_size(ranks());
      hosts_[rank]->lane().Command(open);
      const auto opened = hosts_[rank]->log.Wait(Event::kGroupOpened);
      ASSERT_TRUE(opened.has_value() && !opened->group_opened().has_error());
      connect.mutable_connect_group()->add_bootstraps(opened->group_opened().bootstrap());
    }
    for (auto& host : hosts_) host->lane().Command(connect);
    for (auto& host : hosts_) {
      const auto connected = host->log.Wait(Event::kGroupConnected);
      ASSERT_TRUE(connected.has_value() && !connected->group_connected().has_error());
    }
  }
  GroupId Group() const { return {1, generation_}; }

  // Prepares every rank's shard of a job. Returns the number of steps.
  int Prepare(const std::string& job, int64_t rows = 24) {
    int steps = 0;
    for (int rank = 0; rank < ranks(); ++rank) {
      works_.push_back(hosts_[rank]->Work(LaneSpec(rows), rank, ranks(), job));
      Execution& execution = works_.back().request.execution;
      execution.strategy = strategy_;
      if (strategy_ == Strategy::kUlysses) execution.head_deal = HeadAssignment::kWholeHeads;
      hosts_[rank]->lane().Prepare(works_.back());
      const auto prepared = hosts_[rank]->log.Wait(Event::kPrepared);
      EXPECT_TRUE(prepared.has_value());
      if (!prepared.has_value()) return 0;
      prepared_.push_back(prepared->prepared());
      steps = prepared->prepared().steps();
    }
    return steps;
  }
  Command Segment(const std::string& job, int rank, int begin, int end, bool last) {
    Command command;
    control::v1::RunSegment& run = *command.mutable_run_segment();
    *run.mutable_shard() = KeyOf({job, 1, rank});
    *run.mutable_generation() = GenerationOf(Group());
    run.set_step_begin(begin);
    run.set_step_end(end);
    run.set_last(last);
    return command;
  }
  Command End(bool abort) {
    Command command;
    *(abort ? command.mutable_abort_group()->mutable_generation()
            : command.mutable_close_group()->mutable_generation()) = GenerationOf(Group());
    return command;
  }

  std::shared_ptr<InProcessHub> hub_;
  std::vector<std::unique_ptr<LaneHost>> hosts_;
  std::vector<ShardWork> works_;
  std::vector<control::v1::Prepared> prepared_;
  int64_t generation_ = 0;
  Strategy strategy_ = Strategy::kRingPassKv;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_LANE_LANE_FIXTURE_H_
