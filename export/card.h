// The model card of an exported drafter: what it is, what it was made from, what was measured, how it is served.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "export/format.h"

namespace draftsmith {

// `facts`: what export.json holds (hashes, files, proof). `evaluation`: an evaluation.json of this drafter, or null.
std::string model_card(const ExportInput& input, const Format& format, const nlohmann::ordered_json& facts,
                       const nlohmann::ordered_json& evaluation);

}  // namespace draftsmith
