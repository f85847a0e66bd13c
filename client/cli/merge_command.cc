// annulus merge: merges finished partials.
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/command_line.h"
#include "base/error.h"
#include "base/escape_for_terminal.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "client/cli/commands.h"
#include "client/cli/files/input_names.h"
#include "client/cli/files/merge_copies.h"
#include "client/cli/files/merge_files.h"
#include "client/cli/flags/job_flags.h"
#include "client/cli/flags/service_flags.h"
#include "client/cli/interrupts.h"
#include "client/cli/report.h"
#include "client/client.h"

namespace annulus {
namespace {

struct Flags {
  ServiceFlags service;
  std::vector<std::string> inputs, ignored_tensors;
  std::string output;
  std::string lse_base, output_lse_base = "e";
  std::string lse_layout = "heads-tokens";
  bool nonfinite_is_empty = false;
};

// Adds a hint at --nonfinite-lse-is-empty to a CORRUPT_PARTIAL of an lse.
absl::Status NameFlag(const absl::Status& error) {
  ErrorDetail detail = DetailOf(error);
  if (detail.reason != "CORRUPT_PARTIAL" || detail.fields.empty()) return error;
  FieldViolation& first = detail.fields[0];
  const bool is_lse = absl::EndsWith(first.field, ".lse");
  if (!is_lse || !absl::EndsWithIgnoreCase(error.message(), first.description)) return error;
  constexpr absl::string_view kHint =
      "; if it marks a row without visible keys, use --nonfinite-lse-is-empty";
  absl::StrAppend(&first.description, kHint);
  return MakeError(error.code(), absl::StrCat(error.message(), kHint), detail);
}

void WarnOfCopies(const MergeFiles& merge) {
  for (const auto& [copy, first] : CopiedPartials(merge.files())) {
    std::cerr << EscapeForTerminal(absl::StrCat("annulus: warning: ", copy,
                                                " has the same output and "
                                                "lse as ",
                                                first, ": its keys count twice"))
              << "\n";
  }
}

LseBase BaseNamed(const std::string& name) { return name == "2" ? LseBase::k2 : LseBase::kE; }

absl::Status MergeAll(const Flags& flags, const absl::Time deadline, MergeFiles* merge) {
  Client client(ClientOptionsOf(flags.service));
  for (int64_t call = 0; call < merge->calls(); ++call) {
    const absl::StatusOr<v1::Partial> answer =
        client.MergePartials(merge->Request(call), deadline - SteadyNow());
    if (!answer.ok()) return NameFlag(merge->InFiles(call, answer.status()));
    RETURN_IF_ERROR(merge->Take(call, *answer));
  }
  return absl::OkStatus();
}

absl::Status RunMerge(const Flags& flags) {
  const absl::Time began = SteadyNow();
  Interrupts interrupts;
  std::vector<SafetensorsFile> files;
  for (const std::string& input : flags.inputs) {
    ASSIGN_OR_RETURN(files.emplace_back(), SafetensorsFile::Open(input));
    files.back().LeaveAside(flags.ignored_tensors);
    RETURN_IF_ERROR(CheckPartialNames(files.back()));
  }
  RETURN_IF_ERROR(CheckLeftAside(files, flags.ignored_tensors));
  PartialFileRules rules;
  rules.base = BaseNamed(flags.lse_base);
  rules.tokens_heads = flags.lse_layout == "tokens-heads";
  rules.nonfinite_is_empty = flags.nonfinite_is_empty;
  ASSIGN_OR_RETURN(MergeFiles merge,
                   MergeFiles::Open(std::move(files), rules, BaseNamed(flags.output_lse_base)));
  ASSIGN_OR_RETURN(SafetensorsWriter output, SafetensorsWriter::Create(flags.output, flags.inputs));
  interrupts.RemoveAtEnd(output.partial());
  WarnOfCopies(merge);
  RETURN_IF_ERROR(output.Reserve(merge.output_bytes()));
  RETURN_IF_ERROR(MergeAll(flags, began + flags.service.timeout, &merge));
  RETURN_IF_ERROR(merge.WriteOutputs(&output));
  const double seconds = absl::ToDoubleSeconds(SteadyNow() - began);
  if (flags.service.json) {
    const nlohmann::json json = {{"partials", flags.inputs.size()},
                                 {"rows", merge.rows()},
                                 {"heads", merge.heads()},
                                 {"calls", merge.calls()},
                                 {"seconds", seconds}};
    std::cout << json.dump(2) << std::endl;
  } else {
    const auto count = static_cast<int64_t>(flags.inputs.size());
    std::cout << "merged " << CountText(count, "partial") << " of "
              << CountText(merge.rows(), "row") << " x " << CountText(merge.heads(), "head")
              << " in " << CountText(merge.calls(), "call") << ", " << seconds << " s\n";
  }
  return absl::OkStatus();
}

}  // namespace

Command AddMergeCommand(CommandLine* program) {
  auto flags = std::make_shared<Flags>();
  CommandLine* app =
      program->AddCommand("merge", "Merge the output and lse of the same rows over disjoint keys");
  AddServiceFlags(app, &flags->service);
  AddFiles(app,
           {"--input",
            "safetensors file with output and lse as `annulus attend` writes them; give the flag "
            "once for each partial"},
           &flags->inputs)
      .Required();
  AddIgnoredTensors(app, &flags->ignored_tensors);
  AddFile(app, {"--output", "safetensors file to write: output, lse and lse_rest, F32"},
          &flags->output)
      .Required();
  AddChoice(app, {"--lse-base", "Base of the inputs' lse"}, {"e", "2"}, &flags->lse_base)
      .Required();
  AddChoice(app, {"--output-lse-base", "Base of the answer's lse"}, {"e", "2"},
            &flags->output_lse_base);
  AddChoice(app, {"--lse-layout", "Order of the dimensions of lse, in the inputs and the answer"},
            {"heads-tokens", "tokens-heads"}, &flags->lse_layout);
  AddSwitch(app,
            {"--nonfinite-lse-is-empty",
             "Take an lse of NaN or +inf as that of a row without visible keys; without this flag "
             "it is an error"},
            &flags->nonfinite_is_empty);
  return [flags] {
    const absl::Status status = RunMerge(*flags);
    return status.ok() ? kExitOk : ReportError(status, flags->service.json);
  };
}

}  // namespace annulus
