#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_HOPPER_SHARED_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_HOPPER_SHARED_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace annulus::cuda {

// A vector clock: what of each actor (threads, and what brings data for a barrier) lies behind.
using Clock = std::vector<uint32_t>;
void Join(Clock& into, const Clock& other);

// Who does something, and what lies behind it.
struct Actor {
  int number = 0;
  const Clock* clock = nullptr;
};

// What a product of a group of threads reads lies behind a thread once it has waited for it.
struct ProductReads {
  int first_thread = 0;
  std::vector<uint32_t> waited;  // When each thread of the group did; 0: it did not.
};

// The shared memory of a block whose asynchronous parts read and write it behind its threads' back.
// A fault's text where something may be used that is not ordered behind what was done with it, in
// whatever order things happened here; empty: it may. Four bytes at a time.
class HopperShared {
 public:
  HopperShared(uint32_t bytes, int threads);

  std::byte* data() { return bytes_.data(); }

  // By threads, at any address that is a multiple of `size`.
  std::string Read(uint32_t at, uint32_t size, const Actor& actor);
  std::string Write(uint32_t at, uint32_t size, const Actor& actor);
  // The thread's writes may be read by what is asynchronous and ordered behind this.
  void Fence(const Actor& actor);

  // A write that is done at some time between now and Land. What it does not yet hold is NaN.
  std::string BeginCopy(uint32_t at, uint32_t size, const Actor& actor);
  void Land(uint32_t at, uint32_t size, int actor, uint32_t time);
  // By a product that began behind `clock`. `group`: 0 or 1.
  std::string ReadByProduct(uint32_t at, uint32_t size, const Clock& clock, int group,
                            const std::shared_ptr<ProductReads>& reads);

 private:
  struct Reader {
    int actor;
    uint32_t time;
  };
  struct Cell {
    int writer = -1;
    uint32_t time = 0;
    uint32_t fences = 0;  // Of the writer, before it wrote.
    bool by_thread = false, coming = false;
    std::shared_ptr<ProductReads> products[2];  // The last of each group.
    std::vector<Reader> readers;
  };
  std::string Range(uint32_t at, uint32_t size) const;
  std::string CheckWrite(uint32_t at, Cell& cell, const Actor& actor);
  bool Fenced(const Cell& cell, const Clock& clock) const;

  std::vector<std::byte> bytes_;
  std::vector<Cell> cells_;
  std::vector<std::vector<uint32_t>> fences_;  // Of each thread, when.
  // The last that CheckWrite found to be over for an actor.
  const ProductReads* over_ = nullptr;
  const Clock* over_for_ = nullptr;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_HOPPER_SHARED_H_
