// Plots as inline SVG: no script, no file beside the page, colours from the page's style sheet so that light and dark
// both work.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace draftsmith {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x ascending
  bool marked = false;                            // dots at the points (few, such as validations), no smoothing
};

struct ChartText {
  std::string title, x, y;
};

// Lines over a common x; a dense series is drawn pale with its running mean on top. Series beyond eight share the last
// colour.
std::string line_chart(const ChartText& text, const std::vector<Series>& series);

struct Bar {
  std::string label;
  double value = 0;
  std::string shown;  // written above the bar
};
// `top`: the y axis ends there; 0: at the highest value.
std::string bar_chart(const ChartText& text, const std::vector<Bar>& bars, double top = 0);

// Text safe inside HTML elements and attributes.
std::string escaped(const std::string& text);

}  // namespace draftsmith
