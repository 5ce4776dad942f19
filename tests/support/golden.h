// SPDX-License-Identifier: Apache-2.0
// Reads the goldens of tests/golden/models: entries of a text line "name rows cols\n" followed by rows x cols
// little-endian floats, as tools/golden/tiny_models.py writes them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "support/build_paths.h"

namespace weir::testing {

struct GoldenEntry {
  int64_t rows = 0, cols = 0;
  std::vector<float> data;
};
using Golden = std::map<std::string, GoldenEntry>;

inline std::string GoldenDir() { return SourceDir() + "/tests/golden/models/"; }

// Every model file of tests/golden, encoders too, sorted, so that loops over them include new families.
inline std::vector<std::string> GoldenModelFiles() {
  std::vector<std::string> out;
  for (const char* folder : {"models", "vision"}) {
    const std::string path = SourceDir() + "/tests/golden/" + folder;
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (entry.path().extension() == ".gguf") out.push_back(entry.path().string());
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

inline Golden ReadGolden(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Golden out;
  for (std::string line; std::getline(file, line);) {
    std::istringstream header(line);
    std::string name;
    GoldenEntry entry;
    header >> name >> entry.rows >> entry.cols;
    entry.data.resize(static_cast<size_t>(entry.rows * entry.cols));
    file.read(reinterpret_cast<char*>(entry.data.data()), static_cast<std::streamsize>(entry.data.size() * 4));
    out[name] = std::move(entry);
  }
  return out;
}

// Names of all tiny models, sorted.
inline std::vector<std::string> GoldenModels() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(GoldenDir())) {
    if (entry.path().extension() == ".golden") out.push_back(entry.path().stem().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

inline std::vector<int32_t> GoldenTokens(const Golden& golden) {
  const std::vector<float>& data = golden.at("tokens").data;
  return {data.begin(), data.end()};
}

// Largest |a - b| relative to the largest |b|.
inline double RelativeError(const float* a, const float* b, size_t n) {
  double error = 0, scale = 1e-30;
  for (size_t i = 0; i < n; ++i) {
    error = std::max(error, std::abs(static_cast<double>(a[i]) - b[i]));
    scale = std::max(scale, std::abs(static_cast<double>(b[i])));
  }
  return error / scale;
}

}  // namespace weir::testing
