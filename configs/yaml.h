// YAML <-> plain structs: one description of a section's fields serves reading, `--set`, checking and writing back.
//
// A config struct is described by one function that calls section() and field() for everything it has. ConfigReader
// fills the struct from a file and from `section.key=value` assignments and then refuses what nobody asked for: an
// unknown key, a key given twice, a value of another type or out of range, each with file, line and the nearest known
// key. ConfigWriter renders the resolved struct.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace draftsmith {

class ConfigVisitor {
 public:
  virtual ~ConfigVisitor() = default;
  virtual void section(const std::string& name) = 0;
  virtual void field(const std::string& name, int64_t& value, int64_t low = std::numeric_limits<int64_t>::min(),
                     int64_t high = std::numeric_limits<int64_t>::max()) = 0;
  virtual void field(const std::string& name, double& value, double low = -std::numeric_limits<double>::infinity(),
                     double high = std::numeric_limits<double>::infinity()) = 0;
  virtual void field(const std::string& name, bool& value) = 0;
  virtual void field(const std::string& name, std::vector<int64_t>& value) = 0;
  // `choices` empty: any text.
  virtual void field(const std::string& name, std::string& value, const std::vector<std::string>& choices = {}) = 0;
};

class ConfigReader : public ConfigVisitor {
 public:
  // Reads `path` (empty: no file, defaults only). Throws Error with file and line when it is not a mapping of sections.
  explicit ConfigReader(const std::string& path);
  // The same from text; `name` stands for the file in messages.
  static ConfigReader from_text(const std::string& text, const std::string& name);
  ~ConfigReader() override;
  ConfigReader(ConfigReader&&) noexcept;

  // `section.key=value`, the value in YAML; wins over the file. Throws Error when it has another form.
  void set(const std::string& assignment);

  void section(const std::string& name) override;
  void field(const std::string& name, int64_t& value, int64_t low, int64_t high) override;
  void field(const std::string& name, double& value, double low, double high) override;
  void field(const std::string& name, bool& value) override;
  void field(const std::string& name, std::vector<int64_t>& value) override;
  void field(const std::string& name, std::string& value, const std::vector<std::string>& choices) override;

  // Throws Error for the first key of the file or of an assignment that no field() asked for.
  void finish() const;

 private:
  struct Impl;
  explicit ConfigReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class ConfigWriter : public ConfigVisitor {
 public:
  void section(const std::string& name) override;
  void field(const std::string& name, int64_t& value, int64_t low, int64_t high) override;
  void field(const std::string& name, double& value, double low, double high) override;
  void field(const std::string& name, bool& value) override;
  void field(const std::string& name, std::vector<int64_t>& value) override;
  void field(const std::string& name, std::string& value, const std::vector<std::string>& choices) override;
  const std::string& text() const { return text_; }

 private:
  void line(const std::string& name, const std::string& value);
  std::string text_;
};

// The entry of `known` with the smallest edit distance to `word`; empty when none is near (more than half of the
// letters differ).
std::string nearest(const std::string& word, const std::vector<std::string>& known);

}  // namespace draftsmith
