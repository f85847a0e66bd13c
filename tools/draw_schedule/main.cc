#include <fstream>
#include <iostream>
#include <optional>
#include <string>

#include "base/command_line.h"
#include "tools/draw_schedule/schedule_picture.h"

namespace annulus {
namespace {

struct Flags {
  std::string strategy = "ring-pass-kv", layout = "zigzag", mask = "causal", format = "text";
  int64_t ranks = 4, q_len = 64, kv_len = 64, stripe = 1, window = 0, heads = 1;
  int64_t ulysses_degree = 0, inner_ring_degree = 0;
  std::string documented;
};

void AddFlags(CommandLine* app, Flags* flags) {
  AddChoice(app, {"--strategy", "What moves"},
            {"ring-pass-kv", "all-gather-kv", "rotate-kv", "halo", "ring-pass-q", "ulysses",
             "ulysses-ring", "double-ring", "tree"},
            &flags->strategy);
  AddChoice(app, {"--layout", "Who owns which rows"},
            {"contiguous", "zigzag", "striped", "zigzag-per-sequence", "by-area"}, &flags->layout);
  AddChoice(app, {"--mask", "What a query sees"}, {"full", "causal"}, &flags->mask);
  AddChoice(app, {"--format", "What is printed"}, {"text", "svg"}, &flags->format);
  AddInteger(app, {"--world-size", "Size of the group"}, {1, 16}, &flags->ranks, "ranks");
  AddInteger(app, {"--q-len", "Queries"}, {1, 4096}, &flags->q_len, "rows");
  AddInteger(app, {"--kv-len", "Keys"}, {1, 4096}, &flags->kv_len, "rows");
  AddInteger(app, {"--window", "Keys that a query sees before itself; 0: all"}, {0, 4096},
             &flags->window, "rows");
  AddInteger(app, {"--heads", "Heads of queries and of keys"}, {1, 64}, &flags->heads, "heads");
  AddInteger(app, {"--ulysses-degree", "Ranks that exchange heads; 0: the first that fits"},
             {0, 16}, &flags->ulysses_degree, "ranks");
  AddInteger(app, {"--inner-ring-degree", "Ranks of an inner ring; 0: the first that fits"},
             {0, 16}, &flags->inner_ring_degree, "ranks");
  AddFile(app,
          {"--documented",
           "Folder into which all pictures of docs/explanation/strategies.md are drawn instead"},
          &flags->documented);
  AddInteger(app, {"--stripe", "A stripe of the striped layout"}, {1, 4096}, &flags->stripe,
             "rows");
}

int DrawDocumented(const std::string& folder) {
  for (const auto& [name, options] : DocumentedPictures()) {
    const absl::StatusOr<std::string> picture = DrawSvg(options);
    std::ofstream file(folder + "/" + name);
    if (picture.ok()) file << *picture;
    if (!picture.ok() || !file.flush()) {
      std::cerr << "draw_schedule: " << name << " cannot be drawn" << std::endl;
      return 1;
    }
  }
  return 0;
}

int Main(int argc, char** argv) {
  Flags flags;
  CommandLine app("draw_schedule", "Draws an attention schedule from its data.");
  AddFlags(&app, &flags);
  if (const std::optional<int> code = ParseCommandLine(&app, argc, argv); code.has_value()) {
    return *code;
  }
  if (!flags.documented.empty()) return DrawDocumented(flags.documented);
  PictureOptions options;
  options.strategy = *ParseStrategy(flags.strategy);
  options.plan = {static_cast<int32_t>(flags.ranks), *ParseLayout(flags.layout), flags.stripe, 1};
  options.q_len = flags.q_len;
  options.kv_len = flags.kv_len;
  options.causal = flags.mask == "causal";
  options.window = flags.window;
  options.heads = static_cast<int32_t>(flags.heads);
  options.ulysses_degree = static_cast<int32_t>(flags.ulysses_degree);
  options.inner_ring_degree = static_cast<int32_t>(flags.inner_ring_degree);
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
