#include "configs/yaml.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "launch/check.h"
#include "launch/file.h"

namespace draftsmith {

namespace {

// A value as written, and where.
struct Given {
  YAML::Node node;
  std::string where;
};

std::string place(const std::string& file, const YAML::Mark& mark) {
  return mark.line >= 0 ? fmt::format("{}:{}", file, mark.line + 1) : file;
}

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::string scalar(const Given& given, const std::string& key, const char* kind) {
  DS_CHECK(given.node.IsScalar(), "{}: `{}` must be {}", given.where, key, kind);
  return given.node.Scalar();
}

int64_t parse_integer(const Given& given, const std::string& key) {
  const std::string text = scalar(given, key, "a whole number");
  int64_t value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  DS_CHECK(fault == std::errc() && end == text.data() + text.size(), "{}: `{}` must be a whole number, not `{}`",
           given.where, key, text);
  return value;
}

double parse_number(const Given& given, const std::string& key) {
  const std::string text = scalar(given, key, "a number");
  double value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  DS_CHECK(fault == std::errc() && end == text.data() + text.size() && std::isfinite(value),
           "{}: `{}` must be a finite number, not `{}`", given.where, key, text);
  return value;
}

}  // namespace

std::string nearest(const std::string& word, const std::vector<std::string>& known) {
  std::string best;
  size_t least = std::string::npos;
  for (const std::string& candidate : known) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return least <= std::max<size_t>(2, word.size() / 2) ? best : std::string();
}

struct ConfigReader::Impl {
  std::string file;
  std::map<std::string, std::string> sections;                // name -> where
  std::map<std::string, std::map<std::string, Given>> given;  // section -> key -> value
  std::vector<std::string> known_sections;
  std::map<std::string, std::vector<std::string>> known;  // section -> keys that field() asked for
  std::string current;

  void load(const std::string& text) {
    YAML::Node root;
    try {
      root = YAML::Load(text);
    } catch (const YAML::ParserException& error) {
      DS_FAIL("{}: not YAML: {}", place(file, error.mark), error.msg);
    }
    DS_CHECK(root.IsMap(), "{}: sections (target, drafter, data, ...) were expected at the top", file);
    for (const auto& section : root) load_section(section.first, section.second);
  }

  void load_section(const YAML::Node& name_node, const YAML::Node& body) {
    const std::string name = name_node.Scalar(), where = place(file, name_node.Mark());
    DS_CHECK(sections.emplace(name, where).second, "{}: section `{}` stands twice in the file", where, name);
    if (body.IsNull()) return;
    DS_CHECK(body.IsMap(), "{}: section `{}` must hold `key: value` lines", where, name);
    for (const auto& entry : body) {
      const std::string key = entry.first.Scalar(), at = place(file, entry.first.Mark());
      DS_CHECK(given[name].emplace(key, Given{entry.second, at}).second, "{}: key `{}.{}` stands twice in the file", at,
               name, key);
    }
  }

  std::optional<Given> take(const std::string& key) {
    known[current].push_back(key);
    const auto section = given.find(current);
    if (section == given.end()) return std::nullopt;
    const auto found = section->second.find(key);
    if (found == section->second.end()) return std::nullopt;
    return found->second;
  }

