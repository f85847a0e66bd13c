#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_GPU_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_GPU_H_

#include <cmath>
#include <cstring>

#include "attention/spec/dtype.h"
#include "tests/worker/kernel/cuda/emulator/emulated_block.h"
#include "tests/worker/kernel/cuda/emulator/warp_acts.h"
#include "worker/kernel/cuda/launch/forward_args.h"
#include "worker/kernel/cuda/launch/gpu_code.h"

namespace annulus::cuda {

// A thread of an EmulatedBlock, with the operations of PtxGpu
// (worker/kernel/cuda/sm80/ptx_gpu.cuh).
struct EmulatedGpu {
  EmulatedBlock* block;
  int thread;

  int Thread() const { return thread; }

  template <class T>
  T Load(const void* from) const {
    block->Read(thread, from, sizeof(T), alignof(T));
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
  }
  template <class T>
  void Store(void* to, T value) const {
    block->Write(thread, to, sizeof(T), alignof(T));
    std::memcpy(to, &value, sizeof(T));
  }
  template <class T>
  T LoadShared(uint32_t at) const {
    T value;
    std::memcpy(&value, block->ReadShared(thread, at, sizeof(T)), sizeof(T));
    return value;
  }
  template <class T>
  void StoreShared(uint32_t at, T value) const {
    std::memcpy(block->WriteShared(thread, at, sizeof(T)), &value, sizeof(T));
  }
  void CopyChunkLater(uint32_t to, const void* from, bool there) const {
    block->CopyLater(thread, to, from, there);
  }
  void CommitCopies() const { block->Commit(thread); }
  template <int PENDING>
  void WaitCopies() const {
    block->Wait(thread, PENDING);
  }

  void Sync() const { block->Barrier(thread, false); }
  bool SyncOr(bool value) const { return block->Barrier(thread, value); }
  void SyncWarp() const { block->WarpBarrier(thread); }
  template <class T>
  T ShuffleXor(T value, int lanes) const {
    ShuffleArgs args = {};
    std::memcpy(args.in, &value, sizeof(T));
    args.xor_lanes = lanes;
    block->Together(thread, ActShuffleXor, lanes, &args);
    std::memcpy(&value, args.out, sizeof(T));
    return value;
  }
  void LoadMatrices(uint32_t at, uint32_t (&m)[4]) const {
    MatrixArgs args = {block->ReadShared(thread, at, 16), m};
    block->Together(thread, ActLoadMatrices, 0, &args);
  }
  void LoadMatricesTransposed(uint32_t at, uint32_t (&m)[4]) const {
    MatrixArgs args = {block->ReadShared(thread, at, 16), m};
    block->Together(thread, ActLoadMatricesTransposed, 0, &args);
  }
  template <Element ELEMENT>
  void Mma(const uint32_t (&a)[4], const uint32_t (&b)[2], float (&c)[4]) const {
    MmaArgs args = {a, b, c};
    block->Together(thread, ELEMENT == Element::kBf16 ? ActMmaBf16 : ActMmaFp16, 0, &args);
  }

  static float Fma(float a, float b, float c) {
    return static_cast<float>(static_cast<double>(a) * b + c);
  }
  static float Max(float a, float b) { return std::fmax(a, b); }
  static float Exp2Nearly(float t) { return ApproximateExp2(t); }
  static float Exp(float x) { return std::exp(x); }
  static float Log(float x) { return std::log(x); }
  static double LogDouble(double x) { return std::log(x); }
  static double ExpDouble(double x) { return std::exp(x); }

  template <Element ELEMENT>
  static uint32_t Pack(float low, float high) {
    const auto round = ELEMENT == Element::kBf16 ? Fp32ToBf16 : Fp32ToFp16;
    return round(low) | static_cast<uint32_t>(round(high)) << 16;
  }
  template <Element ELEMENT>
  static float ToFloat(uint16_t bits) {
    return ELEMENT == Element::kBf16 ? Bf16ToFp32(bits) : Fp16ToFp32(bits);
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_GPU_H_
