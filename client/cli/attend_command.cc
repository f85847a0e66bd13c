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
#include "client/cli/commands.h"
#include "client/cli/files/output_bytes.h"
#include "client/cli/flags/job_flags.h"
#include "client/cli/flags/service_flags.h"
#include "client/cli/interrupts.h"
#include "client/cli/job_outcome.h"
#include "client/cli/prepare_job.h"
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
      absl::StrCat("--timeout ", absl::FormatDuration(flags.service.timeout), " passed while the ",
                   flags.job.synthetic.has_value() ? "inputs were generated" : "input was read",
                   "; the job was not sent"),
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
bool SaysTwice(const CommandLine& app, const Flags& flags) {
  if (flags.job.handle.empty() || flags.job.or_upload) return false;
  std::vector<AddedFlag> others = flags.job.spec_options;
  others.push_back(*app.Find("--verify"));
  for (const AddedFlag& other : others) {
    if (!other.given()) continue;
    std::cerr << absl::StrCat("annulus gradients: --handle without --or-upload excludes ",
                              other.name(), "\n");
    return true;
  }
  return false;
}

void AddRunFlags(CommandLine* app, const std::string& output, Flags* flags) {
  AddServiceFlags(app, &flags->service,
                  "Limit for reading or generating the inputs and for the job with its retries; "
                  "verification and writing are not included");
  AddJobFlags(app, &flags->job);
  AddFile(app,
          {"--output", "safetensors file to write: " + output +
                           "; without it, the outputs are discarded after --verify"},
          &flags->output);
  AddChoice(app,
            {"--path",
             "Path of the tensors; auto: direct if the client reaches the workers, else gateway"},
            {"auto", "direct", "gateway"}, &flags->path);
  AddInteger(app,
             {"--verify",
              "Number of random rows to recompute here in fp64; the command fails if an error "
              "exceeds the error budget"},
             {0, int64_t{1} << 26}, &flags->verify, "rows");
}

}  // namespace

Command AddAttendCommand(CommandLine* program) {
  auto flags = std::make_shared<Flags>();
  flags->job.operation = Operation::kForward;
  CommandLine* app = program->AddCommand("attend", "Compute attention: output and log-sum-exp");
  AddRunFlags(app,
              "output (shape of q, with the last dimension of v); lse [.., heads, tokens] (natural "
              "log, or base 2 if --lse-base or the spec sets it); max_logit and lse_rest (shape of "
              "lse) if requested",
              flags.get());
  AddSwitch(
      app,
      {"--lse-rest",
       "Also write lse_rest, the part of lse that is lost by rounding to F32; `gradients` and "
       "`merge` need it if an lse is 65,536 or more in magnitude (default: as in the spec)"},
      &flags->job.lse_rest);
  AddDuration(
      app,
      {"--keep-for",
       "Time to keep the state on the workers for `gradients --handle`, at most the coordinator's "
       "--max-keep-state; 0 (default): as in the spec, else the state is not kept"},
      {absl::ZeroDuration(), absl::Hours(24)}, &flags->job.keep_for)
      .HideDefault();
  return [flags] { return Run(*flags); };
}

Command AddGradientsCommand(CommandLine* program) {
  auto flags = std::make_shared<Flags>();
  flags->job.operation = Operation::kGradients;
  CommandLine* app = program->AddCommand(
      "gradients",
      "Compute the gradients dq, dk and dv. The input has q, k, v, output, lse and d_out, and "
      "optionally lse_rest and d_lse. With --handle it has d_out, and optionally d_lse");
  AddRunFlags(app,
              "dq, dk and dv (shapes of q, k and v); d_sink [heads] if there are sinks; d_bias "
              "(shape of bias) with --d-bias",
              flags.get());
  AddSwitch(
      app,
      {"--d-bias",
       "Also write d_bias, in the shape of bias (default: as in the spec). With --handle alone it "
       "has the full shape [batch, heads, tokens, keys], not summed over broadcast dimensions"},
      &flags->job.d_bias);
  AddedFlag handle =
      AddName(app,
              {"--handle",
               "Use the state that this job of `attend --keep-for` keeps. The input has d_out, and "
               "optionally d_lse. All other options come from that job"},
              {1, 64}, &flags->job.handle);
  handle.Excludes(*app->Find("--synthetic"));
  AddSwitch(app,
            {"--or-upload",
             "If the state is gone, send all tensors instead. The input, flags and --spec must be "
             "those of a job without --handle"},
            &flags->job.or_upload)
      .Needs(handle);
  AddSwitch(app, {"--release", "Release the state after the gradients are written"},
            &flags->job.release)
      .Needs(handle);
  return [flags, app] { return SaysTwice(*app, *flags) ? kExitUsage : Run(*flags); };
}

}  // namespace annulus
