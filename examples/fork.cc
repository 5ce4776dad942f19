// SPDX-License-Identifier: Apache-2.0
// Forks a session into two that continue from the same state; handles errors by their status code.
//
//     fork MODEL.gguf
#include <cstdio>
#include <weir/weir.hpp>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "fork MODEL.gguf\n");
    return 2;
  }
  try {
    const weir::ModelHandle model(argv[1]);
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.policy = "h2o";
    options.pot_tokens = 64;
    weir::SessionHandle one(model, options), two(model, options);
    one.Append("the man and the sea", WEIR_SPECIAL);
    for (int i = 0; i < 50; ++i) one.Append(" and the boat");
    two.Restore(one.Save());

    weir_generate_options writing = WEIR_GENERATE_OPTIONS_INIT;
    writing.max_tokens = 16;
    writing.ignore_end = 1;
    writing.seed = 7;
    const std::string text = one.Generate(writing);
    std::printf("both go on alike: %s\n", two.Generate(writing) == text ? "yes" : "no");
    std::printf("and have seen the same: %s\n", one.counters().seen == two.counters().seen ? "yes" : "no");
    const std::vector<std::int32_t> ids = model.Encode("the boat", false);
    std::printf("decoded: %s\n", model.Decode(ids).c_str());

    options.pot_tokens = 0;
    options.budget_bytes = 1;
    try {
      weir::SessionHandle none(model, options);
    } catch (const weir::Error& error) {
      std::printf("a byte is too little: %s\n", error.status() == WEIR_OVER_BUDGET ? "yes" : "no");
    }
    return 0;
  } catch (const weir::Error& error) {
    std::fprintf(stderr, "fork: %s\n", error.what());
    return 1;
  }
}
