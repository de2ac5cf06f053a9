#include "data/gguf_blocks.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "launch/check.h"

namespace draftsmith {
namespace {

float half_at(const uint8_t* in) {
  uint16_t bits;
  std::memcpy(&bits, in, 2);
  return static_cast<float>(c10::Half(bits, c10::Half::from_bits()));
}

void expand_f32(const uint8_t* in, int64_t blocks, float* out) {
  std::memcpy(out, in, static_cast<size_t>(blocks) * 4);
}

void expand_f16(const uint8_t* in, int64_t blocks, float* out) {
  for (int64_t i = 0; i < blocks; ++i) out[i] = half_at(in + 2 * i);
}

void expand_bf16(const uint8_t* in, int64_t blocks, float* out) {
  for (int64_t i = 0; i < blocks; ++i) {
    uint16_t bits;
    std::memcpy(&bits, in + 2 * i, 2);
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    std::memcpy(out + i, &wide, 4);
  }
}

// The five formats of 32 elements: scale d, perhaps minimum m, perhaps a fifth bit of each element, then 16 bytes whose
// low halves are elements 0..15 and whose high halves are elements 16..31.
template <bool kMinimum, bool kFifthBit>
void expand_nibbles(const uint8_t* in, int64_t blocks, float* out) {
  constexpr int kHeader = 2 + (kMinimum ? 2 : 0) + (kFifthBit ? 4 : 0);
  constexpr int kCentre = kMinimum ? 0 : (kFifthBit ? 16 : 8);
  for (int64_t block = 0; block < blocks; ++block, in += kHeader + 16, out += 32) {
    const float d = half_at(in), m = kMinimum ? half_at(in + 2) : 0.0f;
    uint32_t fifth = 0;
    if (kFifthBit) std::memcpy(&fifth, in + kHeader - 4, 4);
    const uint8_t* nibbles = in + kHeader;
    for (int j = 0; j < 16; ++j) {
      const int low = (nibbles[j] & 15) | static_cast<int>(((fifth >> j) & 1) << 4);
      const int high = (nibbles[j] >> 4) | static_cast<int>(((fifth >> (j + 16)) & 1) << 4);
      out[j] = d * static_cast<float>(low - kCentre);
      out[j + 16] = d * static_cast<float>(high - kCentre);
      if (kMinimum) {
        out[j] += m;
        out[j + 16] += m;
      }
    }
  }
}

void expand_q8_0(const uint8_t* in, int64_t blocks, float* out) {
  for (int64_t block = 0; block < blocks; ++block, in += 34, out += 32) {
    const float d = half_at(in);
    for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(static_cast<int8_t>(in[2 + j]));
  }
}

// Six-bit scale and minimum of sub-block `j` (of 8) out of the 12 bytes that Q4_K and Q5_K share.
void scale_and_minimum(const uint8_t* packed, int j, int& scale, int& minimum) {
  if (j < 4) {
    scale = packed[j] & 63;
    minimum = packed[j + 4] & 63;
  } else {
    scale = (packed[j + 4] & 15) | ((packed[j - 4] >> 6) << 4);
    minimum = (packed[j + 4] >> 4) | ((packed[j] >> 6) << 4);
  }
}

// Super-blocks of 256: d, dmin, 12 bytes of scales, (Q5_K: 32 bytes of fifth bits,) 128 bytes. Each 32 of those bytes
// hold two sub-blocks of 32 elements, the low halves first.
template <bool kFifthBit>
void expand_k(const uint8_t* in, int64_t blocks, float* out) {
  constexpr int kBytes = 2 + 2 + 12 + (kFifthBit ? 32 : 0) + 128;
  for (int64_t block = 0; block < blocks; ++block, in += kBytes) {
    const float d = half_at(in), dmin = half_at(in + 2);
    const uint8_t* fifth = in + 16;
    const uint8_t* nibbles = in + kBytes - 128;
    for (int j = 0; j < 8; ++j, out += 32) {
      int scale, minimum;
      scale_and_minimum(in + 4, j, scale, minimum);
      const float step = d * static_cast<float>(scale), low = dmin * static_cast<float>(minimum);
      for (int i = 0; i < 32; ++i) {
        int q = (nibbles[32 * (j / 2) + i] >> (4 * (j % 2))) & 15;
        if (kFifthBit) q |= ((fifth[i] >> j) & 1) << 4;
        out[i] = step * static_cast<float>(q) - low;
      }
    }
  }
}

// Q6_K, super-blocks of 256: 128 bytes of low four bits, 64 bytes of high two bits, 16 signed scales, d. In each half
// of 128 elements, element 32*g + i (g < 4) has its low bits in byte 32*(g%2) + i (half g/2) and its high bits in byte
// i (pair g).
void expand_q6_k(const uint8_t* in, int64_t blocks, float* out) {
  for (int64_t block = 0; block < blocks; ++block, in += 210) {
    const float d = half_at(in + 208);
    for (int half = 0; half < 2; ++half) {
      const uint8_t *low = in + 64 * half, *high = in + 128 + 32 * half, *scales = in + 192 + 8 * half;
      for (int g = 0; g < 4; ++g, out += 32) {
        for (int i = 0; i < 32; ++i) {
          const int q = ((low[32 * (g % 2) + i] >> (4 * (g / 2))) & 15) | (((high[i] >> (2 * g)) & 3) << 4);
          const float step = d * static_cast<float>(static_cast<int8_t>(scales[2 * g + i / 16]));
          out[i] = step * static_cast<float>(q - 32);
        }
      }
    }
  }
}

constexpr BlockFormat kFormats[] = {
    {0, "F32", 1, 4, expand_f32},
    {1, "F16", 1, 2, expand_f16},
    {2, "Q4_0", 32, 18, expand_nibbles<false, false>},
    {3, "Q4_1", 32, 20, expand_nibbles<true, false>},
    {6, "Q5_0", 32, 22, expand_nibbles<false, true>},
    {7, "Q5_1", 32, 24, expand_nibbles<true, true>},
    {8, "Q8_0", 32, 34, expand_q8_0},
    {9, "Q8_1", 32, 40, nullptr},
    {10, "Q2_K", 256, 84, nullptr},
    {11, "Q3_K", 256, 110, nullptr},
    {12, "Q4_K", 256, 144, expand_k<false>},
    {13, "Q5_K", 256, 176, expand_k<true>},
    {14, "Q6_K", 256, 210, expand_q6_k},
    {15, "Q8_K", 256, 292, nullptr},
    {16, "IQ2_XXS", 256, 66, nullptr},
    {17, "IQ2_XS", 256, 74, nullptr},
    {18, "IQ3_XXS", 256, 98, nullptr},
    {19, "IQ1_S", 256, 50, nullptr},
    {20, "IQ4_NL", 32, 18, nullptr},
    {21, "IQ3_S", 256, 110, nullptr},
    {22, "IQ2_S", 256, 82, nullptr},
    {23, "IQ4_XS", 256, 136, nullptr},
    {24, "I8", 1, 1, nullptr},
    {25, "I16", 1, 2, nullptr},
    {26, "I32", 1, 4, nullptr},
    {27, "I64", 1, 8, nullptr},
    {28, "F64", 1, 8, nullptr},
    {29, "IQ1_M", 256, 56, nullptr},
    {30, "BF16", 1, 2, expand_bf16},
    {34, "TQ1_0", 256, 54, nullptr},
    {35, "TQ2_0", 256, 66, nullptr},
    {39, "MXFP4", 32, 17, nullptr},
};

}  // namespace

const BlockFormat* block_format(uint32_t type) {
  const auto* found =
      std::find_if(std::begin(kFormats), std::end(kFormats), [&](const auto& f) { return f.type == type; });
  return found == std::end(kFormats) ? nullptr : found;
}

std::string block_format_name(uint32_t type) {
  const BlockFormat* format = block_format(type);
  return format ? format->name : fmt::format("type {} (unknown)", type);
}

std::string expandable_formats() {
  std::string out;
  for (const BlockFormat& format : kFormats) {
    if (format.expand) out += (out.empty() ? "" : ", ") + std::string(format.name);
  }
  return out;
}

void pack_q8_0(const float* in, int64_t blocks, uint8_t* out) {
  for (int64_t block = 0; block < blocks; ++block, in += 32, out += 34) {
    float largest = 0;
    for (int j = 0; j < 32; ++j) largest = std::max(largest, std::abs(in[j]));
    const float d = largest / 127.0f, inverse = d == 0 ? 0.0f : 1.0f / d;
    const uint16_t bits = c10::Half(d).x;
    std::memcpy(out, &bits, 2);
    for (int j = 0; j < 32; ++j) out[2 + j] = static_cast<uint8_t>(static_cast<int8_t>(std::round(in[j] * inverse)));
  }
}

}  // namespace draftsmith
