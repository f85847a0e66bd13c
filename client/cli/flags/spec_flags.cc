#include "client/cli/flags/spec_flags.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "attention/validate/validate.h"
#include "base/command_line.h"
#include "base/error.h"

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
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no number of 2^-64 to 2^64"));
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
        absl::StrCat("'", text, "' is no LEFT[,RIGHT] of 0 to ", Limits().max_rows, " keys"));
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
        "'", text, "' is no RATE,SEED with a rate of 0 or more, below 1, and a whole seed"));
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
    return InvalidField("BAD_SPEC", "spec.masks",
                        absl::StrCat("there are ", spec->masks_size(),
                                     ", and --window does not say of which: windowLeft does"));
  }
  if (spec->masks_size() == 0) spec->add_masks();
  v1::Mask& mask = *spec->mutable_masks(0);
  if (!mask.query_heads().empty()) {
    return InvalidField("BAD_SPEC", "spec.masks[0].query_heads",
                        "--window is for all heads: windowLeft is for those of a mask");
  }
  mask.set_window_left(window.left);
  mask.clear_window_right();
  if (window.right.has_value()) mask.set_window_right(*window.right);
  return absl::OkStatus();
}

CLI::Option* AddWindow(CLI::App* app, std::optional<WindowFlag>* window) {
  return AddText(app,
                 {"--window",
                  "How many before a query's own position it sees, and after it; without RIGHT all "
                  "after it, with --mask causal none. Default: as the spec says, else all"},
                 absl::StrCat("LEFT[,RIGHT], 0 to ", Limits().max_rows, " keys"), "",
                 [window](const std::string& text) { return StoreWindow(text, window); });
}

CLI::Option* AddDropout(CLI::App* app, std::optional<Dropout>* dropout) {
  return AddText(app,
                 {"--dropout",
                  "Drop each weight with probability RATE, 0 or more and below 1, by a generator "
                  "of this SEED, a whole number of 64 bits; default: as the spec says, else none"},
                 "RATE,SEED", "",
                 [dropout](const std::string& text) { return StoreDropout(text, dropout); });
}

CLI::Option* AddArithmetic(CLI::App* app, std::string* arithmetic) {
  return AddChoice(app,
                   {"--arithmetic",
                    "Default: as the spec says, else of-type; bf16x3: fp32 numbers to 17 "
                    "bits, faster, on CPUs with AMX alone"},
                   {"of-type", "bf16x3"}, arithmetic);
}

CLI::Option* AddDeterministic(CLI::App* app, std::optional<bool>* deterministic) {
  return AddSwitch(app,
                   {"--deterministic",
                    "The same bits for any number of workers of one kernel path, layout and "
                    "strategy (but ring-pass-q and tree, which are refused); default: as the spec "
                    "says"},
                   deterministic);
}

}  // namespace

std::vector<const CLI::Option*> AddSpecFlags(CLI::App* app, std::optional<Operation> operation,
                                             SpecFlags* flags) {
  std::vector<const CLI::Option*> options;
  options.push_back(AddChoice(app, {"--mask", "Default: as the spec says, else full"},
                              {"full", "causal", "causal-top-left"}, &flags->mask));
  options.push_back(AddWindow(app, &flags->window));
  options.push_back(AddText(
      app, {"--scale", "Factor of q·k, also below 0; default: as the spec says, else 1/sqrt(dim)"},
      "NUMBER, 0 or 2^-64 to 2^64 in magnitude", "",
      [flags](const std::string& text) { return StoreScale(text, &flags->scale); }));
  options.push_back(
      AddText(app,
              {"--soft-cap",
               "Scores s become X·tanh(s/X) of this X; default: as the spec says, else they stay"},
              "NUMBER, 2^-64 to 2^64", "",
              [flags](const std::string& text) { return StoreSoftCap(text, &flags->soft_cap); }));
  options.push_back(AddDropout(app, &flags->dropout));
  if (operation != Operation::kGradients) {
    options.push_back(AddChoice(app, {"--lse-base", "Of lse; default: as the spec says, else e"},
                                {"e", "2"}, &flags->lse_base));
  }
  options.push_back(AddChoice(
      app,
      {"--out-dtype", "Type of output, fp32 or that of q; default: as the spec says, else of q"},
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

}  // namespace annulus
