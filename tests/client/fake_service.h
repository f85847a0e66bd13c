#ifndef ANNULUS_TESTS_CLIENT_FAKE_SERVICE_H_
#define ANNULUS_TESTS_CLIENT_FAKE_SERVICE_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "annulus/v1/attention.grpc.pb.h"
#include "annulus/v1/data_plane.grpc.pb.h"
#include "annulus/v1/jobs.grpc.pb.h"
#include "attention/sharding/row_map.h"
#include "attention/spec/tensor_table.h"
#include "base/mutex.h"
#include "client/transport/scatter.h"
#include "grpcpp/server.h"
#include "tests/client/fake_act.h"
#include "tests/client/fake_kept.h"
#include "tests/client/fake_shard.h"
#include "tests/client/header_log.h"

namespace annulus {

// A coordinator with `world` workers in one server, for tests of clients. Calls are real. Instead
// of attention, the output is q, and the LSE of (row, head) is the row. One job at a time. Rows are
// distributed in stripes.
class FakeService final {
 public:
  using Act = FakeAct;
  struct Options {
    int world = 3;
    int64_t stripe = 5;
    // Behaviour in the n-th job, n from 1.
    std::function<Act(int job)> act = [](int) { return Act::kServe; };
    bool hide_workers = false;  // The endpoints cannot be reached.
    bool silent_info = false;   // GetServerInfo answers only after AnswerInfo().
    bool silent_jobs = false;   // GetJob answers only after AnswerJobs().
    bool reports = true;        // True if workers report the times of their parts.
    // The error that ends an exchange instead of its n-th shard, n from 1. OK: the shard is
    // accepted.
    std::function<grpc::Status(int shard)> ends_exchange = [](int) { return grpc::Status::OK; };
    // The status that ends an AttendMany call instead of its n-th job, n from 1. nullopt: the job
    // is accepted.
    std::function<std::optional<grpc::Status>(int job)> ends_many = [](int) {
      return std::nullopt;
    };
    bool only_attend = false;      // AttendMany is not implemented.
    uint64_t wrong_tag = 0;        // Added to the tags of AttendMany's responses.
    bool runs_when_asked = false;  // GetJob reports that the job runs, until CancelJob.
    int refused_merges = 0;        // The number of MergePartials calls that fail as in kQueueFull.
    std::shared_ptr<HeaderLog> headers;  // Records each call.
    bool complete_by_others = false;     // Another call has sent all rows.
    bool whole_shards = false;           // The outputs of a shard arrive with its report.
  };

  explicit FakeService(Options options);
  ~FakeService();

  std::string address() const { return address_; }
  int run_jobs() EXCLUDES(mutex_) { return Get(&FakeService::run_jobs_); }
  int attends() EXCLUDES(mutex_) { return Get(&FakeService::attends_); }
  FakeKept& kept() { return kept_; }
  void AnswerInfo() EXCLUDES(mutex_) { Allow(&FakeService::info_answers_); }
  void AnswerJobs() EXCLUDES(mutex_) { Allow(&FakeService::job_answers_); }
  bool AwaitAsked() EXCLUDES(mutex_);  // Waits for a GetJob call. False if none comes.
  void LetJobsEnd() EXCLUDES(mutex_) { Allow(&FakeService::may_end_); }
  void SendOutputs() EXCLUDES(mutex_) { Allow(&FakeService::may_send_); }
  // The number of calls.
  int exchanges() EXCLUDES(mutex_) { return Get(&FakeService::exchanges_); }
  // The number of calls.
  int attend_manys() EXCLUDES(mutex_) { return Get(&FakeService::attend_manys_); }
  // Jobs in all these calls.
  int many_jobs() EXCLUDES(mutex_) { return Get(&FakeService::many_jobs_); }
  // The number of RunJob calls that ended by themselves with OK.
  int ended_well() EXCLUDES(mutex_) { return Get(&FakeService::ended_well_); }

 private:
  using Shard = FakeShard;
  struct Jobs;
  struct DataPlane;
  struct Attention;

  int Get(int FakeService::*count) EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    return this->*count;
  }
  void Allow(bool FakeService::*what) EXCLUDES(mutex_);
  bool RefuseMerge() EXCLUDES(mutex_);
  void EndAttempt() EXCLUDES(mutex_);
  v1::Plan Place(const v1::AttentionSpec& spec, int attempt) EXCLUDES(mutex_);
  grpc::Status RunJob(grpc::ServerContext*, const v1::RunJobRequest&,
                      grpc::ServerWriter<v1::JobEvent>*);
  using ReadRequest = std::function<bool(v1::PutShardRequest*)>;
  using WriteResponse = std::function<void(const v1::FetchShardResponse&)>;
  // If `context` is nullptr, the call ends when it has its rows, whatever the act is.
  grpc::Status PutShard(grpc::ServerContext* context, const ReadRequest& read,
                        v1::ShardStatus* response);
  grpc::Status FetchShard(grpc::ServerContext*, const std::string& ticket,
                          const WriteResponse& write);
  grpc::Status ExchangeShards(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::FetchShardResponse, v1::PutShardRequest>* stream);
  using AttendStream = grpc::ServerReaderWriter<v1::AttendResponse, v1::AttendRequest>;
  grpc::Status Attend(grpc::ServerContext* context,
                      const std::function<bool(v1::AttendRequest*)>& read,
                      const std::function<void(const v1::AttendResponse&)>& write);
  grpc::Status AttendMany(grpc::ServerContext* context, AttendStream* stream);
  grpc::Status Store(const google::protobuf::RepeatedPtrField<v1::Chunk>& chunks, Shard* shard)
      EXCLUDES(mutex_);
  std::vector<v1::Chunk> OutputsOf(const Shard& shard);
  // Await: false if the call was cancelled, or if `condition` did not hold within 20 s.
  grpc::Status EndAfterJob(grpc::ServerContext* context) EXCLUDES(mutex_);
  bool Await(grpc::ServerContext* context, const std::function<bool()>& condition) EXCLUDES(mutex_);

  const Options options_;
  FakeKept kept_;
  std::unique_ptr<Jobs> jobs_;
  std::unique_ptr<DataPlane> data_plane_;
  std::unique_ptr<Attention> attention_;
  std::string address_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<TensorInfo> table_ GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Shard>> shards_ GUARDED_BY(mutex_);
  int placements_ GUARDED_BY(mutex_) = 0;  // A ticket is "placement/rank".
  int run_jobs_ GUARDED_BY(mutex_) = 0;
  int attends_ GUARDED_BY(mutex_) = 0;
  int exchanges_ GUARDED_BY(mutex_) = 0;
  int attend_manys_ GUARDED_BY(mutex_) = 0;
  int many_jobs_ GUARDED_BY(mutex_) = 0;
  int merges_ GUARDED_BY(mutex_) = 0;
  Act now_ GUARDED_BY(mutex_) = Act::kServe;
  bool info_answers_ GUARDED_BY(mutex_) = false;
  bool job_answers_ GUARDED_BY(mutex_) = false;
  bool asked_ GUARDED_BY(mutex_) = false;
  bool job_over_ GUARDED_BY(mutex_) = false;  // RunJob has reported it.
  bool may_end_ GUARDED_BY(mutex_) = false;
  bool may_send_ GUARDED_BY(mutex_) = false;
  int ended_well_ GUARDED_BY(mutex_) = 0;
  int downloads_ GUARDED_BY(mutex_) = 0;  // Ended downloads of this job.
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_CLIENT_FAKE_SERVICE_H_
