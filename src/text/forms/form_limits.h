// SPDX-License-Identifier: Apache-2.0
// How large forms may get: counts of parts and steps, never time, so that the same form ends the same way on every
// machine.
#pragma once

#include <algorithm>
#include <cstdint>

namespace weir::forms {

#ifdef WEIR_FUZZ_SMALL_LIMITS  // so that hostile expressions meet them soon, and a fuzzer tries many
inline constexpr int64_t kMaxDfaStates = 500, kMaxDfaCells = 20'000, kMaxDfaWork = 200'000;
#else
inline constexpr int64_t kMaxDfaStates = 20'000;
inline constexpr int64_t kMaxDfaCells = 2'000'000;  // states x classes of characters
inline constexpr int64_t kMaxDfaWork = 20'000'000;  // steps of making one
#endif

// Nodes and edges of a network.
inline constexpr int64_t kMaxNetworkSize = 600'000;

// Automata of characters: steps that may still be taken, all of them together, and how large each may get.
struct DfaWork {
  int64_t steps = 40'000'000;
  int64_t max_states = kMaxDfaStates, max_cells = kMaxDfaCells;
  int64_t max_nodes = 60'000, max_edges = 500'000;  // of what it is made from
};

// What compiling schemas into one network may take, all of them together: for combinations of their parts, and for
// automata of patterns and formats.
struct SchemaWork {
  int64_t combinations = 3'000'000;
  int64_t max_goals = 20'000;  // schemas that hold together, of one schema
  DfaWork automata;
};

// Of one form.
struct FormLimits {
  int64_t text_bytes = 1 << 20;  // of a schema, a grammar, an expression, all choices
  int64_t network = kMaxNetworkSize;
  SchemaWork work;
  int64_t state_nodes = 1 << 16;   // of one state of its automaton
  int64_t cache_bytes = 48 << 20;  // states and masks that are kept, beyond which they are computed anew

  // Those of forms that are made in so many bytes. What making takes of each part is measured with hostile forms
  // (text/form_memory_test.cc): 50 to 100 bytes for one of a schema's text, 210 for a node or edge, 13 MB for the
  // largest automata and combinations.
  static FormLimits For(int64_t work_bytes) {
    FormLimits out;
    out.text_bytes = std::min(out.text_bytes, work_bytes / 192);
    out.network = std::min(out.network, work_bytes / 256);
    out.state_nodes = std::min(out.state_nodes, work_bytes / 256);
    out.cache_bytes = std::min(out.cache_bytes, work_bytes / 2);
    const auto less = [&](int64_t* limit) {
      *limit = std::min(
          *limit, static_cast<int64_t>(static_cast<double>(*limit) * (static_cast<double>(work_bytes) / (24 << 20))));
    };
    DfaWork& automata = out.work.automata;
    for (int64_t* limit : {&out.work.max_goals, &automata.max_states, &automata.max_cells, &automata.max_nodes,
                           &automata.max_edges, &automata.steps}) {
      less(limit);
    }
    return out;
  }
};

}  // namespace weir::forms
