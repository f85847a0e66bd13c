#ifndef ANNULUS_TESTS_REFERENCE_NORMAL_NUMBERS_H_
#define ANNULUS_TESTS_REFERENCE_NORMAL_NUMBERS_H_

#include <cmath>
#include <cstdint>
#include <random>
#include <utility>

namespace annulus::reference {

// Normal numbers of mean 0 and deviation 1, bit for bit those of libstdc++'s
// std::normal_distribution<double> over std::mt19937_64. Without -O2, libstdc++ takes two
// logarithms of a constant for each uniform number, which slowed tests under sanitizers.
class NormalNumbers {
 public:
  explicit NormalNumbers(uint64_t seed) : random_(seed) {}

  double Next() {
    if (std::exchange(has_saved_, false)) return saved_;
    double x, y, square;
    do {  // Marsaglia's polar method.
      x = 2.0 * Uniform() - 1.0;
      y = 2.0 * Uniform() - 1.0;
      square = x * x + y * y;
    } while (square > 1.0 || square == 0.0);
    const double factor = std::sqrt(-2 * std::log(square) / square);
    saved_ = x * factor;
    has_saved_ = true;
    return y * factor;
  }

 private:
  // In [0, 1).
  double Uniform() {
    const double uniform = static_cast<double>(random_()) * 0x1p-64;
    return uniform < 1.0 ? uniform : 1.0 - 0x1p-53;
  }

  std::mt19937_64 random_;
  double saved_ = 0;
  bool has_saved_ = false;
};

}  // namespace annulus::reference

#endif  // ANNULUS_TESTS_REFERENCE_NORMAL_NUMBERS_H_
