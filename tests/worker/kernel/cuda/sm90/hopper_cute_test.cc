// Compares the encodings of the sm_90a kernel with those of CuTe, NVIDIA's library (CUTLASS 4.2).
// Its layouts are written here as it prints them: shape and strides of each mode.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/worker/kernel/cuda/emulator/hopper_products.h"
#include "worker/kernel/cuda/launch/hopper_config.h"

namespace annulus::cuda {
namespace {

// A CuTe layout: the first mode's coordinate is the least significant of an index.
struct Mode {
  int shape, stride;
};
int At(const std::vector<Mode>& modes, int index) {
  int at = 0;
  for (const Mode& mode : modes) {
    at += index % mode.shape * mode.stride;
    index /= mode.shape;
  }
  return at;
}

// SM90::GMMA::CLayout_64xN and ALayout_64x16 (cute/atom/mma_traits_sm90_gmma.hpp): from a thread
// and its register to row + 64 · column.
const std::vector<Mode> kThreads = {{4, 128}, {8, 1}, {4, 16}};
std::vector<Mode> SumsOf(int columns) { return {{2, 64}, {2, 8}, {columns / 8, 512}}; }
const std::vector<Mode> kLeft = {{2, 64}, {2, 8}, {2, 512}};

TEST(HopperCuteTest, RegistersOfProductsAreThoseOfCute) {
  for (int thread = 0; thread < kGroupThreads; ++thread) {
    for (const int columns : {64, 96, 128}) {
      for (int i = 0; i < columns / 2; ++i) {
        const ProductPlace place = PlaceOfSum(thread, i);
        ASSERT_EQ(place.row + 64 * place.column, At(kThreads, thread) + At(SumsOf(columns), i));
      }
    }
    for (int i = 0; i < 8; ++i) {
      const ProductPlace place = PlaceOfLeft(thread, i);
      ASSERT_EQ(place.row + 64 * place.column, At(kThreads, thread) + At(kLeft, i));
    }
  }
}

// HopperSoftmax::Pack moves register 8·s + i of the scores to register i of step s.
TEST(HopperCuteTest, ScoresAreALeftSideAsTheyLie) {
  for (int keys = 0; keys < 128; keys += 16) {
    for (int i = 0; i < 8; ++i)
      EXPECT_EQ(At(SumsOf(128), keys / 2 + i), At(kLeft, i) + 64 * keys) << keys;
  }
}

// Swizzle<3,4,3>, in bytes.
int Swizzled(int at) { return at ^ (at & (7 << 7)) >> 3; }

// tile_to_shape(Layout_K_SW128_Atom<bfloat16_t>, (rows, dim)), and the same memory as
// tile_to_shape(Layout_MN_SW128_Atom<bfloat16_t>, (dim, rows), Step<_2,_1>), in bytes.
int KMajor(int rows, int dim, int row, int column) {
  return Swizzled(At({{8, 128}, {rows / 8, 1024}}, row) +
                  At({{64, 2}, {dim / 64, rows * 128}}, column));
}
int MnMajor(int rows, int dim, int column, int row) {
  return Swizzled(At({{64, 2}, {dim / 64, rows * 128}}, column) +
                  At({{8, 128}, {rows / 8, 1024}}, row));
}

struct Tile {
  int rows, dim;
};
const Tile kQueries[] = {{64, 64}, {64, 128}, {64, 256}};
const Tile kTiles[] = {{128, 64}, {96, 128}, {64, 256}};
uint32_t PanelBytes(const Tile& tile) { return tile.rows * kPanelRowBytes; }

// The result of make_gmma_desc<Major::K> for address 0, advanced like DescriptorIterator.
TEST(HopperCuteTest, QueriesAndKeysAreDescribedAsCuteDoes) {
  for (const Tile& tile : {kQueries[0], kQueries[1], kQueries[2], kTiles[0], kTiles[1]}) {
    for (int column = 0; column < tile.dim; column += 16) {
      const uint64_t moved = At({{4, 2}, {tile.dim / 64, tile.rows * 8}}, column / 16);
      const uint64_t descriptor = AlongRows(0, PanelBytes(tile), column);
      ASSERT_EQ(descriptor, 0x4000004000010000u + moved) << tile.dim << " " << column;
      const MatrixLayout layout = DecodeDescriptor(descriptor);
      for (int row = 0; row < tile.rows; ++row) {
        for (int depth = 0; depth < 16; ++depth)
          ASSERT_EQ(static_cast<int>(PlaceAlongRows(layout, row, depth)),
                    KMajor(tile.rows, tile.dim, row, column + depth));
      }
    }
  }
}

// make_gmma_desc<Major::MN>. With a single panel CuTe sets no leading offset. The kernel sets one,
// which is not read.
TEST(HopperCuteTest, ValuesAreDescribedAsCuteDoes) {
  for (const Tile& tile : kTiles) {
    const int part = tile.dim > 128 ? 64 : tile.dim;
    for (int column = 0; column < tile.dim; column += part) {
      const uint32_t at = column / 64 * PanelBytes(tile);
      for (int row = 0; row < tile.rows; row += 16) {
        const uint64_t leading = static_cast<uint64_t>(tile.rows * 8) << 16;
        const uint64_t moved = row * 8 + column / 64 * tile.rows * 8;
        const uint64_t descriptor = AcrossRows(at, PanelBytes(tile), row);
        ASSERT_EQ(descriptor, (0x4000004000000000u | leading) + moved) << tile.dim << " " << row;
        const MatrixLayout layout = DecodeDescriptor(descriptor);
        for (int n = 0; n < part; ++n) {
          for (int depth = 0; depth < 16; ++depth)
            ASSERT_EQ(static_cast<int>(PlaceAcrossRows(layout, n, depth)),
                      MnMajor(tile.rows, tile.dim, column + n, row + depth));
        }
      }
    }
  }
}

// The addresses at which TMA and the copies of queries store the matrices that the descriptors
// describe.
TEST(HopperCuteTest, PanelsAreSwizzledAsCuteDoes) {
  for (const Tile& tile : {kQueries[0], kQueries[1], kQueries[2], kTiles[0], kTiles[1]}) {
    for (int row = 0; row < tile.rows; ++row) {
      for (int column = 0; column < tile.dim; ++column) {
        const uint32_t at =
            column / kPanelColumns * PanelBytes(tile) + row * kPanelRowBytes + column % 64 * 2;
        ASSERT_EQ(static_cast<int>(Swizzle128(at)), KMajor(tile.rows, tile.dim, row, column));
        ASSERT_EQ(static_cast<int>(Swizzle128(at)), MnMajor(tile.rows, tile.dim, column, row));
      }
    }
  }
}

// The table above has the kernel's tiles. A barrier expects the bytes of its boxes.
template <int DIM>
void ExpectTile(const Tile& tile) {
  using Config = HopperConfig<Element::kBf16, DIM>;
  EXPECT_EQ(Config::kKeys, tile.rows);
  EXPECT_EQ(Config::kPart, DIM > 128 ? 64 : DIM);
  EXPECT_EQ(Config::kTileBytes, static_cast<uint32_t>(tile.rows * DIM * 2));
  EXPECT_LT(Config::kTileBytes, 1u << 20);  // Limit of mbarrier's tx-count.
  EXPECT_EQ(Config::kKeyPanelBytes, PanelBytes(tile));
  EXPECT_EQ(Config::kQueryPanelBytes, PanelBytes({64, DIM}));
}
TEST(HopperCuteTest, TilesAreThoseOfTheKernel) {
  ExpectTile<64>(kTiles[0]);
  ExpectTile<128>(kTiles[1]);
  ExpectTile<256>(kTiles[2]);
}

}  // namespace
}  // namespace annulus::cuda
