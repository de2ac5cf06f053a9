// ggml's storage formats of tensor elements: how many bytes, and how they become fp32.
//
// A format stores `elements` consecutive elements of a row in `bytes` bytes, little endian. Layouts as in ggml
// (ggml-common.h, dequantize_row_*); tests compare each with the Python `gguf` package.
#pragma once

#include <cstdint>
#include <string>

namespace draftsmith {

struct BlockFormat {
  uint32_t type;     // ggml type id
  const char* name;  // ggml's name
  int64_t elements, bytes;
  // `blocks` blocks at `in` -> elements * blocks floats. Null for a type that is known by name and size but not
  // expanded.
  void (*expand)(const uint8_t* in, int64_t blocks, float* out);
};

// Null for an id that ggml does not use.
const BlockFormat* block_format(uint32_t type);

// "Q4_1", or "type 99 (unknown)".
std::string block_format_name(uint32_t type);

// Names of the formats that can be expanded, for error messages.
std::string expandable_formats();

// fp32 -> Q8_0: 34 bytes per 32 elements, the scale is the largest magnitude over 127, halves round away from zero
// (ggml's reference).
void pack_q8_0(const float* in, int64_t blocks, uint8_t* out);

}  // namespace draftsmith
