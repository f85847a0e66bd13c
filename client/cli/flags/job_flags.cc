#include "client/cli/flags/job_flags.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "attention/validate/validate.h"
#include "base/command_line.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "client/cli/files/bias_and_mask_files.h"
#include "client/cli/files/input_names.h"
#include "client/cli/files/lse_notes.h"
#include "client/cli/files/lse_rules.h"
#include "client/cli/files/spec_json.h"
#include "client/cli/files/state_job.h"
#include "client/cli/flags/layout_flag.h"
#include "client/cli/flags/text_file.h"
#include "proto/wire/convert.h"

namespace annulus {
namespace {

bool IsBetweenPowers(double value) { return value >= 0x1p-64 && value <= 0x1p64; }

absl::Status StoreScale(const std::string& text, std::optional<double>* scale) {
  double parsed = 0;
  if (!absl::SimpleAtod(text, &parsed) || !(parsed == 0 || IsBetweenPowers(std::abs(parsed)))) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is neither 0 nor a number of 2^-64 to 2^64 in magnitude"));
  }
  *scale = parsed;
  return absl::OkStatus();
}

absl::Status StoreSoftCap(const std::string& text, std::optional<double>* soft_cap) {
  double parsed = 0;
  if (!absl::SimpleAtod(text, &parsed) || !IsBetweenPowers(parsed)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not a number of 2^-64 to 2^64"));
  }
  *soft_cap = parsed;
  return absl::OkStatus();
}

absl::Status StoreWindow(const std::string& text, std::optional<WindowFlag>* window) {
  const std::vector<std::string> parts = absl::StrSplit(text, ',');
  std::vector<int64_t> sides;
  for (const std::string& part : parts) {
    int64_t side = 0;
    if (!absl::SimpleAtoi(part, &side) || side < 0 || side > Limits().max_rows) break;
    sides.push_back(side);
  }
  if (sides.size() != parts.size() || sides.size() > 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not LEFT[,RIGHT] of 0 to ", Limits().max_rows, " keys"));
  }
  window->emplace();
  (*window)->left = sides[0];
  if (sides.size() == 2) (*window)->right = sides[1];
  return absl::OkStatus();
}

absl::Status StoreDropout(const std::string& text, std::optional<Dropout>* dropout) {
  const std::vector<std::string> parts = absl::StrSplit(text, ',');
  Dropout parsed;
  if (parts.size() != 2 || !absl::SimpleAtod(parts[0], &parsed.rate) ||
      !(parsed.rate >= 0 && parsed.rate < 1) || !absl::SimpleAtoi(parts[1], &parsed.seed)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text,
        "' is not RATE,SEED with a rate of at least 0 and below 1, and a whole number as seed"));
  }
  *dropout = parsed;
  return absl::OkStatus();
}

// The type with this name: DATA_TYPE_FP32 for "fp32".
v1::DataType TypeNamed(absl::string_view name) {
  if (name == "fp32") return v1::DATA_TYPE_FP32;
  return name == "fp16" ? v1::DATA_TYPE_FP16 : v1::DATA_TYPE_BF16;
}

void SetMask(const std::string& name, v1::AttentionSpec* spec) {
  spec->clear_masks();
  if (name == "full") return;
  v1::Mask* mask = spec->add_masks();
  mask->set_causal(true);
  if (name == "causal-top-left") mask->set_alignment(v1::Mask::ALIGNMENT_TOP_LEFT);
}

absl::Status SetWindow(const WindowFlag& window, v1::AttentionSpec* spec) {
  if (spec->masks_size() > 1) {
    return InvalidField(
        "BAD_SPEC", "spec.masks",
        absl::StrCat("the spec has ", spec->masks_size(),
                     " masks: set windowLeft and windowRight in the spec instead of --window"));
  }
  if (spec->masks_size() == 0) spec->add_masks();
  v1::Mask& mask = *spec->mutable_masks(0);
  if (!mask.query_heads().empty()) {
    return InvalidField("BAD_SPEC", "spec.masks[0].query_heads",
                        "--window applies to all heads: for the heads of a mask, set windowLeft "
                        "and windowRight in the spec");
  }
  mask.set_window_left(window.left);
  mask.clear_window_right();
  if (window.right.has_value()) mask.set_window_right(*window.right);
  return absl::OkStatus();
}

