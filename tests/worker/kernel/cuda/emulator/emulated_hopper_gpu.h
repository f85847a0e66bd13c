#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_HOPPER_GPU_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_HOPPER_GPU_H_

#include <cstring>
#include <type_traits>

#include "tests/worker/kernel/cuda/emulator/emulated_gpu.h"
#include "tests/worker/kernel/cuda/emulator/hopper_machine.h"
#include "worker/kernel/cuda/launch/hopper_config.h"

namespace annulus::cuda {

// A thread of a HopperMachine, with the operations of PtxHopperGpu (hopper_gpu.cuh).
struct EmulatedHopperGpu {
  HopperMachine* machine;
  int thread;
  int threads = kHopperThreads;
  int64_t blocks = 1;
  int Thread() const { return thread; }
  int Anew(int value) const { return value; }
  int Uniform(int value) const { return machine->Uniform(thread, value); }
  int64_t Blocks() const { return blocks; }
  int32_t CountUp(const void* at) const { return machine->CountUp(thread, at); }

  template <class T>
  T Load(const void* from) const {
    machine->Read(thread, from, sizeof(T), alignof(T));
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
  }
  template <class T>
  void Store(void* to, T value) const {
    CheckKnown(value);
    machine->Write(thread, to, sizeof(T), alignof(T));
    std::memcpy(to, &value, sizeof(T));
  }
  template <class T>
  T LoadShared(uint32_t at) const {
    T value;
    std::memcpy(&value, machine->ReadShared(thread, at, sizeof(T)), sizeof(T));
    return value;
  }
  template <class T>
  void StoreShared(uint32_t at, T value) const {
    CheckKnown(value);
    std::memcpy(machine->WriteShared(thread, at, sizeof(T)), &value, sizeof(T));
  }

  void CopyChunkLater(uint32_t to, const void* from, bool there) const {
    machine->CopyChunkLater(thread, to, from, there);
  }
  void CommitCopies() const {}
  template <int PENDING>
  void WaitCopies() const {
    static_assert(PENDING == 0, "the emulator knows no other");
    machine->WaitCopies(thread);
  }

  void Sync() const { machine->Meet(thread, -1, 0, threads, false); }
  void SyncWarp() const { machine->Meet(thread, -2 - thread / 32, thread / 32 * 32, 32, false); }
  // Barrier b belongs to group b, as in the kernel.
  void SyncGroup(int barrier) const { SyncGroupOr(barrier, false); }
  bool SyncGroupOr(int barrier, bool value) const {
    return machine->Meet(thread, barrier, barrier * kGroupThreads, kGroupThreads, value);
  }
  void SyncConsumers() const { machine->Meet(thread, 5, kGroupThreads, 2 * kGroupThreads, false); }
  // Group 0 comes after the group that loads tiles.
  void AwaitTurn(int group) const { machine->AwaitTurn(thread, 1 + group); }
  void PassTurn(int group) const { machine->PassTurn(thread, 1 + group); }
  template <class T>
  T ShuffleXor(T value, int lanes) const {
    CheckKnown(value);
    ShuffleArgs args = {};
    std::memcpy(args.in, &value, sizeof(T));
    args.xor_lanes = lanes;
    machine->Together(thread, ActShuffleXor, lanes, &args);
    std::memcpy(&value, args.out, sizeof(T));
    return value;
  }
  template <int REGISTERS>
  void ReleaseRegisters() const {}
  template <int REGISTERS>
  void TakeRegisters() const {}

  void MakeBarrier(uint32_t at, int arrivals) const { machine->MakeBarrier(thread, at, arrivals); }
  void FenceBarriers() const { machine->FenceBarriers(thread); }
  void Arrive(uint32_t at) const { machine->Arrive(thread, at, 0); }
  void ArriveExpecting(uint32_t at, uint32_t bytes) const { machine->Arrive(thread, at, bytes); }
  void AwaitBarrier(uint32_t at, uint32_t parity) const {
    machine->AwaitBarrier(thread, at, parity);
  }
  void AcquireMap(const void* map) const { machine->AcquireMap(thread, map); }
  void LoadBox(uint32_t to, const void* map, int32_t column, int32_t head, int32_t row,
               uint32_t barrier) const {
    machine->LoadBox(thread, to, map, column, head, row, barrier);
  }
  void FenceAsync() const { machine->FenceAsync(thread); }

  uint64_t Descriptor(uint64_t of_offset) const { return of_offset; }
  template <class... REGISTERS>
  void FenceProducts(REGISTERS&... registers) const {
    (machine->HoldForProducts(thread, &registers, sizeof(registers)), ...);
    machine->FenceProducts(thread);
  }
  template <Element ELEMENT, int COLUMNS>
  void MultiplyRows(uint64_t a, uint64_t b, float (&sums)[COLUMNS / 2], bool add) const {
    machine->Multiply(thread, {ELEMENT, COLUMNS, a, b, add}, nullptr, sums);
  }
  template <Element ELEMENT, int COLUMNS>
  void MultiplyColumns(const uint32_t (&a)[4], uint64_t b, float (&sums)[COLUMNS / 2],
                       bool add) const {
    machine->Multiply(thread, {ELEMENT, COLUMNS, 0, b, add}, a, sums);
  }
  void CommitProducts() const { machine->CommitProducts(thread); }
  template <int BUT, class... REGISTERS>
  void AwaitProductsBut(REGISTERS&... registers) const {
    machine->AwaitProducts(thread, BUT);
    (machine->CheckKnown(thread, &registers, sizeof(registers)), ...);
  }
  template <class... REGISTERS>
  void AwaitProducts(REGISTERS&... registers) const {
    AwaitProductsBut<0>(registers...);
  }
  void Finish(const float (&values)[2]) const {
    machine->CheckKnown(thread, values, sizeof(values));
  }
  static float Max(float a, float b) { return EmulatedGpu::Max(a, b); }
  static float Fma(float a, float b, float c) { return EmulatedGpu::Fma(a, b, c); }
  static float Exp2Nearly(float t) { return EmulatedGpu::Exp2Nearly(t); }
  template <Element ELEMENT>
  static uint32_t Pack(float low, float high) {
    return EmulatedGpu::Pack<ELEMENT>(low, high);
  }
  template <Element ELEMENT>
  static float ToFloat(uint16_t bits) {
    return EmulatedGpu::ToFloat<ELEMENT>(bits);
  }

 private:
  template <class T>
  void CheckKnown(const T& value) const {
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, TwoFloats>)
      machine->CheckKnown(thread, &value, sizeof(T));
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_HOPPER_GPU_H_
