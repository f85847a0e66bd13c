// Graphs, as far as the real library accepts them without a GPU.

#include "worker/kernel/cuda/cudnn/cudnn_graph.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/kernel/cuda/cudnn/cudnn_without_gpu.h"

namespace annulus::cuda {
namespace {

using testing::HasSubstr;

CudnnShape Shape(DataType dtype, int32_t dim, int32_t value_dim, int32_t group, int64_t rows,
                 int64_t keys) {
  CudnnShape shape;
  shape.dtype = dtype;
  shape.head_dim = dim;
  shape.value_dim = value_dim;
  shape.kv_heads = 2;
  shape.q_heads = shape.kv_heads * group;
  shape.rows = rows;
  shape.keys = keys;
  shape.q_stride = int64_t{shape.q_heads} * dim;
  shape.kv_stride = int64_t{shape.kv_heads} * (dim + value_dim);
  shape.out_stride = (int64_t{shape.q_heads} * value_dim + 8 + 2 * shape.q_heads + 3) / 4 * 4;
  return shape;
}

std::string Describe(const CudnnShape& s) {
  return absl::StrCat(DataTypeName(s.dtype), " ", s.head_dim, "/", s.value_dim, ", ", s.q_heads,
                      " of ", s.kv_heads, " heads, ", s.rows, " x ", s.keys);
}

class CudnnGraphTest : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = CudnnWithoutGpu::Open(ANNULUS_CUDA_HOME);
    if (absl::IsFailedPrecondition(opened.status())) GTEST_SKIP() << opened.status().message();
    ASSERT_TRUE(opened.ok()) << opened.status();
    cudnn_ = std::make_unique<CudnnWithoutGpu>(*std::move(opened));
  }
  std::unique_ptr<CudnnWithoutGpu> cudnn_;
};

TEST_F(CudnnGraphTest, WhatIsServedIsSupported) {
  std::vector<std::pair<int32_t, int32_t>> dims = {{40, 72},   {64, 128}, {128, 64},
                                                   {192, 128}, {256, 8},  {8, 256}};
  for (int32_t dim = 8; dim <= 256; dim += 8) dims.emplace_back(dim, dim);
  const std::pair<int64_t, int64_t> sizes[] = {{1, 1}, {1000, 3001}, {8192, 131072}};
  int checked = 0;
  for (const DataType dtype : {DataType::kBf16, DataType::kFp16}) {
    for (const auto& [dim, value_dim] : dims) {
      for (const int32_t group : {1, 3, 8}) {
        const auto& [rows, keys] = sizes[(checked + checked / 3) % 3];
        ++checked;
        const CudnnShape shape = Shape(dtype, dim, value_dim, group, rows, keys);
        const auto graph = CudnnGraph::Make(cudnn_->target(), shape);
        EXPECT_TRUE(graph.ok()) << Describe(shape) << ": " << graph.status();
      }
    }
  }
  for (const auto& [rows, keys] : sizes) {
    for (const int32_t group : {1, 3, 8}) {
      const CudnnShape shape = Shape(DataType::kBf16, 128, 128, group, rows, keys);
      const auto graph = CudnnGraph::Make(cudnn_->target(), shape);
      EXPECT_TRUE(graph.ok()) << Describe(shape) << ": " << graph.status();
    }
  }
}

TEST_F(CudnnGraphTest, WhatItDoesNotSupportIsRefused) {
  const auto graph =
      CudnnGraph::Make(cudnn_->target(), Shape(DataType::kBf16, 36, 64, 1, 100, 100));
  EXPECT_EQ(graph.status().code(), absl::StatusCode::kUnimplemented);
}

// There is no GPU to load it into.
TEST_F(CudnnGraphTest, AKernelIsCompiled) {
  const CudnnTarget target = cudnn_->target();
  for (const DataType dtype : {DataType::kBf16, DataType::kFp16}) {
    auto graph = CudnnGraph::Make(target, Shape(dtype, 128, 128, 4, 4096, 4096));
    ASSERT_TRUE(graph.ok()) << graph.status();
    const auto kernels = CudnnKernels::Make(target.api, *graph);
    ASSERT_TRUE(kernels.ok()) << kernels.status();
    const auto plan = CudnnPlan::Make(target, *std::move(graph), *kernels);
    ASSERT_FALSE(plan.ok());
    EXPECT_THAT(std::string(plan.status().message()), HasSubstr("cuLibraryLoadData"));
  }
}

}  // namespace
}  // namespace annulus::cuda
