// annulus attend and annulus gradients: run one job.
#include <unistd.h>

#include <algorithm>
#include <future>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "attention/error.h"
#include "attention/status_macros.h"
#include "base/command_line.h"
#include "base/steady_time.h"
#include "client/cli/answer.h"
#include "client/cli/commands.h"
#include "client/cli/interrupts.h"
#include "client/cli/job_flags.h"
#include "client/cli/progress_bar.h"
#include "client/cli/report.h"
#include "client/cli/service_flags.h"
#include "client/cli/shape_text.h"
#include "client/client.h"
#include "proto/callback_threads.h"
#include "proto/convert.h"

namespace annulus {
namespace {

struct Flags {
  ServiceFlags service;
  JobFlags job;
  std::string output;
  std::string path = "auto";
  int64_t verify = 0;
};

struct Outcome {
  AttendResult result;
  absl::Duration took;
  std::optional<Verification> verified;
  AttentionSpec sent;  // As it was sent last.
  std::string handle;  // Of the state that was asked for.
};

DataPath PathNamed(const std::string& name) {
  if (name == "direct") return DataPath::kDirect;
  return name == "gateway" ? DataPath::kGateway : DataPath::kAuto;
}

absl::StatusOr<AttendResult> RunCancellable(Interrupts* interrupts, Client* client,
                                            AttendArguments arguments) {
  // Shared: the callback may still be in set_value when get() returns.
  const auto promise = std::make_shared<std::promise<absl::StatusOr<AttendResult>>>();
  const auto call = client->AttendAsync(
      std::move(arguments), [promise](auto answer) { promise->set_value(std::move(answer)); });
  interrupts->SetCancel([call] { call->Cancel(); });
  absl::StatusOr<AttendResult> result = promise->get_future().get();
  interrupts->SetCancel(nullptr);
  return result;
}

nlohmann::json StatsJson(const v1::JobStats& stats) {
  const auto seconds = [](const auto& duration) {
    return absl::ToDoubleSeconds(DurationFromProto(duration));
  };
  return {{"queued_seconds", seconds(stats.queued())},
          {"uploading_seconds", seconds(stats.uploading())},
          {"running_seconds", seconds(stats.running())},
          {"exposed_communication_seconds", seconds(stats.exposed_communication())},
          {"bytes_sent_per_rank", stats.bytes_sent_per_rank()},
          {"backend", stats.backend()}};
}

// What the service was sent: less than the job has where a state had the rest.
int64_t BytesSent(const Outcome& outcome) {
  int64_t bytes = 0;
  for (const TensorInfo& tensor : TensorTable(outcome.sent)) {
    if (tensor.direction != Direction::kInput) continue;
    bytes += RowsOf(tensor, outcome.sent) * tensor.row_bytes();
  }
  return bytes;
}

double GigabytesPerSecond(const AttendJob& job, const Outcome& outcome) {
  const auto bytes = static_cast<double>(BytesSent(outcome) + job.bytes(Direction::kOutput));
  return bytes / 1e9 / absl::ToDoubleSeconds(outcome.took);
}

// As it ran, or as it was planned where the service does not say.
const v1::Execution& ExecutionOf(const AttendResult& result) {
  return result.stats.has_execution() ? result.stats.execution() : result.plan.execution();
}

nlohmann::json VerifiedJson(const Verification& verified) {
  if (verified.gradients.has_value()) {
    const GradientReport& report = *verified.gradients;
    return {{"q_rows", report.q_rows},
            {"k_rows", report.k_rows},
            {"seed", verified.seed},
            {"worst_tensor", std::string(TensorName(report.worst_tensor))},
            {"worst_head", report.worst_head},
            {"error", report.error},
            {"budget", report.budget}};
  }
  const VerifyReport& report = *verified.report;
  return {{"rows", report.rows.size()},
          {"seed", verified.seed},
          {"worst_head", report.worst_head},
          {"output_error", report.output_error},
          {"output_budget", report.output_budget},
          {"lse_part", report.lse_part}};
}

void PrintVerified(const Verification& verified) {
  if (verified.gradients.has_value()) {
    const GradientReport& report = *verified.gradients;
    if (report.q_rows == 0 && report.k_rows == 0) {
      std::cout << "verified nothing: no rows\n";
      return;
    }
    std::cout << absl::StrFormat(
        "verified %d query and %d key rows (seed %d): %s of head %d off by %.3g of %.3g allowed\n",
        report.q_rows, report.k_rows, verified.seed, TensorName(report.worst_tensor),
        report.worst_head, report.error, report.budget);
    return;
  }
  const VerifyReport& report = *verified.report;
  if (report.rows.empty()) {
    std::cout << "verified nothing: no rows\n";
    return;
  }
  std::cout << absl::StrFormat(
      "verified %s (seed %d): output of head %d off by %.3g of %.3g allowed, LSE %.3g of "
      "what is allowed\n",
      CountText(static_cast<int64_t>(report.rows.size()), "row"), verified.seed, report.worst_head,
      report.output_error, report.output_budget, report.lse_part);
}

// By a state nobody here knows the shape that the forward job's bias had in its file.
bool IsOfWholeBias(const AttendJob& job) {
  return job.spec().uses_state() && job.spec().gradients.d_bias;
}

nlohmann::json OutcomeJson(const AttendJob& job, const Outcome& outcome) {
  const AttendResult& result = outcome.result;
  nlohmann::json json = ExecutionJson(ExecutionOf(result));
  json.update(StatsJson(result.stats));
  json["job_id"] = result.stats.job_id();
  json["path"] = result.path == DataPath::kDirect ? "direct" : "gateway";
  json["sends"] = result.attempts;
  json["attempts"] = result.stats.attempts();
  json["seconds"] = absl::ToDoubleSeconds(outcome.took);
  json["predicted_seconds"] =
      absl::ToDoubleSeconds(DurationFromProto(result.plan.predicted_time()));
  json["balance"] = result.plan.balance();
  const auto base = result.stats.lse_base();
  if (base != 0) json["lse_base"] = base == v1::Outputs::LSE_BASE_2 ? "2" : "e";
  json["input_bytes"] = BytesSent(outcome);
  if (!outcome.handle.empty()) {
    json["state"] = {{"job_id", outcome.handle}, {"used", result.state_gone.empty()}};
    if (!result.state_gone.empty()) json["state"]["reason"] = result.state_gone;
    if (!result.release_unconfirmed.empty()) {
      json["state"]["release_unconfirmed"] = result.release_unconfirmed;
    }
  }
  if (result.stats_partial) json["stats_partial"] = true;
  json["output_bytes"] = job.bytes(Direction::kOutput);
  json["gigabytes_per_second"] = GigabytesPerSecond(job, outcome);
  for (const TensorInfo& tensor : TensorTable(job.spec())) {
    if (tensor.direction != Direction::kOutput) continue;
    json[absl::StrCat(TensorName(tensor.id), "_crc32c")] =
        absl::StrFormat("%08x", job.Crc32c(tensor.id));
  }
  if (IsOfWholeBias(job)) json["d_bias_whole"] = true;
  if (outcome.verified.has_value()) json["verified"] = VerifiedJson(*outcome.verified);
  if (job.spec().keeps_state()) {
    json["kept_for_seconds"] = absl::ToDoubleSeconds(*job.spec().forward.keep_state);
  }
  return json;
}

void PrintOutcome(const AttendJob& job, const Outcome& outcome) {
  const AttendResult& result = outcome.result;
  const auto ms = [](const auto& duration) {
    return absl::ToDoubleMilliseconds(DurationFromProto(duration));
  };
  const v1::JobStats& stats = result.stats;
  std::cout
      << "job " << stats.job_id() << ": " << ExecutionText(ExecutionOf(result)) << ", "
      << (result.path == DataPath::kDirect ? "direct" : "through the gateway") << ", "
      << stats.backend() << "\n"
      << ShapeText(job.spec()) << "\n"
      << absl::StrFormat(
             "%.1f ms: queued %.1f, uploading %.1f, running %.1f (%.1f of it waiting for others)\n",
             absl::ToDoubleMilliseconds(outcome.took), ms(stats.queued()), ms(stats.uploading()),
             ms(stats.running()), ms(stats.exposed_communication()))
      << "sent " << BytesText(static_cast<double>(BytesSent(outcome))) << ", received "
      << BytesText(static_cast<double>(job.bytes(Direction::kOutput)))
      << absl::StrFormat(", %.2f GB/s over all\n", GigabytesPerSecond(job, outcome));
  if (!result.state_gone.empty()) {
    std::cout << "the state of job " << outcome.handle << " is gone (" << result.state_gone
              << "): everything was sent\n";
  }
  if (!result.release_unconfirmed.empty()) {
    std::cout << "whether that state is released is not known: with all rows here, the job's end "
              << "was not told (" << result.release_unconfirmed << "). annulus release --handle "
              << outcome.handle << " makes sure\n";
  }
  if (IsOfWholeBias(job)) {
    std::cout
        << "d_bias has a number for each of [batch, heads, tokens, keys]: where the bias had 1 "
           "for all sequences or tokens, add up along them\n";
  }
  if (result.stats_partial) std::cout << "some workers did not say what they took\n";
  if (outcome.verified.has_value()) PrintVerified(*outcome.verified);
  if (job.spec().keeps_state()) {
    std::cout << "its state is kept for " << absl::FormatDuration(*job.spec().forward.keep_state)
              << ": annulus gradients --handle " << stats.job_id() << "\n";
  }
}

absl::StatusOr<AttendJob> MakeJob(JobRequest request) {
  if (request.synthetic.has_value()) return AttendJob::Synthetic(request.spec, *request.synthetic);
  return AttendJob::FromFile(*std::move(request.file), request.spec, request.shape);
}

// A question is answered at once or not at all, however much time the job has.
constexpr absl::Duration kAskTimeout = absl::Seconds(10);

absl::StatusOr<JobRequest> ReadRequest(const Flags& flags) {
  if (flags.job.handle.empty() || flags.job.or_upload) return ReadJob(flags.job);
  Client client(ClientOptionsOf(flags.service));
  ASSIGN_OR_RETURN(const v1::Job job,
                   client.GetJob(flags.job.handle, std::min(kAskTimeout, flags.service.timeout)));
  return ReadStateJob(flags.job, job);
}

absl::Status TimeWasOver(const Flags& flags) {
  return MakeError(
      absl::StatusCode::kDeadlineExceeded,
      absl::StrCat("--timeout ", absl::FormatDuration(flags.service.timeout), " was over when the ",
                   flags.job.synthetic.has_value() ? "inputs were made" : "input was read",
                   ", before the service was asked"),
      {"EXPIRED_WITH_INPUTS", {}, {}, {}});
}

absl::Status RunJob(const Flags& flags) {
  const absl::Time deadline = SteadyNow() + flags.service.timeout;
  Interrupts interrupts;
  ASSIGN_OR_RETURN(JobRequest request, ReadRequest(flags));
  const Execution execution = request.execution;
  const bool layout_is_guessed = request.file.has_value() && flags.job.tensor_layout == "auto";
  const std::string note = layout_is_guessed ? SwappedShapeNote(request.spec) : "";
  if (!note.empty()) std::cerr << absl::StrCat("annulus: note: ", note, "\n");
  std::optional<SafetensorsWriter> file;
  if (!flags.output.empty()) {
    ASSIGN_OR_RETURN(
        file, SafetensorsWriter::Create(flags.output, {flags.job.input, flags.job.spec_file}));
    interrupts.RemoveAtEnd(file->partial());
  }
  ASSIGN_OR_RETURN(AttendJob job, MakeJob(std::move(request)));
  AttendArguments arguments;
  job.FillArguments(&arguments);
  arguments.execution = execution;
  if (flags.job.or_upload) {
    arguments.spec.gradients.state = flags.job.handle;
    arguments.spec.gradients.release_state = flags.job.release;
    arguments.upload_without_state = true;
  }
  arguments.timeout = deadline - SteadyNow();
  if (arguments.timeout <= absl::ZeroDuration()) return TimeWasOver(flags);
  arguments.path = PathNamed(flags.path);
  ProgressBar bar(IsDrawnOn(STDERR_FILENO));
  arguments.progress = [&bar](const JobProgress& progress) { bar.Show(progress); };
  LimitCallbackThreads();
  Client client(ClientOptionsOf(flags.service));
  Outcome outcome;
  outcome.sent = arguments.spec;
  outcome.handle = flags.job.handle;
  const absl::Time began = SteadyNow();
  absl::StatusOr<AttendResult> result = RunCancellable(&interrupts, &client, std::move(arguments));
  outcome.took = SteadyNow() - began;
  bar.Clear();
  if (!result.ok()) return result.status();
  outcome.result = *std::move(result);
  if (!outcome.result.state_gone.empty()) outcome.sent = job.spec();
  ASSIGN_OR_RETURN(outcome.verified, TakeAnswer(job, {flags.verify, execution.bf16_partials},
                                                file.has_value() ? &*file : nullptr));
  if (flags.service.json) {
    std::cout << OutcomeJson(job, outcome).dump(2) << std::endl;
  } else {
    PrintOutcome(job, outcome);
  }
  return absl::OkStatus();
}

int Run(const Flags& flags) {
  if (flags.job.input.empty() && !flags.job.synthetic.has_value()) {
    const bool gradients = flags.job.operation == Operation::kGradients;
    std::cerr << absl::StrCat("annulus ", gradients ? "gradients" : "attend", ": --input",
                              flags.job.handle.empty() ? " or --synthetic" : "", " is needed\n");
    return kExitUsage;
  }
  const absl::Status status = RunJob(flags);
  return status.ok() ? kExitOk : ReportError(status, flags.service.json);
}

// Whether flags say what the job of --handle says.
bool SaysTwice(const CLI::App& app, const Flags& flags) {
  if (flags.job.handle.empty() || flags.job.or_upload) return false;
  std::vector<const CLI::Option*> others = flags.job.spec_options;
  others.push_back(app.get_option("--verify"));
  for (const CLI::Option* other : others) {
    if (other->count() == 0) continue;
    std::cerr << absl::StrCat("annulus gradients: --handle without --or-upload excludes ",
                              other->get_name(), "\n");
    return true;
  }
  return false;
}

void AddRunFlags(CLI::App* app, const std::string& output, Flags* flags) {
  AddServiceFlags(app, &flags->service,
                  "Time for reading or making the inputs and for the job, retries included; "
                  "verifying and writing come after it");
  AddJobFlags(app, &flags->job);
  AddFile(app,
          {"--output", "safetensors file to write: " + output +
                           "; without it outputs are thrown away, after --verify"},
          &flags->output);
  AddChoice(app, {"--path", "How tensors travel; auto: direct where the workers can be reached"},
            {"auto", "direct", "gateway"}, &flags->path);
  AddInteger(
      app,
      {"--verify",
       "Recompute so many random rows in fp64 here and fail on a breach of the error budget"},
      {0, int64_t{1} << 26}, &flags->verify, "rows");
}

}  // namespace

Command AddAttendCommand(CLI::App* program) {
  auto flags = std::make_shared<Flags>();
  flags->job.operation = Operation::kForward;
  CLI::App* app = program->add_subcommand("attend", "Compute attention: output and log-sum-exp");
  AddRunFlags(
      app,
      "output as q with v's last dimension, lse [.., heads, tokens] (natural log unless the "
      "spec or --lse-base says base 2), and max_logit likewise where it asks",
      flags.get());
  AddDuration(
      app,
      {"--keep-for",
       "Keep the state on the workers for `gradients --handle`, at most as long as the "
       "coordinator's --max-keep-state; 0, the default: as the spec says, else it is not kept"},
      {absl::ZeroDuration(), absl::Hours(24)}, &flags->job.keep_for)
      ->default_str("");
  return [flags] { return Run(*flags); };
}

Command AddGradientsCommand(CLI::App* program) {
  auto flags = std::make_shared<Flags>();
  flags->job.operation = Operation::kGradients;
  CLI::App* app = program->add_subcommand(
      "gradients",
      "Compute gradients: dq, dk and dv from q, k, v, output, lse, d_out and, where the input has "
      "one, d_lse; or from d_out and d_lse by the state that a forward job has kept");
  AddRunFlags(
      app,
      "dq, dk and dv as q, k and v, where there are sinks d_sink, [heads], and with --d-bias "
      "d_bias as bias",
      flags.get());
  AddSwitch(
      app,
      {"--d-bias",
       "Also the gradient of the bias, in its shape; or as the spec says. With --handle alone "
       "in full, not added up over sequences and tokens that share a number"},
      &flags->job.d_bias);
  CLI::Option* handle =
      AddName(app,
              {"--handle",
               "Job of `attend --keep-for` whose state to use: the input holds d_out and, where "
               "there is one, d_lse, and the job says what flags say elsewhere"},
              {1, 64}, &flags->job.handle);
  handle->excludes("--synthetic");
  AddSwitch(app,
            {"--or-upload",
             "Where the state is gone, send everything: the input holds all that gradients take "
             "without --handle, and flags and --spec say the job"},
            &flags->job.or_upload)
      ->needs(handle);
  AddSwitch(app, {"--release", "Let go of the state after this"}, &flags->job.release)
      ->needs(handle);
  return [flags, app] { return SaysTwice(*app, *flags) ? kExitUsage : Run(*flags); };
}

}  // namespace annulus
