#include "tools/draw_schedule/schedule_picture.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "attention/mask/mask.h"
#include "attention/schedule/schedule.h"
#include "attention/spec/parallel_degrees.h"
#include "base/status_macros.h"

namespace annulus {
namespace {

constexpr int kMap = 96;      // Side of a cell's matrix, in pixels.
constexpr int kColumn = 160;  // Distance between cells.
constexpr int kRow = 132;
constexpr int kLeft = 64, kTop = 70;
constexpr int kMaskLines = 64;  // The number of mask rows that are drawn.

constexpr const char* kColours[] = {"#3b6fb6", "#d0743c", "#4a9a55", "#9a5fb0",
                                    "#b8a22e", "#3aa0a0", "#c2527a", "#7a6a58"};

struct Drawn {
  AttentionSpec spec;
  ShardPlan plan;
  std::vector<RankSchedule> ranks;
};

absl::StatusOr<Drawn> Make(const PictureOptions& options) {
  Drawn drawn;
  drawn.spec.dtype = DataType::kBf16;
  drawn.spec.q_heads = drawn.spec.kv_heads = options.heads;
  drawn.spec.head_dim = 64;
  Sequence sequence;
  sequence.q_len = options.q_len;
  sequence.kv_len = options.kv_len;
  drawn.spec.sequences = {sequence};
  drawn.spec.masks.emplace_back().causal = options.causal;
  if (options.window > 0) drawn.spec.masks[0].window_left = options.window;
  ASSIGN_OR_RETURN(drawn.plan, MakeShardPlan(drawn.spec, options.plan));
  const MaskMap mask(drawn.spec);
  Execution open;
  open.strategy = options.strategy;
  open.ulysses_degree = options.ulysses_degree;
  open.inner_ring_degree = options.inner_ring_degree;
  const auto ways = ResolveDegrees(open, options.plan.world_size, options.heads);
  if (ways.empty()) return absl::InvalidArgumentError("the degrees do not fit the strategy");
  ASSIGN_OR_RETURN(drawn.ranks, MakeGroupSchedules({&drawn.spec, &mask, &drawn.plan, ways[0]}));
  return drawn;
}

std::string Title(const PictureOptions& options) {
  return absl::StrCat(StrategyName(options.strategy), ", ", LayoutName(options.plan.layout), ", ",
                      options.plan.world_size, " ranks, ", options.q_len, " queries × ",
                      options.kv_len, " keys, ", options.causal ? "causal" : "full",
                      options.window > 0 ? absl::StrCat(", window ", options.window) : "",
                      options.heads > 1 ? absl::StrCat(", ", options.heads, " heads") : "");
}

// " of head 2", " of heads 2 to 3", or empty for all heads.
std::string HeadsText(const AttentionSpec& spec, int32_t begin, int32_t end) {
  // The picture has as many query heads as key/value heads.
  if (end - begin == spec.q_heads) return "";
  return end - begin == 1 ? absl::StrCat(" of head ", begin)
                          : absl::StrCat(" of heads ", begin, " to ", end - 1);
}

absl::string_view KindText(BlockKind kind) {
  switch (kind) {
    case BlockKind::kQ:
      return "queries";
    case BlockKind::kKv:
      return "keys";
    case BlockKind::kPartial:
    case BlockKind::kBf16Partial:
      return "partials";
    case BlockKind::kPairs:
      return "bias and bits";
    default:
      return "outputs";
  }
}

// The line style of a block kind's arrows.
absl::string_view DashOf(BlockKind kind) {
  if (kind == BlockKind::kKv) return "";
  return kind == BlockKind::kQ ? " stroke-dasharray=\"7 3\"" : " stroke-dasharray=\"2 2\"";
}

const char* ColourOf(int32_t shard) { return kColours[shard % std::size(kColours)]; }

class Svg {
 public:
  explicit Svg(const Drawn& drawn) : drawn_(drawn) {}

