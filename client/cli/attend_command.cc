// annulus attend, annulus gradients: run one job.
#include <unistd.h>

#include <algorithm>
#include <future>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/command_line.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "client/cli/answer.h"
#include "client/cli/ask_first.h"
#include "client/cli/commands.h"
#include "client/cli/files/output_bytes.h"
#include "client/cli/flags/job_flags.h"
#include "client/cli/flags/service_flags.h"
#include "client/cli/interrupts.h"
#include "client/cli/job_outcome.h"
#include "client/cli/made_job.h"
#include "client/cli/progress_bar.h"
#include "client/cli/report.h"
#include "client/cli/shape_text.h"
#include "client/cli/state_release.h"
#include "client/client.h"
#include "proto/rpc/callback_threads.h"

namespace annulus {
namespace {

struct Flags {
  ServiceFlags service;
  JobFlags job;
  std::string output;
  std::string path = "auto";
  int64_t verify = 0;
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

// For calls other than the job: they are answered at once or not at all, whatever --timeout is.
constexpr absl::Duration kAskTimeout = absl::Seconds(10);

absl::StatusOr<JobRequest> ReadRequest(const Flags& flags) {
  if (flags.job.handle.empty() || flags.job.or_upload) return ReadJob(flags.job);
  Client client(ClientOptionsOf(flags.service));
  ASSIGN_OR_RETURN(const v1::Job job,
                   client.GetJob(flags.job.handle, std::min(kAskTimeout, flags.service.timeout)));
  return ReadStateJob(flags.job, job);
}

// The file for the outputs; none without --output.
absl::StatusOr<std::optional<SafetensorsWriter>> OpenOutput(const Flags& flags,
                                                            Interrupts* interrupts) {
  if (flags.output.empty()) return std::optional<SafetensorsWriter>();
  ASSIGN_OR_RETURN(std::optional<SafetensorsWriter> file,
                   SafetensorsWriter::Create(flags.output, {flags.job.input, flags.job.spec_file}));
  interrupts->RemoveAtEnd(file->partial());
  return file;
}

void NoteSwappedShape(const Flags& flags, const JobRequest& request) {
  if (!request.file.has_value() || flags.job.tensor_layout != "auto") return;
  const std::string note = SwappedShapeNote(request.spec);
  if (!note.empty()) std::cerr << absl::StrCat("annulus: note: ", note, "\n");
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
  NoteSwappedShape(flags, request);
  ASSIGN_OR_RETURN(std::optional<SafetensorsWriter> file, OpenOutput(flags, &interrupts));
  LimitCallbackThreads();
  if (flags.job.handle.empty()) {
    const absl::Duration left = deadline - SteadyNow();
    RETURN_IF_ERROR(AskFirst(ClientOptionsOf(flags.service), request, std::min(kAskTimeout, left)));
  }
  if (file.has_value()) {
    const SafetensorsFile* const input = request.file.has_value() ? &*request.file : nullptr;
    RETURN_IF_ERROR(file->Reserve(BytesToWrite(request.spec, input)));
  }
  ASSIGN_OR_RETURN(AttendJob job, MakeJob(std::move(request)));
  AttendArguments arguments;
  job.FillArguments(&arguments);
  arguments.execution = execution;
  if (flags.job.or_upload) {
    arguments.spec.gradients.state = flags.job.handle;
    arguments.upload_without_state = true;
  }
  arguments.timeout = deadline - SteadyNow();
  if (arguments.timeout <= absl::ZeroDuration()) return TimeWasOver(flags);
  arguments.path = PathNamed(flags.path);
  ProgressBar bar(IsDrawnOn(STDERR_FILENO));
  arguments.progress = [&bar](const JobProgress& progress) { bar.Show(progress); };
  Client client(ClientOptionsOf(flags.service));
  JobOutcome outcome;
  outcome.sent = arguments.spec;
  outcome.handle = flags.job.handle;
  const absl::Time began = SteadyNow();
  absl::StatusOr<AttendResult> result = RunCancellable(&interrupts, &client, std::move(arguments));
  outcome.took = SteadyNow() - began;
  bar.Clear();
  if (!result.ok()) return result.status();
  outcome.result = *std::move(result);
  if (!outcome.result.state_gone.empty()) outcome.sent = job.spec();
  const ReleaseCall release = [&client](const std::string& job_id) {
    return client.ReleaseState(job_id, kAskTimeout).status();
  };
  absl::StatusOr<std::optional<Verification>> verified =
      TakeAnswer(job, {flags.verify, execution.bf16_partials}, file.has_value() ? &*file : nullptr);
  if (!verified.ok() && job.spec().keeps_state()) {
    return ReleaseUnasked(outcome.result.stats.job_id(), verified.status(), release);
  }
  ASSIGN_OR_RETURN(outcome.verified, std::move(verified));
  if (flags.job.release && outcome.result.state_gone.empty()) {
    outcome.release_unconfirmed = ReleaseUsed(flags.job.handle, release);
  }
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

// True, with an error printed, if a flag repeats what the job of --handle determines.
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
      "spec or --lse-base says base 2), and max_logit and lse_rest likewise where it asks",
      flags.get());
  AddSwitch(
      app,
      {"--lse-rest",
       "Also write lse_rest, what rounding to F32 takes from lse: `gradients` and `merge` need "
       "it for an lse of 65,536 or more in size; or as the spec says"},
      &flags->job.lse_rest);
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
      "them, lse_rest and d_lse; or from d_out and d_lse by the state that a forward job has kept");
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
  AddSwitch(app, {"--release", "Let go of the state when the gradients are written"},
            &flags->job.release)
      ->needs(handle);
  return [flags, app] { return SaysTwice(*app, *flags) ? kExitUsage : Run(*flags); };
}

}  // namespace annulus
