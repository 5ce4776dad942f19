/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a text ten thousand words long into a pot of 64 tokens, and keeps generating.
 *
 *     endless MODEL.gguf
 */
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

static int fail(void) {
  fprintf(stderr, "endless: %s\n", weir_last_error());
  return 1;
}

static int count(const char* text, size_t n_bytes, void* user) {
  (void)text;
  *(size_t*)user += n_bytes;
  return 0; /* continue */
}

int main(int argc, char** argv) {
  weir_model* model = NULL;
  weir_session* session = NULL;
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  weir_generate_options writing = WEIR_GENERATE_OPTIONS_INIT;
  weir_counters before = WEIR_COUNTERS_INIT, after = WEIR_COUNTERS_INIT;
  const char* words = "the man and the sea and the boat and the river ";
  size_t n_tokens = 0, n_text = 0;
  weir_end end = WEIR_ENDED;
  int i;

  if (argc != 2) {
    fprintf(stderr, "endless MODEL.gguf\n");
    return 2;
  }
  if (weir_model_open(argv[1], NULL, &model) != WEIR_OK) return fail();
  options.policy = "streaming_llm";
  options.pot_tokens = 64;
  if (weir_session_open(model, &options, &session) != WEIR_OK) return fail();
  if (weir_session_append_text(session, words, strlen(words), WEIR_SPECIAL) != WEIR_OK) return fail();
  if (weir_session_counters(session, &before) != WEIR_OK) return fail();
  for (i = 0; i < 1000; ++i) {
    if (weir_session_append_text(session, words, strlen(words), 0) != WEIR_OK) return fail();
  }
  writing.temperature = 0;
  writing.max_tokens = 20;
  writing.ignore_end = 1;
  if (weir_session_generate(session, &writing, count, &n_text, &n_tokens, &end) != WEIR_OK) return fail();
  if (weir_session_counters(session, &after) != WEIR_OK) return fail();
  printf("seen more than 10000: %s\n", after.seen > 10000 ? "yes" : "no");
  printf("kept: %d\n", (int)after.kept);
  printf("the rest is dropped: %s\n", after.seen == after.kept + after.dropped ? "yes" : "no");
  printf("bytes as at the beginning: %s\n", after.bytes == before.bytes ? "yes" : "no");
  printf("written: %d tokens, some text: %s, end %d\n", (int)n_tokens, n_text > 0 ? "yes" : "no", (int)end);
  weir_session_close(session);
  weir_model_close(model);
  return 0;
}