  std::string Draw(const std::string& title) {
    const int steps = static_cast<int>(drawn_.ranks[0].steps.size());
    const int ranks = static_cast<int>(drawn_.ranks.size());
    const int width = kLeft + steps * kColumn, height = kTop + ranks * kRow + 24;
    absl::StrAppendFormat(&out_,
                          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
                          "width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
                          "font-size=\"12\">\n<title>%s</title>\n",
                          width, height, width, height, title);
    absl::StrAppendFormat(&out_, "<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n", width,
                          height);
    Defs();
    Text(kLeft, 20, "#222222", title);
    for (int k = 0; k < steps; ++k) Text(X(k), kTop - 22, "#222222", absl::StrCat("step ", k));
    for (int r = 0; r < ranks; ++r) Text(8, Y(r) + 14, ColourOf(r), absl::StrCat("rank ", r));
    for (int r = 0; r < ranks; ++r) {
      for (int k = 0; k < steps; ++k) Cell(r, k);
    }
    for (int r = 0; r < ranks; ++r) {
      for (int k = 0; k < steps; ++k) Arrows(r, k);
    }
    std::string legend =
        "queries down, keys across; colour: owner of the keys; solid: fully visible";
    if (MovesOtherThanKeys()) {
      legend += "; arrows: keys, dashed queries, dotted partials or outputs";
    }
    Text(kLeft, height - 8, "#666666", legend);
    return absl::StrCat(out_, "</svg>\n");
  }

 private:
  static int X(int step) { return kLeft + step * kColumn; }
  static int Y(int rank) { return kTop + rank * kRow; }
  double KeyX(int64_t row) const { return 1.0 * kMap * row / drawn_.spec.kv_rows(); }
  double QueryY(int64_t row) const { return 1.0 * kMap * row / drawn_.spec.q_rows(); }

  void Text(int x, int y, absl::string_view colour, absl::string_view text) {
    absl::StrAppendFormat(&out_, "<text x=\"%d\" y=\"%d\" fill=\"%s\">%s</text>\n", x, y, colour,
                          text);
  }

  void Rect(Interval q, Interval k, absl::string_view style) {
    absl::StrAppendFormat(
        &out_, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" %s/>\n", KeyX(k.begin),
        QueryY(q.begin), KeyX(k.end) - KeyX(k.begin), QueryY(q.end) - QueryY(q.begin), style);
  }

  // Draws the matrix with the mask once; every cell reuses it.
  void Defs() {
    absl::StrAppend(
        &out_,
        "<defs>\n<marker id=\"tip\" viewBox=\"0 0 6 6\" refX=\"5\" refY=\"3\" "
        "markerWidth=\"5\" markerHeight=\"5\" orient=\"auto\"><path d=\"M0 0L6 3L0 6z\" "
        "fill=\"context-stroke\"/></marker>\n<g id=\"mask\">\n");
    absl::StrAppendFormat(&out_, "<rect width=\"%d\" height=\"%d\" fill=\"#f6f6f6\"/>\n", kMap,
                          kMap);
    const MaskMap mask(drawn_.spec);
    const int64_t rows = drawn_.spec.q_rows(), lines = std::min<int64_t>(rows, kMaskLines);
    for (int64_t i = 0; i < lines; ++i) {
      const Interval q{rows * i / lines, rows * (i + 1) / lines};
      for (const Interval& seen : mask.VisiblePacked(0, q.end - 1)) {
        Rect(q, seen, "fill=\"#dddddd\"");
      }
    }
    absl::StrAppendFormat(&out_,
                          "<rect width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#999999\"/>\n"
                          "</g>\n</defs>\n",
                          kMap, kMap);
  }

  bool MovesOtherThanKeys() const {
    for (const RankSchedule& schedule : drawn_.ranks) {
      for (const Step& step : schedule.steps) {
        for (const Transfer& send : step.sends) {
          if (schedule.buffers[send.buffer].kind != BlockKind::kKv) return true;
        }
      }
    }
    return false;
  }

