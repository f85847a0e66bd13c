// The arguments of the driver's function for a tensor map; a stand-in replaces the driver.
#include "worker/kernel/cuda/sm90/encode_map.h"

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "worker/kernel/cuda/launch/hopper_config.h"

namespace annulus::cuda {
namespace {

CUresult g_result = CUDA_SUCCESS;
bool g_aligned = false;

struct Told {
  CUtensorMapDataType type;
  void* base;
  std::vector<cuuint64_t> dims, strides;
  std::vector<cuuint32_t> box, steps;
  CUtensorMapInterleave interleave;
  CUtensorMapSwizzle swizzle;
  CUtensorMapL2promotion promotion;
  CUtensorMapFloatOOBfill fill;
};
Told g_told;

CUresult Encode(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* base,
                const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                const cuuint32_t* steps, CUtensorMapInterleave interleave,
                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                CUtensorMapFloatOOBfill fill) {
  g_told = {type,
            base,
            {dims, dims + rank},
            {strides, strides + rank - 1},
            {box, box + rank},
            {steps, steps + rank},
            interleave,
            swizzle,
            promotion,
            fill};
  g_aligned = reinterpret_cast<uintptr_t>(map) % alignof(CUtensorMap) == 0;
  if (!g_aligned) return CUDA_ERROR_INVALID_VALUE;
  if (g_result == CUDA_SUCCESS) std::memset(static_cast<void*>(map), 7, sizeof(*map));
  return g_result;
}

TEST(EncodeMapTest, AMapGoesToAnyAddress) {
  g_result = CUDA_SUCCESS;
  for (const int odd : {0, 1, 16, 63}) {
    std::vector<std::byte> to(kMapBytes + 64, std::byte{1});
    int refusal = -1;
    EXPECT_EQ(EncodeTensorMapBy(reinterpret_cast<void*>(&Encode), {}, to.data() + odd, &refusal),
              kCudaSuccess);
    EXPECT_TRUE(g_aligned);
    EXPECT_EQ(refusal, 0);
    for (int64_t i = 0; i < static_cast<int64_t>(to.size()); ++i)
      EXPECT_EQ(to[i], std::byte(i >= odd && i < odd + kMapBytes ? 7 : 1)) << odd << " " << i;
  }
}

// Except for the order of heads and rows, these are the arguments of CuTe's make_tma_copy (CUTLASS
// 4.2) for the same tensor with Layout_K_SW128_Atom<bfloat16_t> of (96, 64). Ours is the order in
// which each stride is a multiple of the one before, as cuda.h requires.
TEST(EncodeMapTest, TheDriverIsToldWhatCuteTellsIt) {
  g_result = CUDA_SUCCESS;
  alignas(16) std::byte tensor[16];
  std::byte to[kMapBytes];
  TensorMapSpec map;
  map.base = tensor;
  map.columns = 72;
  map.heads = 3;
  map.rows = 50;
  map.box_rows = 96;
  map.head_bytes = 144;
  map.row_bytes = 864;
  int refusal = 0;
  ASSERT_EQ(EncodeTensorMapBy(reinterpret_cast<void*>(&Encode), map, to, &refusal), kCudaSuccess);
  EXPECT_EQ(g_told.type, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
  EXPECT_EQ(g_told.base, tensor);
  EXPECT_EQ(g_told.dims, (std::vector<cuuint64_t>{72, 3, 50}));
  EXPECT_EQ(g_told.strides, (std::vector<cuuint64_t>{144, 864}));
  EXPECT_EQ(g_told.box, (std::vector<cuuint32_t>{64, 1, 96}));
  EXPECT_EQ(g_told.steps, (std::vector<cuuint32_t>{1, 1, 1}));
  EXPECT_EQ(g_told.interleave, CU_TENSOR_MAP_INTERLEAVE_NONE);
  EXPECT_EQ(g_told.swizzle, CU_TENSOR_MAP_SWIZZLE_128B);
  EXPECT_EQ(g_told.promotion, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
  EXPECT_EQ(g_told.fill, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

TEST(EncodeMapTest, ARefusalIsTold) {
  g_result = CUDA_ERROR_NOT_SUPPORTED;
  std::byte to[kMapBytes] = {};
  int refusal = 0;
  EXPECT_NE(EncodeTensorMapBy(reinterpret_cast<void*>(&Encode), {}, to, &refusal), kCudaSuccess);
  EXPECT_EQ(refusal, static_cast<int>(CUDA_ERROR_NOT_SUPPORTED));
}

}  // namespace
}  // namespace annulus::cuda
