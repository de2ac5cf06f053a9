#include "data/show.h"

#include <algorithm>

#include "launch/log.h"

namespace draftsmith {

std::string marked_sample(const Tokenizer& tokenizer, const Sample& sample, bool colour) {
  const std::string open = colour ? "\x1b[32m" : "【", close = colour ? "\x1b[0m" : "】";
  std::string out;  // a character split over tokens appears with the token that completes it
  StreamDecoder decoder(tokenizer, /*skip_special=*/false);
  bool inside = false;
  for (size_t t = 0; t < sample.tokens.size(); ++t) {
    const std::string piece = decoder.push(sample.tokens[t]);
    const bool supervised = sample.mask[t] != 0;
    if (supervised != inside) {
      out += supervised ? open : close;
      inside = supervised;
    } else if (t > 0) {
      out += "·";
    }
    for (const char c : piece) {
      if (c == '\n')
        out += "⏎\n";
      else
        out += c;
    }
  }
  out += decoder.finish();
  return inside ? out + close : out;
}

void show_sample(const Tokenizer& tokenizer, const Sample& sample) {
  say("row", "{} part {}: {} tokens, {} supervised", sample.row_id, sample.part, sample.tokens.size(),
      std::count(sample.mask.begin(), sample.mask.end(), 1));
  fmt::print("{}\n", marked_sample(tokenizer, sample, colour_terminal()));
}

}  // namespace draftsmith