  // The ops of a step, and the heads of its tasks.
  void Caption(int rank, int k) {
    const Step& step = drawn_.ranks[rank].steps[k];
    const auto has = [&](Op::Kind kind) {
      return std::any_of(step.ops.begin(), step.ops.end(),
                         [&](const Op& op) { return op.kind == kind; });
    };
    std::string caption;
    if (has(Op::Kind::kMerge)) caption = "merge";
    if (has(Op::Kind::kFinish)) absl::StrAppend(&caption, caption.empty() ? "" : ", ", "finish");
    if (!step.tasks.empty()) {
      int32_t begin = step.tasks[0].head_begin, end = step.tasks[0].head_end;
      for (const Task& task : step.tasks) {
        begin = std::min(begin, task.head_begin);
        end = std::max(end, task.head_end);
      }
      const std::string heads = HeadsText(drawn_.spec, begin, end);
      // A caption of " of head 2" alone becomes "head 2".
      absl::StrAppend(&caption, caption.empty() ? absl::StripPrefix(heads, " of ") : heads);
    }
    if (!caption.empty()) Text(X(k), Y(rank) + kMap + 13, "#222222", caption);
  }

  void Cell(int rank, int k) {
    const RankSchedule& schedule = drawn_.ranks[rank];
    absl::StrAppendFormat(&out_, "<g transform=\"translate(%d %d)\">\n<use href=\"#mask\"/>\n",
                          X(k), Y(rank));
    for (const Task& task : schedule.steps[k].tasks) {
      const int32_t shard = schedule.buffers[task.kv].shard;
      const RowMap& q_map = drawn_.plan.shards[schedule.buffers[task.q].shard].q_rows;
      const RowMap& k_map = drawn_.plan.shards[shard].kv_rows;
      const std::string style = absl::StrFormat(
          "fill=\"%s\" fill-opacity=\"%s\" stroke=\"%s\" stroke-width=\"0.5\"", ColourOf(shard),
          task.coverage == Coverage::kFull ? "0.9" : "0.45", ColourOf(shard));
      q_map.ForEachRun({task.q_begin, task.q_end}, [&](int64_t, int64_t q, int64_t q_count) {
        k_map.ForEachRun({task.k_begin, task.k_end}, [&](int64_t, int64_t key, int64_t k_count) {
          Rect({q, q + q_count}, {key, key + k_count}, style);
        });
      });
    }
    absl::StrAppend(&out_, "</g>\n");
    Caption(rank, k);
  }

  void Arrows(int rank, int k) {
    const RankSchedule& schedule = drawn_.ranks[rank];
    for (const Transfer& send : schedule.steps[k].sends) {
      const Block& block = schedule.buffers[send.buffer];
      const int32_t shard = block.shard;
      absl::StrAppendFormat(
          &out_,
          "<path d=\"M%d %dC%d %d %d %d %d %d\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s "
          "marker-end=\"url(#tip)\"><title>rank %d to %d: %s of shard %d, rows %d to "
          "%d%s</title></path>\n",
          X(k) + kMap, Y(rank) + kMap / 2, X(k) + kMap + 40, Y(rank) + kMap / 2, X(k + 1) - 40,
          Y(send.peer) + kMap / 2, X(k + 1) - 3, Y(send.peer) + kMap / 2, ColourOf(shard),
          DashOf(block.kind), rank, send.peer, KindText(block.kind), shard, send.row_begin,
          send.row_end - 1, HeadsText(drawn_.spec, block.head_begin, block.head_end));
    }
  }