AddedFlag AddWindow(CommandLine* app, std::optional<WindowFlag>* window) {
  return AddText(app,
                 {"--window",
                  "Sliding window: a query sees LEFT keys before its position and RIGHT keys after "
                  "it. Default of RIGHT: no limit (with --mask causal: 0). Default of the flag: as "
                  "in the spec, else no window"},
                 absl::StrCat("LEFT[,RIGHT], 0 to ", Limits().max_rows, " keys"), "",
                 [window](const std::string& text) { return StoreWindow(text, window); });
}

AddedFlag AddDropout(CommandLine* app, std::optional<Dropout>* dropout) {
  return AddText(app,
                 {"--dropout",
                  "Drop each weight with probability RATE, at least 0 and below 1; SEED of the "
                  "generator: a whole number of 64 bits; default: as in the spec, else no dropout"},
                 "RATE,SEED", "",
                 [dropout](const std::string& text) { return StoreDropout(text, dropout); });
}

AddedFlag AddArithmetic(CommandLine* app, std::string* arithmetic) {
  return AddChoice(app,
                   {"--arithmetic",
                    "Multiplication of fp32 numbers; bf16x3: with 17 bits, faster, only on CPUs "
                    "with AMX; default: as in the spec, else of-type"},
                   {"of-type", "bf16x3"}, arithmetic);
}

AddedFlag AddDeterministic(CommandLine* app, std::optional<bool>* deterministic) {
  return AddSwitch(app,
                   {"--deterministic",
                    "Compute the same bits for any number of workers, for one kernel path, layout "
                    "and strategy; excludes ring-pass-q and tree; default: as in the spec"},
                   deterministic);
}

}  // namespace

std::vector<AddedFlag> AddSpecFlags(CommandLine* app, std::optional<Operation> operation,
                                    SpecFlags* flags) {
  std::vector<AddedFlag> options;
  options.push_back(AddChoice(app,
                              {"--mask", "Mask of the scores; default: as in the spec, else full"},
                              {"full", "causal", "causal-top-left"}, &flags->mask));
  options.push_back(AddWindow(app, &flags->window));
  options.push_back(AddText(
      app, {"--scale", "Factor of q·k, may be negative; default: as in the spec, else 1/sqrt(dim)"},
      "NUMBER, 0 or 2^-64 to 2^64 in magnitude", "",
      [flags](const std::string& text) { return StoreScale(text, &flags->scale); }));
  options.push_back(AddText(
      app,
      {"--soft-cap",
       "Replace each score s by X·tanh(s/X) with this X; default: as in the spec, else no cap"},
      "NUMBER, 2^-64 to 2^64", "",
      [flags](const std::string& text) { return StoreSoftCap(text, &flags->soft_cap); }));
  options.push_back(AddDropout(app, &flags->dropout));
  if (operation != Operation::kGradients) {
    options.push_back(AddChoice(app, {"--lse-base", "Base of lse; default: as in the spec, else e"},
                                {"e", "2"}, &flags->lse_base));
  }
  options.push_back(AddChoice(
      app,
      {"--out-dtype", "Type of output, fp32 or that of q; default: as in the spec, else that of q"},
      {"fp32", "fp16", "bf16"}, &flags->out_dtype));
  options.push_back(AddDeterministic(app, &flags->deterministic));
  options.push_back(AddArithmetic(app, &flags->arithmetic));
  return options;
}