  std::string path(const std::string& key) const { return current + "." + key; }
};

ConfigReader::ConfigReader(const std::string& path) : impl_(std::make_unique<Impl>()) {
  impl_->file = path;
  if (!path.empty()) impl_->load(read_file(path));
}

ConfigReader::ConfigReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ConfigReader::ConfigReader(ConfigReader&&) noexcept = default;
ConfigReader::~ConfigReader() = default;

ConfigReader ConfigReader::from_text(const std::string& text, const std::string& name) {
  auto impl = std::make_unique<Impl>();
  impl->file = name;
  impl->load(text);
  return ConfigReader(std::move(impl));
}

void ConfigReader::set(const std::string& assignment) {
  const size_t dot = assignment.find('.'), equals = assignment.find('=');
  DS_CHECK(dot != std::string::npos && equals != std::string::npos && dot > 0 && dot + 1 < equals,
           "--set {}: the form is section.key=value, for example --set optimizer.lr=6e-4", assignment);
  const std::string section = assignment.substr(0, dot), key = assignment.substr(dot + 1, equals - dot - 1);
  const std::string where = "--set " + assignment;
  YAML::Node node;
  try {
    node = YAML::Load(assignment.substr(equals + 1));
  } catch (const YAML::ParserException& error) {
    DS_FAIL("{}: the value is not YAML: {}", where, error.msg);
  }
  if (node.IsNull()) node = YAML::Node(std::string());
  impl_->sections.emplace(section, where);
  impl_->given[section][key] = Given{node, where};
}

void ConfigReader::section(const std::string& name) {
  impl_->current = name;
  impl_->known_sections.push_back(name);
}

void ConfigReader::field(const std::string& name, int64_t& value, int64_t low, int64_t high) {
  const auto given = impl_->take(name);
  if (!given) return;
  value = parse_integer(*given, impl_->path(name));
  DS_CHECK(value >= low, "{}: `{}` is {}, but at least {} is needed", given->where, impl_->path(name), value, low);
  DS_CHECK(value <= high, "{}: `{}` is {}, but at most {} is allowed", given->where, impl_->path(name), value, high);
}

void ConfigReader::field(const std::string& name, double& value, double low, double high) {
  const auto given = impl_->take(name);
  if (!given) return;
  value = parse_number(*given, impl_->path(name));
  DS_CHECK(value >= low && value <= high, "{}: `{}` is {}, but must lie in {} to {}", given->where, impl_->path(name),
           value, low, high);
}

void ConfigReader::field(const std::string& name, bool& value) {
  const auto given = impl_->take(name);
  if (!given) return;
  const std::string text = scalar(*given, impl_->path(name), "true or false");
  DS_CHECK(text == "true" || text == "false", "{}: `{}` must be true or false, not `{}`", given->where,
           impl_->path(name), text);
  value = text == "true";
}

void ConfigReader::field(const std::string& name, std::vector<int64_t>& value) {
  const auto given = impl_->take(name);
  if (!given) return;
  DS_CHECK(given->node.IsSequence(), "{}: `{}` must be a list like [1, 7, 13]", given->where, impl_->path(name));
  value.clear();
  for (const auto& item : given->node) value.push_back(parse_integer(Given{item, given->where}, impl_->path(name)));
}

void ConfigReader::field(const std::string& name, std::string& value, const std::vector<std::string>& choices) {
  const auto given = impl_->take(name);
  if (!given) return;
  value = scalar(*given, impl_->path(name), "text");
  if (choices.empty() || std::find(choices.begin(), choices.end(), value) != choices.end()) return;
  const std::string near = nearest(value, choices);
  DS_FAIL("{}: `{}` is `{}`; known: {}{}", given->where, impl_->path(name), value,
          fmt::format("{}", fmt::join(choices, ", ")), near.empty() ? "" : fmt::format(" (did you mean `{}`?)", near));
}

void ConfigReader::finish() const {
  for (const auto& [section, where] : impl_->sections) {
    if (std::find(impl_->known_sections.begin(), impl_->known_sections.end(), section) != impl_->known_sections.end())
      continue;
    const std::string near = nearest(section, impl_->known_sections);
    DS_FAIL("{}: unknown section `{}`; {}", where, section,
            near.empty() ? fmt::format("known: {}", fmt::join(impl_->known_sections, ", "))
                         : fmt::format("did you mean `{}`?", near));
  }
  for (const auto& [section, keys] : impl_->given) {
    const std::vector<std::string>& known = impl_->known.at(section);
    for (const auto& [key, value] : keys) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      const std::string near = nearest(key, known);
      DS_FAIL("{}: unknown key `{}.{}`; {}", value.where, section, key,
              near.empty() ? fmt::format("known: {}", fmt::join(known, ", "))
                           : fmt::format("did you mean `{}.{}`?", section, near));
    }
  }
}

void ConfigWriter::section(const std::string& name) {
  text_ += (text_.empty() ? "" : "\n") + name + ":\n";
}

void ConfigWriter::line(const std::string& name, const std::string& value) {
  text_ += fmt::format("  {}: {}\n", name, value);
}

void ConfigWriter::field(const std::string& name, int64_t& value, int64_t, int64_t) {
  line(name, fmt::format("{}", value));
}

// The shortest text that reads back as the same number.
void ConfigWriter::field(const std::string& name, double& value, double, double) {
  line(name, fmt::format("{}", value));
}

void ConfigWriter::field(const std::string& name, bool& value) {
  line(name, value ? "true" : "false");
}

void ConfigWriter::field(const std::string& name, std::vector<int64_t>& value) {
  line(name, fmt::format("[{}]", fmt::join(value, ", ")));
}

void ConfigWriter::field(const std::string& name, std::string& value, const std::vector<std::string>&) {
  YAML::Emitter out;
  out << YAML::DoubleQuoted << value;
  line(name, out.c_str());
}

}  // namespace draftsmith
