#include "tests/worker/backend/faulty_functions.h"

#include <cstring>

namespace annulus {
namespace {

static_assert(sizeof(TileIsa) == 168, "a new function needs a fault below");
static_assert(sizeof(GradientIsa) == 9 * sizeof(void*), "a new function needs a fault below");

template <typename... Arguments>
void Nothing(Arguments...) {}

std::vector<FaultyFunction> FaultyPacking() {
  return {
      {"pack_keys",
       [](TileIsa* isa, GradientIsa*) {
         isa->pack_keys = [](const ElementRows& rows, const uint8_t* present, int count, int dim,
                             float* out) {
           kPortableIsa.pack_keys(rows, present, count, dim, out);
           out[0] = 5;
         };
       }},
      {"pack_values",
       [](TileIsa* isa, GradientIsa*) {
         isa->pack_values = [](const ElementRows& rows, const uint8_t* present, int count, int dim,
                               float* out) {
           const bool finite = kPortableIsa.pack_values(rows, present, count, dim, out);
           out[0] = 5;
           return finite;
         };
       }},
      {"pack_queries",
       [](TileIsa* isa, GradientIsa*) {
         isa->pack_queries = [](const QueryRows& rows, double scale, float* out) {
           kPortableIsa.pack_queries(rows, scale, out);
           out[0] = 5;
         };
       }},
      {"pack_rows",
       [](TileIsa*, GradientIsa* gradients) {
         gradients->pack_rows = [](const QueryRows& rows, float* out) {
           const bool finite = kPortableIsa.gradients->pack_rows(rows, out);
           out[0] = 5;
           return finite;
         };
       }},
      {"keep_seen",
       [](TileIsa*, GradientIsa* gradients) {
         gradients->keep_seen = [](const float* packed, int dim, const uint8_t*, float* out) {
           const std::vector<uint8_t> all(kTileRows, 1);
           kPortableIsa.gradients->keep_seen(packed, dim, all.data(), out);
         };
       }},
  };
}

std::vector<FaultyFunction> FaultyFunctionsOfTiles() {
  return {
      {"score",
       [](TileIsa* isa, GradientIsa*) {
         isa->score = [](const TileBlock& tile) {
           kPortableIsa.score(tile);
           tile.scores[17] += 4;
         };
       }},
      {"change_scores", [](TileIsa* isa, GradientIsa*) { isa->change_scores = Nothing; }},
      {"softmax",
       [](TileIsa* isa, GradientIsa*) {
         isa->softmax = [](const TileBlock& tile) {
           for (int row = 0; row < tile.rows; ++row) tile.weight[row] = 0;
           kPortableIsa.softmax(tile);
         };
       }},
      {"drop_weights", [](TileIsa* isa, GradientIsa*) { isa->drop_weights = Nothing; }},
      {"accumulate",
       [](TileIsa* isa, GradientIsa*) {
         isa->accumulate = [](const TileBlock& tile) {
           kPortableIsa.accumulate(tile);
           tile.sums[3] += 20;
         };
       }},
      {"accumulate_row",
       [](TileIsa* isa, GradientIsa*) {
         isa->accumulate_row = [](const TileBlock& row, const KeySpan* spans, int count) {
           kPortableIsa.accumulate_row(row, spans, count);
           row.sums[3] += 20;
         };
       }},
      {"finish_row",
       [](TileIsa* isa, GradientIsa*) {
         isa->finish_row = [](const float* sums, const RowDivision& by, int dim, DataType dtype,
                              std::byte* out) {
           kPortableIsa.finish_row(sums, by, dim, dtype, out);
           std::memset(out, 0, 4);
         };
       }},
  };
}

std::vector<FaultyFunction> FaultyFunctionsOfGradients() {
  return {
      {"uncap", [](TileIsa*, GradientIsa* gradients) { gradients->uncap = Nothing; }},
      {"add", [](TileIsa*, GradientIsa* gradients) { gradients->add = Nothing; }},
      {"multiply", [](TileIsa*, GradientIsa* gradients) { gradients->multiply = Nothing; }},
      {"clear_hidden", [](TileIsa*, GradientIsa* gradients) { gradients->clear_hidden = Nothing; }},
      {"weigh",
       [](TileIsa*, GradientIsa* gradients) {
         gradients->weigh = [](const GradientTile& tile) {
           kPortableIsa.gradients->weigh(tile);
           tile.d_scores[5] += 5;
         };
       }},
      {"add_outer",
       [](TileIsa*, GradientIsa* gradients) {
         gradients->add_outer = [](const OuterProduct& product) {
           kPortableIsa.gradients->add_outer(product);
           product.sums[int64_t{product.key_begin} * product.sum_stride] += 5;
         };
       }},
  };
}

}  // namespace

std::vector<FaultyFunction> FaultyFunctions() {
  std::vector<FaultyFunction> all = FaultyPacking();
  for (const auto& more : {FaultyFunctionsOfTiles(), FaultyFunctionsOfGradients()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace annulus