absl::Status PutOver(const SpecFlags& flags, v1::AttentionSpec* spec) {
  if (!flags.mask.empty()) SetMask(flags.mask, spec);
  if (flags.scale.has_value()) spec->set_scale(*flags.scale);
  if (flags.soft_cap.has_value()) spec->mutable_modifiers()->set_soft_cap(*flags.soft_cap);
  if (flags.dropout.has_value()) {
    spec->mutable_dropout()->set_rate(flags.dropout->rate);
    spec->mutable_dropout()->set_seed(flags.dropout->seed);
  }
  if (!flags.lse_base.empty()) {
    spec->mutable_outputs()->set_lse_base(flags.lse_base == "2" ? v1::Outputs::LSE_BASE_2
                                                                : v1::Outputs::LSE_BASE_E);
  }
  if (!flags.out_dtype.empty()) spec->set_out_dtype(TypeNamed(flags.out_dtype));
  if (flags.deterministic.has_value()) spec->set_deterministic(*flags.deterministic);
  if (!flags.arithmetic.empty()) {
    spec->set_arithmetic(flags.arithmetic == "bf16x3" ? v1::AttentionSpec::ARITHMETIC_BF16X3
                                                      : v1::AttentionSpec::ARITHMETIC_UNSPECIFIED);
  }
  return flags.window.has_value() ? SetWindow(*flags.window, spec) : absl::OkStatus();
}

namespace {

absl::Status StoreNames(const std::string& text, std::vector<std::string>* names) {
  for (const absl::string_view name : absl::StrSplit(text, ',')) {
    if (name.empty())
      return absl::InvalidArgumentError(absl::StrCat("'", text, "' has an empty name"));
    names->emplace_back(name);
  }
  return absl::OkStatus();
}

// The names of all values of an enum, which are numbered from 0 without gaps.
template <typename Enum>
std::vector<std::string> NamesOf(absl::string_view (*name)(Enum)) {
  std::vector<std::string> names;
  for (int value = 0; name(static_cast<Enum>(value)) != "unknown"; ++value) {
    names.emplace_back(name(static_cast<Enum>(value)));
  }
  return names;
}

absl::StatusOr<SafetensorsFile> OpenInput(const JobFlags& flags) {
  ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(flags.input));
  file.LeaveAside(flags.ignored_tensors);
  RETURN_IF_ERROR(CheckLeftAside({file}, flags.ignored_tensors));
  return file;
}

absl::Status ReadInput(const JobFlags& flags, JobRequest* request) {
  if (flags.synthetic.has_value()) {
    request->synthetic = flags.synthetic;
    request->shape = request->synthetic->shape;
  } else if (!flags.input.empty()) {
    ASSIGN_OR_RETURN(request->file, OpenInput(flags));
    ASSIGN_OR_RETURN(request->shape, ShapeOf(*request->file, TensorLayoutOf(flags.tensor_layout)));
  }
  return absl::OkStatus();
}

// Refuses a file that the job would interpret differently from what the file says.
absl::Status CheckInput(const SafetensorsFile& file, const AttentionSpec& spec) {
  RETURN_IF_ERROR(CheckInputNames(file, spec));
  if (spec.operation != Operation::kGradients) return absl::OkStatus();
  RETURN_IF_ERROR(CheckOutputRules(file, spec));
  return CheckLse(file, "lse",
                  {LseBase::kE, /*tokens_heads=*/false, spec.scale_or_default(), LseRulesOf(spec)});
}

// Refuses a spec that belongs to another command.
absl::Status CheckOperation(const JobFlags& flags, const v1::AttentionSpec& spec) {
  if (flags.operation == Operation::kForward && spec.has_gradients()) {
    return InvalidField("BAD_SPEC", "spec.gradients",
                        "`annulus attend` runs forward jobs only; use `annulus gradients`");
  }
  if (flags.operation == Operation::kGradients && spec.has_forward()) {
    return InvalidField("BAD_SPEC", "spec.forward",
                        "`annulus gradients` runs gradients jobs only; use `annulus attend`");
  }
  return absl::OkStatus();
}

// Refuses state options in the spec: --handle and --release determine them.
absl::Status CheckState(const v1::Gradients& gradients) {
  if (!gradients.state().empty()) {
    return InvalidField("BAD_SPEC", "spec.gradients.state", "must not be set: --handle sets it");
  }
  if (gradients.release_state()) {
    return InvalidField("BAD_SPEC", "spec.gradients.release_state",
                        "must not be set: --release sets it");
  }
  return absl::OkStatus();
}

