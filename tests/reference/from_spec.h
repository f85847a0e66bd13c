#ifndef ANNULUS_TESTS_REFERENCE_FROM_SPEC_H_
#define ANNULUS_TESTS_REFERENCE_FROM_SPEC_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/spec/spec.h"
#include "tests/reference/reference_attention.h"

namespace annulus::reference {

// Converts the product's types to the reference's. Only copies fields: the product computes
// nothing.

Precision PrecisionOf(DataType dtype);  // fp32, fp16 or bf16.
// The arithmetic of the job's naive answer: that of its type, or kBf16x3.
Precision ArithmeticOf(const AttentionSpec& spec);

// The input of a valid spec, with q, k and v of the right size, all zero.
Input InputOf(const AttentionSpec& spec);

// Fills q, k and v with normal numbers (standard deviation `deviation`) that are exact in
// `precision`. The same seed gives the same numbers.
void FillNormal(uint64_t seed, Precision precision, double deviation, Input* input);

// Fills the spec's bias, bit mask and LSE offset: normal numbers exact in the bias' type, one in
// ten −infinity; one bit in four is 0. Pure functions of the seed and the pair.
void FillPairs(uint64_t seed, const AttentionSpec& spec, Input* input);

// The tensors of bias and bit mask, [rows, heads, columns], with NaN and 0 after a sequence's keys.
// Empty if a spec has none.
std::vector<std::byte> BiasBytes(const AttentionSpec& spec, const Input& input);
std::vector<std::byte> BitBytes(const AttentionSpec& spec, const Input& input);
// [rows, heads] in fp32.
std::vector<std::byte> OffsetBytes(const AttentionSpec& spec, const Input& input);

// Elements as in memory and on the wire, little-endian; and back.
std::vector<std::byte> BytesOf(Precision precision, const std::vector<double>& values);
std::vector<float> FloatsOf(Precision precision, const std::byte* bytes, size_t count);

}  // namespace annulus::reference

#endif  // ANNULUS_TESTS_REFERENCE_FROM_SPEC_H_
