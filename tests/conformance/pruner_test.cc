// SPDX-License-Identifier: Apache-2.0
// Every pruner against the independent reference of tools/golden/prune.py, and facts that follow from the methods.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "prune/pruner.h"
#include "support/build_paths.h"
#include "support/golden.h"

namespace weir {
namespace {

using testing::Golden;

// An encoder's signals: maps by layer and head.
struct Picture : SignalSource {
  using Maps = std::map<std::pair<int32_t, int32_t>, std::vector<float>>;
  std::map<SignalKind, SignalShape> shapes;
  std::map<SignalKind, Maps> maps;

  SignalShape ShapeOf(SignalKind kind) const override {
    return shapes.contains(kind) ? shapes.at(kind) : SignalShape();
  }
  void Add(SignalKind kind, int32_t layer, int32_t head, int64_t n_rows, std::vector<float> values) {
    SignalShape& shape = shapes[kind];
    shape = {std::max(shape.n_layers, layer + 1), std::max(shape.n_heads, head + 1), n_rows,
             static_cast<int64_t>(values.size()) / n_rows};
    maps[kind][{layer, head}] = std::move(values);
  }
  void Show(Pruner& pruner) const {
    pruner.Begin();
    for (const SignalKind kind :
         {SignalKind::kImageMass, SignalKind::kQuerySelf, SignalKind::kQueryCross, SignalKind::kOutputs}) {
      if (!maps.contains(kind)) continue;
      for (const auto& [at, values] : maps.at(kind)) {
        if (pruner.Wants(kind, at.first)) pruner.Take({kind, at.first, at.second, shapes.at(kind), values.data()});
      }
    }
  }
};

Golden ReadPruners() { return testing::ReadGolden(SourceDir() + "/tests/golden/prune/pruners.golden"); }

Picture GoldenPicture(const Golden& golden) {
  Picture out;
  for (const auto& [name, entry] : golden) {
    const auto add = [&](SignalKind kind, int32_t layer, int32_t head) {
      out.Add(kind, layer, head, entry.rows, entry.data);
    };
    int layer = 0, head = 0;
    if (name == "mass") add(SignalKind::kImageMass, 0, 0);
    if (name == "outputs") add(SignalKind::kOutputs, 0, 0);
    if (std::sscanf(name.c_str(), "cross.%d.%d", &layer, &head) == 2) add(SignalKind::kQueryCross, layer, head);
    if (std::sscanf(name.c_str(), "self.%d.%d", &layer, &head) == 2) add(SignalKind::kQuerySelf, layer, head);
  }
  return out;
}

std::vector<double> ImportanceOf(const std::string& spec, const Picture& picture) {
  auto pruner = std::move(std::move(ParsePrunerSpec(spec)).value().Make()).value();
  const auto bytes = pruner->MemoryBytes(picture);
  EXPECT_TRUE(bytes.ok() && *bytes > 0);
  pruner->Prepare(picture);
  picture.Show(*pruner);
  picture.Show(*pruner);  // a picture does not affect the next
  return {pruner->Importance().begin(), pruner->Importance().end()};
}

// A damaged encoder: whatever the pruner, its importance says so, and the choice of rows stays one.
TEST(Pruners, NumbersThatAreNone) {
  constexpr int64_t kQueries = 32, kTokens = 5;
  for (const float bad : {std::nanf(""), INFINITY}) {
    std::vector<float> cross(kQueries * kTokens, 0.25f), self(kQueries * kQueries, 0.5f), rows(kQueries * 4, 1.0f);
    for (int64_t r = 0; r < kQueries; r += 3) cross[r * kTokens + 2] = self[r * kQueries + r] = rows[r * 4] = bad;
    Picture picture;
    picture.Add(SignalKind::kQueryCross, 0, 0, kQueries, cross);
    picture.Add(SignalKind::kQuerySelf, 0, 0, kQueries, self);
    picture.Add(SignalKind::kOutputs, 0, 0, kQueries, rows);
    for (const char* spec : {"catp", "self_attention", "self_attention:cascade=on", "l2"}) {
      SCOPED_TRACE(spec);
      const std::vector<double> importance = ImportanceOf(spec, picture);
      EXPECT_FALSE(std::all_of(importance.begin(), importance.end(), [](double x) { return std::isfinite(x); }));
    }
  }
  std::vector<double> mixed(kQueries);
  for (size_t r = 0; r < mixed.size(); ++r) mixed[r] = r % 2 == 0 ? std::nan("") : static_cast<double>(r % 7);
  KeepSet keep;
  KeepMostImportant(mixed, 16, &keep);
  ASSERT_EQ(keep.size(), 16u);
  for (size_t i = 0; i < keep.size(); ++i) EXPECT_EQ(keep[i], static_cast<int32_t>(2 * i + 1));
}

TEST(Pruners, EqualTheReference) {
  const Golden golden = ReadPruners();
  ASSERT_GE(golden.size(), 70u);
  const Picture picture = GoldenPicture(golden);
  std::map<std::string, int> checked;
  for (const auto& [name, entry] : golden) {
    const bool is_importance = name.starts_with("importance."), is_kept = name.starts_with("kept.");
    if (!is_importance && !is_kept) continue;
    SCOPED_TRACE(name);
    const std::string text = name.substr(name.find('.') + 1);
    const auto spec = ParsePrunerSpec(text);
    ASSERT_TRUE(spec.ok()) << spec.status().message();
    ++checked[spec->info->name];
    const std::vector<double> importance = ImportanceOf(text, picture);
    if (is_importance) {
      ASSERT_EQ(importance.size(), entry.data.size());
      // Votes are counts: without weights they are equal to the last one.
      const bool counts = text.starts_with("catp") && text.find("weights") == std::string::npos;
      for (size_t q = 0; q < importance.size(); ++q) {
        EXPECT_NEAR(importance[q], entry.data[q], counts ? 0 : 1e-6 * std::abs(entry.data[q])) << "query " << q;
      }
    } else {
      KeepSet keep;
      KeepMostImportant(importance, RowsKept(std::ssize(importance), spec->keep()), &keep);
      EXPECT_EQ(std::vector<float>(keep.begin(), keep.end()), entry.data);
    }
  }
  EXPECT_EQ(checked["self_attention"], 6 + 10);
  EXPECT_EQ(checked.size(), AllPrunerInfos().size()) << "a pruner has no golden";
}

// Each vote gives the same number of points in total.
TEST(Catp, PointsAddUp) {
  const Picture picture = GoldenPicture(ReadPruners());
  const SignalShape shape = picture.ShapeOf(SignalKind::kQueryCross);
  const double vote = static_cast<double>(shape.n_rows * (shape.n_rows - 1) / 2);
  for (const auto& [spec, layers] :
       {std::pair{"catp", shape.n_layers}, std::pair{"catp:layers=first", 1}, std::pair{"catp:layers=3+1", 2},
        std::pair{"catp:weights=image", shape.n_layers}}) {
    const std::vector<double> points = ImportanceOf(spec, picture);
    const double sum = std::accumulate(points.begin(), points.end(), 0.0);
    EXPECT_NEAR(sum, vote * layers * shape.n_heads * static_cast<double>(shape.n_cols), 1e-6 * sum) << spec;
  }
}

TEST(Catp, OrderOfTheImageTokensDoesNotMatter) {
  Picture picture = GoldenPicture(ReadPruners());
  const std::vector<double> even = ImportanceOf("catp", picture),
                            weighted = ImportanceOf("catp:weights=image", picture);
  const SignalShape shape = picture.ShapeOf(SignalKind::kQueryCross);
  for (auto& [at, map] : picture.maps[SignalKind::kQueryCross]) {
    for (int64_t r = 0; r < shape.n_rows; ++r) {
      std::reverse(map.begin() + r * shape.n_cols, map.begin() + (r + 1) * shape.n_cols);
    }
  }
  EXPECT_EQ(ImportanceOf("catp", picture), even);
  const std::vector<double> other = ImportanceOf("catp:weights=image", picture);
  double difference = 0;
  for (size_t q = 0; q < other.size(); ++q) difference = std::max(difference, std::abs(other[q] - weighted[q]));
  EXPECT_GT(difference, 1) << "weights belong to tokens";
  auto& mass = picture.maps[SignalKind::kImageMass][{0, 0}];
  std::reverse(mass.begin(), mass.end());
  const std::vector<double> back = ImportanceOf("catp:weights=image", picture);
  for (size_t q = 0; q < back.size(); ++q) EXPECT_NEAR(back[q], weighted[q], 1e-6 * weighted[q]);
}

// Layers whose votes are all of one token's rank weigh as they should.
TEST(Catp, LayersWeigh) {
  const Picture picture = GoldenPicture(ReadPruners());
  const SignalShape shape = picture.ShapeOf(SignalKind::kQueryCross);
  std::string only_first = "catp:layer_weights=7", even = "catp:layer_weights=1";
  for (int32_t layer = 1; layer < shape.n_layers; ++layer) {
    only_first += "+0";
    even += "+1";
  }
  EXPECT_EQ(ImportanceOf(even, picture), ImportanceOf("catp", picture));
  std::vector<double> first = ImportanceOf("catp:layers=first", picture);
  for (double& points : first) points *= 7;
  EXPECT_EQ(ImportanceOf(only_first, picture), first);
  // A layer that pays every query the same tells nothing and has no vote.
  Picture flat;
  flat.Add(SignalKind::kQueryCross, 0, 0, 2, {0.5f, 0.5f, 0.5f, 0.5f});
  flat.Add(SignalKind::kQueryCross, 1, 0, 2, {0.25f, 0.75f, 0.75f, 0.75f});
  const std::vector<double> points = ImportanceOf("catp:layer_weights=contrast", flat);
  EXPECT_NEAR(points[1], 0.125, 1e-9) << "token 0 prefers query 1, and token 1 takes the first of equals";
  for (const char* bad : {"catp:layer_weights=0+0", "catp:layer_weights=1+x", "catp:layer_weights=-1"}) {
    auto spec = ParsePrunerSpec(bad);
    EXPECT_FALSE(spec.ok() && spec->Make().ok()) << bad;
  }
  auto two = std::move(std::move(ParsePrunerSpec("catp:layer_weights=1+1")).value().Make()).value();
  EXPECT_EQ(two->MemoryBytes(picture).status().code(), StatusCode::kInvalidArgument);
}

// A query that every token attends to most wins; equal ones rank in order.
TEST(Catp, RanksNotSums) {
  Picture picture;
  picture.Add(SignalKind::kQueryCross, 0, 0, 3, {0.9f, 0.05f, 0.05f, 0.3f, 0.3f, 0.4f, 0.3f, 0.3f, 0.4f});
  EXPECT_EQ(ImportanceOf("catp", picture), (std::vector<double>{2 + 0 + 0, 1 + 2 + 2, 0 + 1 + 1}));
}

TEST(Catp, RefusesWhatTheEncoderLacks) {
  const Picture whole = GoldenPicture(ReadPruners());
  Picture none, no_mass = whole;
  no_mass.shapes.erase(SignalKind::kImageMass);
  const auto code = [](const char* spec, const Picture& picture) {
    auto pruner = std::move(std::move(ParsePrunerSpec(spec)).value().Make()).value();
    return pruner->MemoryBytes(picture).status().code();
  };
  for (const PrunerInfo* info : AllPrunerInfos()) {
    EXPECT_EQ(code(info->name, none), StatusCode::kUnsupported);
    EXPECT_EQ(code(info->name, whole), StatusCode::kOk);
  }
  EXPECT_EQ(code("catp:weights=image", no_mass), StatusCode::kUnsupported);
  EXPECT_EQ(code("catp", no_mass), StatusCode::kOk);
  EXPECT_EQ(code("catp:layers=5", whole), StatusCode::kOk);
  EXPECT_EQ(code("catp:layers=6", whole), StatusCode::kInvalidArgument);
}

TEST(PrunerSpec, ReadsTheFormOfPolicies) {
  const auto spec = ParsePrunerSpec("catp:keep=0.25,layers=0+2");
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->text, "catp:keep=0.25,layers=0+2,weights=none,layer_weights=even");
  EXPECT_EQ(spec->keep(), 0.25);
  EXPECT_EQ(ParsePrunerSpec(spec->text)->text, spec->text);
  EXPECT_EQ(ParsePrunerSpec("l2")->text, "l2:keep=0.5");
  EXPECT_EQ(ParsePrunerSpec("nobody").status().code(), StatusCode::kNotFound);
  for (const char* bad :
       {"catp:", "catp:keep", "catp:keep=", "catp:keep=1.5", "catp:keep=nan", "catp:keep=0.5,keep=0.5",
        "catp:layers=", "catp:layers=0+", "catp:layers=-1", "catp:layers=1+1", "catp:layers=one",
        "catp:layers=99999999999", "catp:weights=some", "catp:profile=x", "l2:layers=all"}) {
    EXPECT_EQ(ParsePrunerSpec(bad).status().code(), StatusCode::kInvalidArgument) << bad;
  }
}

TEST(RowsKept, RoundsHalfUpAndKeepsOne) {
  EXPECT_EQ(RowsKept(32, 0.5), 16);
  EXPECT_EQ(RowsKept(32, 0.125), 4);
  EXPECT_EQ(RowsKept(5, 0.5), 3);
  EXPECT_EQ(RowsKept(32, 0), 1);
  EXPECT_EQ(RowsKept(32, 1), 32);
}

}  // namespace
}  // namespace weir