Execution ExecutionOf(const JobFlags& flags) {
  Execution execution;
  execution.strategy = *ParseStrategy(flags.strategy);
  execution.layout = *ParseLayout(flags.layout);
  execution.world_size = static_cast<int32_t>(flags.world_size);
  execution.ulysses_degree = static_cast<int32_t>(flags.ulysses_degree);
  execution.ring_degree = static_cast<int32_t>(flags.ring_degree);
  execution.inner_ring_degree = static_cast<int32_t>(flags.inner_ring_degree);
  execution.head_deal = *ParseHeadDeal(flags.head_deal);
  execution.stripe = static_cast<int32_t>(flags.stripe);
  execution.bf16_partials = flags.bf16_partials;
  execution.priority = static_cast<int32_t>(flags.priority);
  return execution;
}

void AddExecutionFlags(CommandLine* app, JobFlags* flags) {
  AddChoice(app,
            {"--strategy", "Strategy by which workers share the work; auto: the fastest that fits"},
            NamesOf<Strategy>(StrategyName), &flags->strategy);
  AddChoice(app, {"--layout", "Layout of the rows on the workers; auto: that of the fastest plan"},
            NamesOf<Layout>(LayoutName), &flags->layout);
  AddInteger(app,
             {"--stripe",
              "Rows of a stripe; only with --layout striped. 0: 1 row, or with --deterministic "
              "about 64 stripes in all. With --deterministic a multiple of 256"},
             {0, std::numeric_limits<int32_t>::max()}, &flags->stripe, "rows");
  AddInteger(app, {"--world-size", "Number of workers; 0: the fastest of 1, 2, 4, 8, … and all"},
             {0, Limits().max_world_size}, &flags->world_size, "workers");
  AddInteger(
      app,
      {"--ulysses-degree", "Number of workers that exchange heads (ulysses-ring); 0: the fastest"},
      {0, Limits().max_world_size}, &flags->ulysses_degree, "workers");
  AddInteger(app, {"--ring-degree", "Number of workers in a ring (ulysses-ring); 0: the fastest"},
             {0, Limits().max_world_size}, &flags->ring_degree, "workers");
  AddInteger(app,
             {"--inner-ring-degree",
              "Number of workers in an inner ring (double-ring); 0: chosen by the planner"},
             {0, Limits().max_world_size}, &flags->inner_ring_degree, "workers");
  AddChoice(app, {"--head-deal", "Assignment of heads to the workers that exchange heads"},
            NamesOf<HeadAssignment>(HeadDealName), &flags->head_deal);
  AddSwitch(
      app,
      {"--bf16-partials",
       "Send partial outputs in bf16 (ring-pass-q and tree, forward): fewer bytes, less accuracy"},
      &flags->bf16_partials);
  AddInteger(app,
             {"--priority",
              "Jobs of higher priority start first, among the jobs of all callers. Each 10 s of "
              "waiting adds one step"},
             {-kMaxPriority, kMaxPriority}, &flags->priority, "steps");
}

}  // namespace

AddedFlag AddIgnoredTensors(CommandLine* app, std::vector<std::string>* names) {
  return AddText(
      app,
      {"--ignore-tensors",
       "Tensors of the input to skip; any other tensor that the command does not use is an error"},
      "NAME[,NAME…]", "", [names](const std::string& text) { return StoreNames(text, names); });
}