  const Drawn& drawn_;
  std::string out_;
};

void AppendTransfers(const AttentionSpec& spec, const RankSchedule& schedule,
                     const std::vector<Transfer>& transfers, absl::string_view verb,
                     std::string* out) {
  for (const Transfer& transfer : transfers) {
    const Block& block = schedule.buffers[transfer.buffer];
    absl::StrAppendFormat(out, "    %s %d: %s of shard %d, rows [%d, %d)%s\n", verb, transfer.peer,
                          KindText(block.kind), block.shard, transfer.row_begin, transfer.row_end,
                          HeadsText(spec, block.head_begin, block.head_end));
  }
}

void AppendStep(const AttentionSpec& spec, const RankSchedule& schedule, const Step& step,
                std::string* out) {
  AppendTransfers(spec, schedule, step.sends, "send to", out);
  AppendTransfers(spec, schedule, step.receives, "receive from", out);
  for (const Task& task : step.tasks) {
    absl::StrAppendFormat(out,
                          "    attend rows [%d, %d) of shard %d to keys [%d, %d) of shard %d%s, "
                          "%s\n",
                          task.q_begin, task.q_end, schedule.buffers[task.q].shard, task.k_begin,
                          task.k_end, schedule.buffers[task.kv].shard,
                          HeadsText(spec, task.head_begin, task.head_end),
                          task.coverage == Coverage::kFull ? "full" : "partial");
  }
  for (const Op& op : step.ops) {
    const Block& target = schedule.buffers[op.target];
    absl::StrAppendFormat(out, "    %s rows of shard %d%s\n",
                          op.kind == Op::Kind::kFinish ? "finish" : "merge", target.shard,
                          HeadsText(spec, target.head_begin, target.head_end));
  }
}

}  // namespace

std::vector<std::pair<std::string, PictureOptions>> DocumentedPictures() {
  const auto of = [](Strategy strategy, Layout layout, int32_t heads) {
    PictureOptions options;
    options.strategy = strategy;
    options.plan.layout = layout;
    options.heads = heads;
    return options;
  };
  PictureOptions halo = of(Strategy::kHalo, Layout::kContiguous, 1);
  halo.window = 11;
  PictureOptions grid = of(Strategy::kUlyssesRing, Layout::kZigzag, 2);
  grid.ulysses_degree = 2;
  PictureOptions tree = of(Strategy::kTree, Layout::kContiguous, 1);
  tree.q_len = 8;
  return {{"ring_schedule.svg", PictureOptions()},
          {"rotate_schedule.svg", of(Strategy::kRotateKv, Layout::kZigzag, 1)},
          {"all_gather_schedule.svg", of(Strategy::kAllGatherKv, Layout::kZigzag, 1)},
          {"halo_schedule.svg", halo},
          {"ring_q_schedule.svg", of(Strategy::kRingPassQ, Layout::kZigzag, 1)},
          {"ulysses_schedule.svg", of(Strategy::kUlysses, Layout::kContiguous, 4)},
          {"ulysses_ring_schedule.svg", grid},
          {"double_ring_schedule.svg", of(Strategy::kDoubleRing, Layout::kZigzag, 1)},
          {"tree_schedule.svg", tree}};
}

absl::StatusOr<std::string> DrawSvg(const PictureOptions& options) {
  if (options.q_len < 1 || options.kv_len < 1) {
    return absl::InvalidArgumentError("a picture needs at least one query and one key");
  }
  ASSIGN_OR_RETURN(const Drawn drawn, Make(options));
  return Svg(drawn).Draw(Title(options));
}

absl::StatusOr<std::string> DrawText(const PictureOptions& options) {
  ASSIGN_OR_RETURN(const Drawn drawn, Make(options));
  std::string out = absl::StrCat(Title(options), "\n");
  for (size_t k = 0; k < drawn.ranks[0].steps.size(); ++k) {
    absl::StrAppend(&out, "step ", k, "\n");
    for (size_t r = 0; r < drawn.ranks.size(); ++r) {
      absl::StrAppend(&out, "  rank ", r, "\n");
      AppendStep(drawn.spec, drawn.ranks[r], drawn.ranks[r].steps[k], &out);
    }
  }
  return out;
}

}  // namespace annulus
