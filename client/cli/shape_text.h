#ifndef ANNULUS_CLIENT_CLI_SHAPE_TEXT_H_
#define ANNULUS_CLIENT_CLI_SHAPE_TEXT_H_

#include <string>

#include "attention/spec/spec.h"

namespace annulus {

// The computation in words: "2 sequences of 128 tokens, 8 heads over 2 of 64, bf16, causal".
std::string ShapeText(const AttentionSpec& spec);

// A warning sentence if heads and tokens seem to be swapped, as in a file of [batch, heads, tokens,
// dim]. Else empty.
std::string SwappedShapeNote(const AttentionSpec& spec);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_SHAPE_TEXT_H_
