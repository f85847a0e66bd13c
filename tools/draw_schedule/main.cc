#include <iostream>
#include <optional>
#include <string>

#include "base/command_line.h"
#include "tools/draw_schedule/schedule_picture.h"

namespace annulus {
namespace {

struct Flags {
  std::string strategy = "ring-pass-kv", layout = "zigzag", mask = "causal", format = "text";
  int64_t ranks = 4, q_len = 64, kv_len = 64, stripe = 1;
};

void AddFlags(CLI::App* app, Flags* flags) {
  AddChoice(app, {"--strategy", "What moves"},
            {"ring-pass-kv", "all-gather-kv", "rotate-kv", "halo"}, &flags->strategy);
  AddChoice(app, {"--layout", "Who owns which rows"},
            {"contiguous", "zigzag", "striped", "zigzag-per-sequence"}, &flags->layout);
  AddChoice(app, {"--mask", "What a query sees"}, {"full", "causal"}, &flags->mask);
  AddChoice(app, {"--format", "What is printed"}, {"text", "svg"}, &flags->format);
  AddInteger(app, {"--world-size", "Size of the group"}, {1, 16}, &flags->ranks, "ranks");
  AddInteger(app, {"--q-len", "Queries"}, {1, 4096}, &flags->q_len, "rows");
  AddInteger(app, {"--kv-len", "Keys"}, {1, 4096}, &flags->kv_len, "rows");
  AddInteger(app, {"--stripe", "A stripe of the striped layout"}, {1, 4096}, &flags->stripe,
             "rows");
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Draws an attention schedule from its data.", "draw_schedule");
  AddFlags(&app, &flags);
  if (const std::optional<int> code = ParseCommandLine(&app, argc, argv); code.has_value()) {
    return *code;
  }
  PictureOptions options;
  options.strategy = *ParseStrategy(flags.strategy);
  options.plan = {static_cast<int32_t>(flags.ranks), *ParseLayout(flags.layout), flags.stripe, 1};
  options.q_len = flags.q_len;
  options.kv_len = flags.kv_len;
  options.causal = flags.mask == "causal";
  const absl::StatusOr<std::string> picture =
      flags.format == "svg" ? DrawSvg(options) : DrawText(options);
  if (!picture.ok()) {
    std::cerr << "draw_schedule: " << picture.status().message() << std::endl;
    return 1;
  }
  std::cout << *picture;
  return 0;
}

}  // namespace
}  // namespace annulus

int main(int argc, char** argv) { return annulus::Main(argc, argv); }
