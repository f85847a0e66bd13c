#ifndef ANNULUS_TESTS_CUDA_SCALE_H_
#define ANNULUS_TESTS_CUDA_SCALE_H_

#include <string>
#include <vector>

namespace annulus {

// Multiplies on the GPU. Returns the name of the CUDA error, or "".
std::string ScaleOnGpu(float factor, std::vector<float>* values);

}  // namespace annulus

#endif  // ANNULUS_TESTS_CUDA_SCALE_H_
