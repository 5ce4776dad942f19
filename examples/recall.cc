// SPDX-License-Identifier: Apache-2.0
// Says something, reads on until it has left the pot, and asks for it: recall brings it back for the answer.
//
//     recall MODEL.gguf
#include <cstdio>
#include <weir/weir.hpp>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "recall MODEL.gguf\n");
    return 2;
  }
  try {
    const weir::ModelHandle model(argv[1]);
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.policy = "streaming_llm";
    options.pot_tokens = 64;
    options.recall = "words:passages=1";
    options.recall_tokens = 128;
    weir::SessionHandle session(model, options);  // without recall_dir: nothing stays on disk
    session.Say("The harpoon lay in the attic.\n\n");
    for (int i = 0; i < 100; ++i) session.Say("the man and the sea, ");
    const weir_counters before = session.counters();
    std::printf("most has left the pot: %s\n", before.kept <= 64 && before.dropped > 400 ? "yes" : "no");

    weir_generate_options writing = WEIR_GENERATE_OPTIONS_INIT;
    writing.max_tokens = 8;
    session.Ask("Where is the harpoon?", writing);
    for (const weir::Passage& passage : session.Recalled()) {
      std::printf("brought back for the answer: %s\n", passage.text.substr(0, passage.text.find('\n')).c_str());
    }
    std::printf("in the same memory: %s\n", session.counters().bytes == before.bytes ? "yes" : "no");
    return 0;
  } catch (const weir::Error& error) {
    std::fprintf(stderr, "recall: %s\n", error.what());
    return 1;
  }
}
