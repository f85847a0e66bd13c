#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_HOPPER_SHARED_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_HOPPER_SHARED_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace annulus::cuda {

// A vector clock: for each actor (threads, and parts that load data for a barrier), the time up to
// which its operations are ordered before.
using Clock = std::vector<uint32_t>;
void Join(Clock& into, const Clock& other);

// An actor, and the operations ordered before its next one.
struct Actor {
  int number = 0;
  const Clock* clock = nullptr;
};

// Reads by a product of a group of threads. They are ordered before a thread once it has waited for
// the product.
struct ProductReads {
  int first_thread = 0;
  std::vector<uint32_t> waited;  // The time at which each thread of the group waited; 0: not yet.
};

// The shared memory of a block with asynchronous reads and writes. Returns a fault's text if an
// access is not ordered after earlier ones, in whatever order they happened here; "" if it is.
// Checks four bytes at a time.
class HopperShared {
 public:
  HopperShared(uint32_t bytes, int threads);

  std::byte* data() { return bytes_.data(); }

  // By threads, at any address that is a multiple of `size`.
  std::string Read(uint32_t at, uint32_t size, const Actor& actor);
  std::string Write(uint32_t at, uint32_t size, const Actor& actor);
  // The thread's writes may then be read by asynchronous operations ordered after this.
  void Fence(const Actor& actor);

  // A write that happens at some time between now and Land. Until then the memory is NaN.
  std::string BeginCopy(uint32_t at, uint32_t size, const Actor& actor);
  void Land(uint32_t at, uint32_t size, int actor, uint32_t time);
  // By a product that began after `clock`. `group`: 0 or 1.
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
    uint32_t fences = 0;  // The writer's fences before it wrote.
    bool by_thread = false, coming = false;
    std::shared_ptr<ProductReads> products[2];  // The last product of each group.
    std::vector<Reader> readers;
  };
  std::string Range(uint32_t at, uint32_t size) const;
  std::string CheckWrite(uint32_t at, Cell& cell, const Actor& actor);
  bool Fenced(const Cell& cell, const Clock& clock) const;

  std::vector<std::byte> bytes_;
  std::vector<Cell> cells_;
  std::vector<std::vector<uint32_t>> fences_;  // Times, by thread.
  // The last reads that CheckWrite found complete for an actor.
  const ProductReads* over_ = nullptr;
  const Clock* over_for_ = nullptr;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_HOPPER_SHARED_H_
