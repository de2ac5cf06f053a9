#include "train/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace draftsmith {

namespace {

constexpr double kWidth = 560, kHeight = 270, kLeft = 52, kRight = 14, kTop = 16, kBottom = 44;
constexpr size_t kColours = 8, kMostPoints = 400;

// Maps values of [low, high] to pixels; ticks at round values.
struct Axis {
  double low = 0, high = 1, from = 0, to = 1;
  double at(double value) const { return from + (value - low) / (high - low) * (to - from); }
  std::vector<double> ticks() const {
    const double raw = (high - low) / 5, power = std::pow(10, std::floor(std::log10(raw)));
    double step = 10 * power;
    for (const double multiple : {1.0, 2.0, 5.0}) {
      if (raw <= multiple * power) {
        step = multiple * power;
        break;
      }
    }
    std::vector<double> out;
    for (double tick = std::ceil(low / step - 1e-9) * step; tick <= high + 1e-9 * step; tick += step)
      out.push_back(tick);
    return out;
  }
};

std::string number(double value) {
  if (std::abs(value) < 1e-12) return "0";
  return fmt::format("{:.4g}", value);
}

std::string frame(const ChartText& text, const std::string& body) {
  return fmt::format(
      "<figure><figcaption>{}</figcaption><svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">{}"
      "<text class=\"axis\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>"
      "<text class=\"axis\" x=\"12\" y=\"{}\" text-anchor=\"middle\" transform=\"rotate(-90 12 "
      "{})\">{}</text></svg></figure>\n",
      escaped(text.title), kWidth, kHeight, escaped(text.title), body, (kLeft + kWidth - kRight) / 2, kHeight - 6,
      escaped(text.x), (kTop + kHeight - kBottom) / 2, (kTop + kHeight - kBottom) / 2, escaped(text.y));
}

std::string y_grid(const Axis& y) {
  std::string out;
  for (double tick : y.ticks()) {
    out += fmt::format(
        "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text class=\"tick\" x=\"{}\" "
        "y=\"{:.1f}\" "
        "text-anchor=\"end\">{}</text>",
        kLeft, kWidth - kRight, y.at(tick), y.at(tick), kLeft - 6, y.at(tick) + 4, number(tick));
  }
  return out;
}

std::string path(const std::vector<std::pair<double, double>>& points, const Axis& x, const Axis& y,
                 const std::string& style) {
  std::string d;
  for (const auto& [px, py] : points) d += fmt::format("{}{:.1f} {:.1f}", d.empty() ? "M" : "L", x.at(px), y.at(py));
  return fmt::format("<path class=\"{}\" d=\"{}\"/>", style, d);
}

// Means of equal runs of points, so that a long run draws at most kMostPoints.
std::vector<std::pair<double, double>> thinned(const std::vector<std::pair<double, double>>& points) {
  const size_t width = (points.size() + kMostPoints - 1) / kMostPoints;
  if (width <= 1) return points;
  std::vector<std::pair<double, double>> out;
  for (size_t begin = 0; begin < points.size(); begin += width) {
    const size_t end = std::min(points.size(), begin + width);
    double x = 0, y = 0;
    for (size_t i = begin; i < end; ++i) {
      x += points[i].first;
      y += points[i].second;
    }
    out.emplace_back(x / static_cast<double>(end - begin), y / static_cast<double>(end - begin));
  }
  return out;
}

std::vector<std::pair<double, double>> running_mean(const std::vector<std::pair<double, double>>& points) {
  const size_t half = std::max<size_t>(1, points.size() / 40);
  std::vector<std::pair<double, double>> out;
  for (size_t i = 0; i < points.size(); ++i) {
    const size_t begin = i < half ? 0 : i - half, end = std::min(points.size(), i + half + 1);
    double sum = 0;
    for (size_t j = begin; j < end; ++j) sum += points[j].second;
    out.emplace_back(points[i].first, sum / static_cast<double>(end - begin));
  }
  return out;
}

Axis range_of(const std::vector<Series>& series, bool of_x) {
  Axis axis{INFINITY, -INFINITY, 0, 0};
  for (const Series& one : series) {
    for (const auto& [x, y] : one.points) {
      axis.low = std::min(axis.low, of_x ? x : y);
      axis.high = std::max(axis.high, of_x ? x : y);
    }
  }
  if (!(axis.high > axis.low)) axis.high = axis.low + 1;
  return axis;
}

std::string legend(const std::vector<Series>& series) {
  if (series.size() < 2) return "";
  std::string out;
  double at = kLeft;
  for (size_t i = 0; i < series.size(); ++i) {
    out += fmt::format(
        "<circle class=\"fill{}\" cx=\"{}\" cy=\"8\" r=\"4\"/><text class=\"tick\" x=\"{}\" y=\"12\">{}</text>",
        std::min(i, kColours - 1), at, at + 8, escaped(series[i].name));
    at += 24 + 6.4 * static_cast<double>(series[i].name.size());
  }
  return out;
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string line_chart(const ChartText& text, const std::vector<Series>& series) {
  Axis x = range_of(series, true), y = range_of(series, false);
  const double margin = 0.05 * (y.high - y.low);
  y.low -= margin;
  y.high += margin;
  x.from = kLeft;
  x.to = kWidth - kRight;
  y.from = kHeight - kBottom;
  y.to = kTop + 6;
  std::string body = y_grid(y);
  for (double tick : x.ticks()) {
    body += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>", x.at(tick),
                        kHeight - kBottom + 16, number(tick));
  }
  for (size_t i = 0; i < series.size(); ++i) {
    const std::string colour = fmt::format("{}", std::min(i, kColours - 1));
    const auto points = thinned(series[i].points);
    if (series[i].marked || points.size() < 20) {
      body += path(points, x, y, "line line" + colour);
      for (const auto& [px, py] : points) {
        body += fmt::format(
            "<circle class=\"fill{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"><title>{}: {} at {}</title></circle>", colour,
            x.at(px), y.at(py), escaped(series[i].name), number(py), number(px));
      }
    } else {
      body += path(points, x, y, "pale line" + colour) + path(running_mean(points), x, y, "line line" + colour);
    }
  }
  return frame(text, body + legend(series));
}

std::string bar_chart(const ChartText& text, const std::vector<Bar>& bars, double top) {
  Axis y{0, top, kHeight - kBottom, kTop + 10};
  for (const Bar& bar : bars) y.high = std::max(y.high, top > 0 ? top : 1.12 * bar.value);
  if (y.high <= 0) y.high = 1;
  std::string body = y_grid(y);
  const double slot = (kWidth - kLeft - kRight) / static_cast<double>(std::max<size_t>(1, bars.size()));
  const double width = std::min(56.0, slot * 0.66);
  for (size_t i = 0; i < bars.size(); ++i) {
    const double middle = kLeft + slot * (static_cast<double>(i) + 0.5), head = y.at(bars[i].value);
    body += fmt::format(
        "<rect class=\"fill0\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"3\"/>"
        "<text class=\"value\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>"
        "<text class=\"tick\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        middle - width / 2, head, width, std::max(0.0, y.from - head), middle, head - 5, escaped(bars[i].shown), middle,
        kHeight - kBottom + 16, escaped(bars[i].label));
  }
  return frame(text, body);
}

}  // namespace draftsmith
