#ifndef ANNULUS_TESTS_REFERENCE_FROM_SPEC_H_
#define ANNULUS_TESTS_REFERENCE_FROM_SPEC_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/spec/spec.h"
#include "tests/reference/reference_attention.h"

namespace annulus::reference {

// The bridge from the product's values to the reference's: fields are copied, nothing is computed
// by the product.

Precision PrecisionOf(DataType dtype);  // fp32, fp16 or bf16.
// What a job's naive answer computes in: that of its type, or kBf16x3.
Precision ArithmeticOf(const AttentionSpec& spec);

// The job of a valid spec, with q, k and v of the right size and zero.
Input InputOf(const AttentionSpec& spec);

// Fills q, k and v with normal numbers (deviation `deviation`), exact in `precision`. Same seed,
// same numbers.
void FillNormal(uint64_t seed, Precision precision, double deviation, Input* input);

// Fills the bias, the bit mask and the offset of the LSE that a spec asks for: normal numbers exact
// in the bias' type, one in ten −infinity, and one bit in four 0. Pure functions of the seed and
// the pair.
void FillPairs(uint64_t seed, const AttentionSpec& spec, Input* input);

// The tensors of bias and bit mask, [rows, heads, columns], with NaN and 0 past a sequence's keys;
// empty where a spec has none.
std::vector<std::byte> BiasBytes(const AttentionSpec& spec, const Input& input);
std::vector<std::byte> BitBytes(const AttentionSpec& spec, const Input& input);
// [rows, heads] of fp32.
std::vector<std::byte> OffsetBytes(const AttentionSpec& spec, const Input& input);

// Elements as they lie in memory and on the wire, little-endian; and back.
std::vector<std::byte> BytesOf(Precision precision, const std::vector<double>& values);
std::vector<float> FloatsOf(Precision precision, const std::byte* bytes, size_t count);

}  // namespace annulus::reference

#endif  // ANNULUS_TESTS_REFERENCE_FROM_SPEC_H_
