/* SPDX-License-Identifier: Apache-2.0 */
/* Chats about a picture, in two rounds, and continues identically from a saved session.
 *
 *     picture MODEL.gguf MMPROJ.gguf PICTURE
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

static int fail(void) {
  fprintf(stderr, "picture: %s\n", weir_last_error());
  return 1;
}

/* Prints an answer as it is written. */
static int show(const char* text, size_t n_bytes, void* user) {
  (void)user;
  fwrite(text, 1, n_bytes, stdout);
  return 0; /* go on */
}

static int ask(weir_session* session, const char* question) {
  weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
  options.temperature = 0;
  options.max_tokens = 16;
  printf("%s ", question);
  if (weir_session_ask(session, question, strlen(question), &options, show, NULL, NULL, NULL) != WEIR_OK) return fail();
  printf("\n");
  return 0;
}

int main(int argc, char** argv) {
  weir_model* model = NULL;
  weir_session* session = NULL;
  weir_session* copy = NULL;
  weir_model_options model_options = WEIR_MODEL_OPTIONS_INIT;
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  weir_counters counters = WEIR_COUNTERS_INIT;
  uint8_t* saved = NULL;
  size_t n_saved = 0;

  if (argc != 4) {
    fprintf(stderr, "picture MODEL.gguf MMPROJ.gguf PICTURE\n");
    return 2;
  }
  model_options.mmproj = argv[2];
  if (weir_model_open(argv[1], &model_options, &model) != WEIR_OK) return fail();
  options.pot_tokens = 384;
  if (weir_session_open(model, &options, &session) != WEIR_OK) return fail();
  if (weir_session_see_file(session, argv[3], 0) != WEIR_OK) return fail();
  if (ask(session, "What is on the left?") != 0) return 1;

  /* Save the session: first get the size, then the bytes. */
  if (weir_session_save(session, NULL, 0, &n_saved) != WEIR_OK) return fail();
  saved = malloc(n_saved);
  if (saved == NULL || weir_session_save(session, saved, n_saved, &n_saved) != WEIR_OK) return fail();
  if (weir_session_open(model, &options, &copy) != WEIR_OK) return fail();
  if (weir_session_restore(copy, saved, n_saved) != WEIR_OK) return fail();
  free(saved);
  if (ask(session, "What shape is blue?") != 0 || ask(copy, "What shape is blue?") != 0) return 1;

  if (weir_session_counters(copy, &counters) != WEIR_OK) return fail();
  printf("dropped: %d\n", (int)counters.dropped);
  weir_session_close(copy);
  weir_session_close(session);
  weir_model_close(model);
  return 0;
}
