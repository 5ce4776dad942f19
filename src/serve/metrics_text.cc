// SPDX-License-Identifier: Apache-2.0
#include "serve/metrics_text.h"

#include <fmt/core.h>

#include "base/ascii.h"

namespace weir {
namespace {

constexpr std::string_view kOpenMetrics = "application/openmetrics-text";

const char* MetricTypeName(MetricFamily::Type type) {
  switch (type) {
    case MetricFamily::Type::kGauge:
      return "gauge";
    case MetricFamily::Type::kCounter:
      return "counter";
    case MetricFamily::Type::kHistogram:
      break;
  }
  return "histogram";
}

std::string EscapedLabel(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

std::string LabelText(const MetricLabels& labels) {
  if (labels.empty()) return "";
  std::string out;
  for (const auto& [name, value] : labels) {
    out += fmt::format("{}{}=\"{}\"", out.empty() ? "{" : ",", name, EscapedLabel(value));
  }
  return out + "}";
}

std::string ExemplarText(const Exemplar& one) {
  return fmt::format(" # {{trace_id=\"{}\",span_id=\"{}\"}} {:.6f} {}.{:03d}", one.trace_id, one.span_id, one.value,
                     one.unix_ns / 1000000000, one.unix_ns / 1000000 % 1000);
}

void WriteHistogram(const MetricFamily& family, bool open, std::string* out) {
  const MetricHistogram& histogram = *family.histogram;
  int64_t n = 0;
  for (size_t i = 0; i < histogram.counts.size(); ++i) {
    n += histogram.counts[i];
    std::string bound = "+Inf";
    if (i < histogram.bounds.size()) {
      bound = fmt::format("{:g}", histogram.bounds[i]);
      if (open && bound.find_first_of(".e") == bound.npos) bound += ".0";  // OpenMetrics: a floating-point number
    }
    *out += fmt::format("{}_bucket{{le=\"{}\"}} {}", family.name, bound, n);
    if (open && i < histogram.exemplars.size() && histogram.exemplars[i]) *out += ExemplarText(*histogram.exemplars[i]);
    *out += '\n';
  }
  *out += fmt::format("{}_sum {:.6f}\n{}_count {}\n", family.name, histogram.sum, family.name, n);
}

}  // namespace

MetricsFormat AcceptedFormat(std::string_view accept) {
  const std::string lower = AsciiLower(accept);
  return lower.find(kOpenMetrics) == lower.npos ? MetricsFormat::kPrometheus : MetricsFormat::kOpenMetrics;
}

const char* MetricsContentType(MetricsFormat format) {
  return format == MetricsFormat::kOpenMetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                               : "text/plain; version=0.0.4; charset=utf-8";
}

std::string MetricsText(std::span<const MetricFamily> families, MetricsFormat format) {
  const bool open = format == MetricsFormat::kOpenMetrics;
  std::string out;
  for (const MetricFamily& family : families) {
    // OpenMetrics names the family without the suffix that every counter has.
    constexpr std::string_view kTotal = "_total";
    std::string_view name = family.name;
    if (open && family.type == MetricFamily::Type::kCounter && name.ends_with(kTotal)) {
      name.remove_suffix(kTotal.size());
    }
    out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, family.help, name, MetricTypeName(family.type));
    if (family.histogram) WriteHistogram(family, open, &out);
    for (const MetricSample& sample : family.samples) {
      out += family.name + LabelText(sample.labels);
      out += sample.ratio ? fmt::format(" {:.6g}\n", *sample.ratio) : fmt::format(" {}\n", sample.count);
    }
  }
  if (open) out += "# EOF\n";
  return out;
}

}  // namespace weir
