// SPDX-License-Identifier: Apache-2.0
#include "trace_figure.h"

#include <png.h>

#include <fmt/core.h>
#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "base/base64.h"
#include "base/status.h"
#include "common.h"

namespace weir::app {
namespace {

// Colours of a cell: 0 is nothing to say (transparent), 1 is zero, 2 to 15 run from low to high. All are of middling
// lightness or near it, so that they stand out from white and from black.
constexpr int kFirstShade = 2, kColours = 16;
struct Rgb {
  int r, g, b;
};
Rgb Mix(Rgb a, Rgb b, double t) {
  const auto mix = [t](int from, int to) { return static_cast<int>(std::lround(from + (to - from) * t)); };
  return {mix(a.r, b.r), mix(a.g, b.g), mix(a.b, b.b)};
}
Rgb Shade(double t) {
  constexpr Rgb kStops[] = {{62, 84, 164}, {34, 140, 150}, {94, 170, 80}, {232, 170, 36}};
  const double at = std::clamp(t, 0.0, 1.0) * 3;
  const int i = std::min(2, static_cast<int>(at));
  return Mix(kStops[i], kStops[i + 1], at - i);
}
Rgb Colour(int index) {
  return index < kFirstShade ? Rgb{128, 128, 128}
                             : Shade(static_cast<double>(index - kFirstShade) / (kColours - 1 - kFirstShade));
}
int Alpha(int index) { return index == 0 ? 0 : index == 1 ? 48 : 255; }
int ColourIndex(float value) {
  if (std::isnan(value)) return 0;
  if (value <= 0) return 1;
  const int shade =
      static_cast<int>(std::lround(std::min(value, 1.0f) * static_cast<float>(kColours - 1 - kFirstShade)));
  return kFirstShade + shade;
}

// Four bits a cell and a palette with transparency.
Result<std::string> Png(const HeatMap& map) {
  std::string cells, palette;
  for (const float value : map.cells) cells += static_cast<char>(ColourIndex(value));
  for (int i = 0; i < kColours; ++i) {
    const Rgb c = Colour(i);
    for (const int channel : {c.r, c.g, c.b, Alpha(i)}) palette += static_cast<char>(channel);
  }
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(map.width);
  image.height = static_cast<png_uint_32>(map.height);
  image.format = PNG_FORMAT_RGBA_COLORMAP;
  image.colormap_entries = kColours;
  png_alloc_size_t n_bytes = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string out(n_bytes, '\0');
  if (png_image_write_to_memory(&image, out.data(), &n_bytes, 0, cells.data(), 0, palette.data()) == 0) {
    return Internal("cannot draw a map of {} by {} cells: {}", map.width, map.height, image.message);
  }
  out.resize(n_bytes);
  return out;
}

// Text of the trace comes from elsewhere.
std::string Xml(std::string_view text) {
  std::string out;
  for (const char c : Printable(text)) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

// A round distance between marks: 1, 2 or 5 times a power of ten, about `n` of them over the range.
double TickStep(double range, int n) {
  if (!(range > 0)) return 1;
  const double power = std::pow(10, std::floor(std::log10(range / n)));
  const double rest = range / n / power;
  return std::max(1.0, power * (rest < 1.5 ? 1 : rest < 3.5 ? 2 : rest < 7.5 ? 5 : 10));
}

constexpr int kLeft = 92, kTop = 88, kPlotWidth = 720, kPanelGap = 74, kRight = 28;

int PlotHeight(const Panel& panel) { return panel.map.height >= 200 ? 360 : 200; }

Result<std::string> PanelSvg(const Panel& panel, int top) {
  const int height = PlotHeight(panel);
  WEIR_ASSIGN_OR_RETURN(const std::string png, Png(panel.map));
  std::string out = fmt::format("<text class=\"t\" x=\"{}\" y=\"{}\">{}</text>\n", kLeft, top - 10, Xml(panel.title));
  out +=
      fmt::format("<rect class=\"p\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n", kLeft, top, kPlotWidth, height);
  out += fmt::format(
             "<image x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" preserveAspectRatio=\"none\" "
             "image-rendering=\"pixelated\" "
             "href=\"data:image/png;base64,",
             kLeft, top, kPlotWidth, height) +
         EncodeBase64(png) + "\"/>\n";
  const auto axis = [&](bool x, double first, double last) {
    const double low = std::min(first, last), high = std::max(first, last), step = TickStep(high - low, x ? 7 : 5);
    for (double tick = std::ceil(low / step) * step; tick <= high && high > low; tick += step) {
      const double at = (tick - first) / (last - first);
      const std::string label = CountText(static_cast<int64_t>(std::llround(tick)));
      if (x) {
        const double px = kLeft + at * kPlotWidth;
        out += fmt::format(
            "<path class=\"a\" d=\"M{:.1f} {}v5\"/><text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", px,
            top + height, px, top + height + 19, label);
      } else {
        const double py = top + at * height;
        out += fmt::format(
            "<path class=\"a\" d=\"M{} {:.1f}h-5\"/><text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", kLeft,
            py, kLeft - 9, py + 4, label);
      }
    }
  };
  axis(true, panel.x_first, panel.x_last);
  axis(false, panel.y_first, panel.y_last);
  out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", kLeft + kPlotWidth / 2,
                     top + height + 38, Xml(panel.x_label));
  out += fmt::format("<text transform=\"translate(18 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
                     top + height / 2, Xml(panel.y_label));
  return out;
}

}  // namespace

HeatMap::HeatMap(int w, int h)
    : width(w),
      height(h),
      cells(static_cast<size_t>(w) * static_cast<size_t>(h), std::numeric_limits<float>::quiet_NaN()) {}

Result<std::string> FigureSvg(const Figure& figure) {
  int height = kTop;
  for (const Panel& panel : figure.panels) height += PlotHeight(panel) + kPanelGap;
  const int width = kLeft + kPlotWidth + kRight;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" width=\"{}\" height=\"{}\" role=\"img\">\n"
      "<title>{}</title>\n"
      "<style>text{{font:12px sans-serif;fill:#24292f}}.h{{font-size:15px;font-weight:600}}.t{{font-weight:600}}"
      ".a{{stroke:#57606a;fill:none}}.p{{fill:#f3f4f6;stroke:#8c959f}}.b{{fill:#ffffff}}"
      "@media(prefers-color-scheme:dark){{text{{fill:#e6edf3}}.a{{stroke:#9198a1}}.p{{fill:#1b2027;stroke:#59636e}}.b{{"
      "fill:#"
      "0d1117}}}}"
      "</style>\n<rect class=\"b\" width=\"100%\" height=\"100%\"/>\n",
      width, height, width, height, Xml(figure.title));
  out += fmt::format("<text class=\"h\" x=\"{}\" y=\"22\">{}</text>\n", kLeft, Xml(figure.title));
  out += fmt::format("<text x=\"{}\" y=\"40\">{}</text>\n", kLeft, Xml(figure.subtitle));
  // The legend: the colours as the maps use them, words at both ends.
  constexpr int kSwatch = 14;
  const int legend = kLeft + kPlotWidth - 300;
  for (int i = kFirstShade; i < kColours; ++i) {
    const Rgb c = Colour(i);
    out += fmt::format("<rect x=\"{}\" y=\"52\" width=\"{}\" height=\"10\" fill=\"rgb({},{},{})\"/>",
                       legend + (i - kFirstShade) * kSwatch, kSwatch, c.r, c.g, c.b);
  }
  out += fmt::format("\n<text x=\"{}\" y=\"61\" text-anchor=\"end\">{}</text><text x=\"{}\" y=\"61\">{}</text>\n",
                     legend - 6, Xml(figure.legend_low), legend + (kColours - kFirstShade) * kSwatch + 6,
                     Xml(figure.legend_high));
  int top = kTop;
  for (const Panel& panel : figure.panels) {
    WEIR_ASSIGN_OR_RETURN(const std::string svg, PanelSvg(panel, top));
    out += svg;
    top += PlotHeight(panel) + kPanelGap;
  }
  return out + "</svg>\n";
}

Result<std::string> FigurePng(const Figure& figure) {
  constexpr int kGap = 8;
  int width = 1, height = 0;
  for (const Panel& panel : figure.panels) {
    width = std::max(width, panel.map.width);
    height += panel.map.height + (height > 0 ? kGap : 0);
  }
  HeatMap all(width, std::max(1, height));
  int top = 0;
  for (const Panel& panel : figure.panels) {
    for (int y = 0; y < panel.map.height; ++y) {
      std::copy_n(&panel.map.cells[static_cast<size_t>(y) * static_cast<size_t>(panel.map.width)], panel.map.width,
                  &all.at(0, top + y));
    }
    top += panel.map.height + kGap;
  }
  return Png(all);
}

}  // namespace weir::app
