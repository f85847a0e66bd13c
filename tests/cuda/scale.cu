#include <cuda_runtime.h>

#include "tests/cuda/scale.h"

namespace annulus {
namespace {

__global__ void Scale(float factor, float* values, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) values[i] *= factor;
}

}  // namespace

std::string ScaleOnGpu(float factor, std::vector<float>* values) {
  const size_t bytes = values->size() * sizeof(float);
  float* memory = nullptr;
  cudaError_t error = cudaMalloc(&memory, bytes);
  if (error != cudaSuccess) return cudaGetErrorName(error);
  cudaMemcpy(memory, values->data(), bytes, cudaMemcpyHostToDevice);
  const int count = static_cast<int>(values->size());
  Scale<<<(count + 255) / 256, 256>>>(factor, memory, count);
  error = cudaMemcpy(values->data(), memory, bytes, cudaMemcpyDeviceToHost);
  cudaFree(memory);
  return error == cudaSuccess ? "" : cudaGetErrorName(error);
}

}  // namespace annulus
