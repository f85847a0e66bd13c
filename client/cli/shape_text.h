#ifndef ANNULUS_CLIENT_CLI_SHAPE_TEXT_H_
#define ANNULUS_CLIENT_CLI_SHAPE_TEXT_H_

#include <string>

#include "attention/spec/spec.h"

namespace annulus {

// What is computed: "2 sequences of 128 tokens, 8 heads over 2 of 64, bf16, causal".
std::string ShapeText(const AttentionSpec& spec);

// A sentence where heads look like tokens, as in a file of [batch, heads, tokens, dim]; else empty.
std::string SwappedShapeNote(const AttentionSpec& spec);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_SHAPE_TEXT_H_
