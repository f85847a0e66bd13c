// annulus shard, annulus unshard: cut the tensors of a file by a plan, and put them together again.
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attention/validate/validate.h"
#include "base/command_line.h"
#include "base/status_macros.h"
#include "client/cli/commands.h"
#include "client/cli/files/input_names.h"
#include "client/cli/files/lse_notes.h"
#include "client/cli/files/shard_files.h"
#include "client/cli/files/shard_notes.h"
#include "client/cli/flags/job_flags.h"
#include "client/cli/flags/layout_flag.h"
#include "client/cli/flags/text_file.h"
#include "client/cli/interrupts.h"
#include "client/cli/report.h"
#include "client/cli/safetensors/file_error.h"
#include "client/cli/safetensors/safetensors.h"

namespace annulus {
namespace {

struct Flags {
  std::string plan, input, output, tensor_layout = "auto";
  std::vector<std::string> ignored_tensors;
  std::vector<std::string> inputs;  // For unshard, by rank.
  int64_t rank = 0, batch = 0;
  bool json = false;
};

absl::StatusOr<PlanRows> ReadPlan(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, "BAD_PLAN"));
  const absl::StatusOr<v1::Plan> plan = ParsePlan(text);
  RETURN_IF_ERROR(InFile(path, plan.status()));
  absl::StatusOr<PlanRows> rows = PlanRows::Of(*plan);
  RETURN_IF_ERROR(InFile(path, rows.status()));
  return rows;
}

absl::Status Write(const Flags& flags, const std::vector<OwnedTensor>& tensors,
                   const SafetensorMetadata& metadata, Interrupts* interrupts) {
  std::vector<std::string> inputs = flags.inputs;
  inputs.insert(inputs.end(), {flags.plan, flags.input});
  ASSIGN_OR_RETURN(SafetensorsWriter output, SafetensorsWriter::Create(flags.output, inputs));
  interrupts->RemoveAtEnd(output.partial());
  RETURN_IF_ERROR(output.Commit(ViewsOf(tensors), metadata));
  nlohmann::json said = nlohmann::json::object();
  for (const OwnedTensor& tensor : tensors) said[tensor.name] = tensor.shape;
  if (flags.json) {
    std::cout << nlohmann::json{{"tensors", said}}.dump(2) << std::endl;
  } else {
    std::cout << flags.output << ": " << said.dump() << "\n";
  }
  return absl::OkStatus();
}

absl::Status Shard(const Flags& flags) {
  Interrupts interrupts;
  ASSIGN_OR_RETURN(const PlanRows plan, ReadPlan(flags.plan));
  ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(flags.input));
  file.LeaveAside(flags.ignored_tensors);
  RETURN_IF_ERROR(CheckLeftAside({file}, flags.ignored_tensors));
  const std::optional<TensorLayout> layout = TensorLayoutOf(flags.tensor_layout);
  ASSIGN_OR_RETURN(const std::vector<OwnedTensor> tensors,
                   ShardFile(plan, file, static_cast<int32_t>(flags.rank), layout));
  SafetensorMetadata notes = file.metadata();
  AddShardNotes(plan, static_cast<int32_t>(flags.rank), ShardLayout(layout), &notes);
  return Write(flags, tensors, notes, &interrupts);
}

absl::Status Unshard(const Flags& flags) {
  Interrupts interrupts;
  ASSIGN_OR_RETURN(const PlanRows plan, ReadPlan(flags.plan));
  std::vector<SafetensorsFile> files;
  for (const std::string& input : flags.inputs) {
    ASSIGN_OR_RETURN(files.emplace_back(), SafetensorsFile::Open(input));
  }
  ASSIGN_OR_RETURN(const std::vector<OwnedTensor> tensors,
                   UnshardFiles(plan, files, flags.batch, TensorLayoutOf(flags.tensor_layout)));
  ASSIGN_OR_RETURN(SafetensorMetadata notes, SharedNotes(files));
  RemoveShardNotes(&notes);
  return Write(flags, tensors, notes, &interrupts);
}

// The flags of both commands.
void AddPlanAndOutput(CommandLine* app, Flags* flags) {
  AddFile(app, {"--plan", "Output file of `annulus plan --json`"}, &flags->plan).Required();
  AddFile(app, {"--output", "safetensors file to write"}, &flags->output).Required();
  AddTensorLayout(app,
                  "the whole q, k, v, output and gradients (in a shard: [heads, tokens, dim] if "
                  "heads come before tokens, else [tokens, heads, dim])",
                  &flags->tensor_layout);
  AddSwitch(app, {"--json", "Write the answer as JSON to standard output"}, &flags->json);
}

Command Runs(absl::Status (*run)(const Flags&), std::shared_ptr<Flags> flags) {
  return [run, flags = std::move(flags)] {
    const absl::Status status = run(*flags);
    return status.ok() ? kExitOk : ReportError(status, flags->json);
  };
}

}  // namespace

Command AddShardCommand(CommandLine* program) {
  auto flags = std::make_shared<Flags>();
  CommandLine* app = program->AddCommand(
      "shard",
      "Extract one rank's rows of a plan from the tensors of a file; makes no call to the service");
  AddPlanAndOutput(app, flags.get());
  AddFile(app,
          {"--input",
           "safetensors file with q, k, v, output, d_out, dq, dk, dv ([tokens, heads, dim]), lse, "
           "lse_rest, max_logit, d_lse or lse_offset ([heads, tokens]), or [batch, …] of each"},
          &flags->input)
      .Required();
  AddIgnoredTensors(app, &flags->ignored_tensors);
  AddInteger(app, {"--rank", "Rank whose rows are taken"}, {0, Limits().max_world_size - 1},
             &flags->rank, "rank")
      .HideDefault()
      .Required();
  return Runs(Shard, std::move(flags));
}

Command AddUnshardCommand(CommandLine* program) {
  auto flags = std::make_shared<Flags>();
  CommandLine* app =
      program->AddCommand("unshard", "Join the rows of all ranks: the inverse of `annulus shard`");
  AddPlanAndOutput(app, flags.get());
  AddFiles(app,
           {"--input",
            "safetensors file that `annulus shard` wrote; give the flag once for each rank, in the "
            "order of the ranks"},
           &flags->inputs)
      .Required();
  AddInteger(
      app,
      {"--batch",
       "Number of sequences of equal length, written as a batch dimension; 0: no batch dimension"},
      {0, Limits().max_sequences}, &flags->batch, "sequences");
  return Runs(Unshard, std::move(flags));
}

}  // namespace annulus
