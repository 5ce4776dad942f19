#include "trace_figure.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

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

uint32_t Crc(std::string_view bytes) {
  static const auto table = [] {
    std::array<uint32_t, 256> out{};
    for (uint32_t n = 0; n < 256; ++n) {
      uint32_t c = n;
      for (int k = 0; k < 8; ++k) c = (c & 1) != 0 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
      out[n] = c;
    }
    return out;
  }();
  uint32_t crc = 0xFFFFFFFFu;
  for (const char byte : bytes) crc = table[(crc ^ static_cast<uint8_t>(byte)) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

void AppendBigEndian(std::string* out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) *out += static_cast<char>(value >> shift);
}

void AppendChunk(std::string* out, std::string_view type, std::string_view data) {
  AppendBigEndian(out, static_cast<uint32_t>(data.size()));
  const std::string body = std::string(type) + std::string(data);
  *out += body;
  AppendBigEndian(out, Crc(body));
}

// A zlib stream that stores: maps are small, and a compressor would be one more thing to depend on.
std::string Stored(std::string_view data) {
  constexpr size_t kBlock = 65535;
  std::string out("\x78\x01", 2);
  uint32_t a = 1, b = 0;
  for (size_t at = 0; at < data.size() || at == 0; at += kBlock) {
    const std::string_view block = data.substr(at, kBlock);
    const uint16_t n = static_cast<uint16_t>(block.size()), inverse = static_cast<uint16_t>(~n);
    out += at + kBlock >= data.size() ? '\1' : '\0';
    for (const uint16_t value : {n, inverse}) {
      out += static_cast<char>(value & 0xFF);
      out += static_cast<char>(value >> 8);
    }
    out += block;
    for (const char byte : block) {
      a = (a + static_cast<uint8_t>(byte)) % 65521;
      b = (b + a) % 65521;
    }
  }
  AppendBigEndian(&out, b << 16 | a);
  return out;
}

// Four bits per cell and a palette with transparency (PNG, third edition, sections 11.2 and 11.3).
std::string Png(const HeatMap& map) {
  std::string out("\x89PNG\r\n\x1a\n", 8), head, palette, alpha, rows;
  AppendBigEndian(&head, static_cast<uint32_t>(map.width));
  AppendBigEndian(&head, static_cast<uint32_t>(map.height));
  head += std::string("\4\3\0\0\0", 5);
  for (int i = 0; i < kColours; ++i) {
    const Rgb c = Colour(i);
    for (const int channel : {c.r, c.g, c.b}) palette += static_cast<char>(channel);
    alpha += static_cast<char>(Alpha(i));
  }
  for (int y = 0; y < map.height; ++y) {
    rows += '\0';  // no filter
    for (int x = 0; x < map.width; x += 2) {
      const float* cell = &map.cells[static_cast<size_t>(y) * static_cast<size_t>(map.width) + static_cast<size_t>(x)];
      rows += static_cast<char>(ColourIndex(cell[0]) << 4 | (x + 1 < map.width ? ColourIndex(cell[1]) : 0));
    }
  }
  AppendChunk(&out, "IHDR", head);
  AppendChunk(&out, "PLTE", palette);
  AppendChunk(&out, "tRNS", alpha);
  AppendChunk(&out, "IDAT", Stored(rows));
  AppendChunk(&out, "IEND", "");
  return out;
}

std::string Base64(std::string_view bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (k < n ? static_cast<uint8_t>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) out += k <= n ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
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

std::string PanelSvg(const Panel& panel, int top) {
  const int height = PlotHeight(panel);
  std::string out =
      StrFormat("<text class=\"t\" x=\"%d\" y=\"%d\">%s</text>\n", kLeft, top - 10, Xml(panel.title).c_str());
  out +=
      StrFormat("<rect class=\"p\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", kLeft, top, kPlotWidth, height);
  out += StrFormat(
             "<image x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" preserveAspectRatio=\"none\" "
             "image-rendering=\"pixelated\" "
             "href=\"data:image/png;base64,",
             kLeft, top, kPlotWidth, height) +
         Base64(Png(panel.map)) + "\"/>\n";
  const auto axis = [&](bool x, double first, double last) {
    const double low = std::min(first, last), high = std::max(first, last), step = TickStep(high - low, x ? 7 : 5);
    for (double tick = std::ceil(low / step) * step; tick <= high && high > low; tick += step) {
      const double at = (tick - first) / (last - first);
      const std::string label = CountText(static_cast<int64_t>(std::llround(tick)));
      if (x) {
        const double px = kLeft + at * kPlotWidth;
        out += StrFormat(
            "<path class=\"a\" d=\"M%.1f %dv5\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", px,
            top + height, px, top + height + 19, label.c_str());
      } else {
        const double py = top + at * height;
        out +=
            StrFormat("<path class=\"a\" d=\"M%d %.1fh-5\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                      kLeft, py, kLeft - 9, py + 4, label.c_str());
      }
    }
  };
  axis(true, panel.x_first, panel.x_last);
  axis(false, panel.y_first, panel.y_last);
  out += StrFormat("<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", kLeft + kPlotWidth / 2,
                   top + height + 38, Xml(panel.x_label).c_str());
  out += StrFormat("<text transform=\"translate(18 %d) rotate(-90)\" text-anchor=\"middle\">%s</text>\n",
                   top + height / 2, Xml(panel.y_label).c_str());
  return out;
}

}  // namespace

HeatMap::HeatMap(int w, int h)
    : width(w),
      height(h),
      cells(static_cast<size_t>(w) * static_cast<size_t>(h), std::numeric_limits<float>::quiet_NaN()) {}

std::string FigureSvg(const Figure& figure) {
  int height = kTop;
  for (const Panel& panel : figure.panels) height += PlotHeight(panel) + kPanelGap;
  const int width = kLeft + kPlotWidth + kRight;
  std::string out = StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\">\n"
      "<title>%s</title>\n"
      "<style>text{font:12px sans-serif;fill:#24292f}.h{font-size:15px;font-weight:600}.t{font-weight:600}"
      ".a{stroke:#57606a;fill:none}.p{fill:#f3f4f6;stroke:#8c959f}.b{fill:#ffffff}"
      "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.a{stroke:#9198a1}.p{fill:#1b2027;stroke:#59636e}.b{fill:#"
      "0d1117}}"
      "</style>\n<rect class=\"b\" width=\"100%%\" height=\"100%%\"/>\n",
      width, height, width, height, Xml(figure.title).c_str());
  out += StrFormat("<text class=\"h\" x=\"%d\" y=\"22\">%s</text>\n", kLeft, Xml(figure.title).c_str());
  out += StrFormat("<text x=\"%d\" y=\"40\">%s</text>\n", kLeft, Xml(figure.subtitle).c_str());
  // The legend: the colours as the maps use them, words at both ends.
  constexpr int kSwatch = 14;
  const int legend = kLeft + kPlotWidth - 300;
  for (int i = kFirstShade; i < kColours; ++i) {
    const Rgb c = Colour(i);
    out += StrFormat("<rect x=\"%d\" y=\"52\" width=\"%d\" height=\"10\" fill=\"rgb(%d,%d,%d)\"/>",
                     legend + (i - kFirstShade) * kSwatch, kSwatch, c.r, c.g, c.b);
  }
  out += StrFormat("\n<text x=\"%d\" y=\"61\" text-anchor=\"end\">%s</text><text x=\"%d\" y=\"61\">%s</text>\n",
                   legend - 6, Xml(figure.legend_low).c_str(), legend + (kColours - kFirstShade) * kSwatch + 6,
                   Xml(figure.legend_high).c_str());
  int top = kTop;
  for (const Panel& panel : figure.panels) {
    out += PanelSvg(panel, top);
    top += PlotHeight(panel) + kPanelGap;
  }
  return out + "</svg>\n";
}

std::string FigurePng(const Figure& figure) {
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