void AddJobFlags(CommandLine* app, JobFlags* flags) {
  AddedFlag input = AddFile(
      app,
      {"--input",
       "safetensors file with q, k and v: [tokens, heads, dim] or [batch, tokens, heads, dim] of "
       "F32, F16 or BF16. Optional: lse_offset (shape of lse); bias and mask (BOOL or U8): [heads, "
       "tokens, keys] or [batch, heads, tokens, keys], where each dimension but the last may be 1"},
      &flags->input);
  AddIgnoredTensors(app, &flags->ignored_tensors).Needs(input);
  AddTensorLayout(app, "q, k, v, output and their gradients, in the input and the output",
                  &flags->tensor_layout)
      .Needs(input);
  AddText(app,
          {"--synthetic",
           "Generate the inputs instead of reading a file, for example 1,4096,4096,8,2,128,bf16,1"},
          "B,Sq,Skv,Hq,Hkv,D[,Dv],dtype,seed", "",
          [flags](const std::string& text) {
            const absl::StatusOr<SyntheticShape> parsed = ParseSynthetic(text);
            if (parsed.ok()) flags->synthetic = *parsed;
            return parsed.status();
          })
      .Excludes(input);
  AddedFlag spec_file =
      AddFile(app,
              {"--spec",
               "File with an AttentionSpec as proto3 JSON; absent fields are taken from the input"},
              &flags->spec_file);
  flags->spec_options = AddSpecFlags(app, flags->operation, &flags->spec);
  flags->spec_options.push_back(spec_file);
  AddExecutionFlags(app, flags);
}

absl::StatusOr<JobRequest> ReadJob(const JobFlags& flags) {
  JobRequest request;
  request.execution = ExecutionOf(flags);
  v1::AttentionSpec spec;
  if (!flags.spec_file.empty()) {
    ASSIGN_OR_RETURN(const std::string text, ReadTextFile(flags.spec_file, "BAD_SPEC"));
    ASSIGN_OR_RETURN(spec, ParseSpec(text, flags.spec_file));
    RETURN_IF_ERROR(CheckOperation(flags, spec));
  }
  RETURN_IF_ERROR(PutOver(flags.spec, &spec));
  if (flags.lse_rest) spec.mutable_outputs()->set_lse_rest(true);
  if (flags.keep_for != absl::ZeroDuration()) {
    *spec.mutable_forward()->mutable_keep_state() = DurationToProto(flags.keep_for);
  }
  if (flags.operation == Operation::kGradients) {
    RETURN_IF_ERROR(CheckState(*spec.mutable_gradients()));
  }
  RETURN_IF_ERROR(ReadInput(flags, &request));
  if (flags.d_bias.has_value()) spec.mutable_gradients()->set_d_bias(*flags.d_bias);
  if (request.file.has_value()) RETURN_IF_ERROR(TakeBiasAndMaskInputs(*request.file, &spec));
  if (spec.has_gradients() && request.file.has_value()) {
    RETURN_IF_ERROR(TakeGradientOptions(*request.file, &spec));
  }
  request.says_lse_base = spec.outputs().lse_base() != v1::Outputs::LSE_BASE_UNSPECIFIED;
  if (request.file.has_value() || request.synthetic.has_value()) {
    ASSIGN_OR_RETURN(request.spec, CompleteSpec(std::move(spec), request.shape));
  } else {
    ASSIGN_OR_RETURN(request.spec, SpecFromProto(spec, "spec"));
  }
  if (request.file.has_value()) RETURN_IF_ERROR(CheckInput(*request.file, request.spec));
  RETURN_IF_ERROR(Validate(request.spec, request.execution, Limits()));
  return request;
}

absl::StatusOr<JobRequest> ReadStateJob(const JobFlags& flags, const v1::Job& job) {
  JobRequest request;
  request.execution = ExecutionOf(flags);
  ASSIGN_OR_RETURN(request.spec, SpecOfState(job));
  ASSIGN_OR_RETURN(request.file, OpenInput(flags));
  RETURN_IF_ERROR(CheckInputNames(*request.file, request.spec));
  ASSIGN_OR_RETURN(request.shape,
                   ShapeOfState(*request.file, request.spec, TensorLayoutOf(flags.tensor_layout)));
  request.spec.gradients.d_lse = request.file->Find(TensorName(TensorId::kDLse)) != nullptr;
  request.spec.gradients.d_bias = flags.d_bias.value_or(false);
  if (IsFp32DOut(*request.file, request.spec.output_dtype()))
    request.spec.gradients.d_out_dtype = DataType::kFp32;
  RETURN_IF_ERROR(Validate(request.spec, request.execution, Limits()));
  return request;
}

}  // namespace annulus
