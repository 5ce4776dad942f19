/* SPDX-License-Identifier: Apache-2.0 */
/* Weir in C: a language model that reads a stream without an end inside a pot of fixed size.
 *
 * A model is loaded once and shared; a session is one stream with a pot of its own, whose bytes are reserved when it is
 * made and never grow. What does not fit is forgotten by the session's policy, never refused, and
 * weir_session_counters() says how much that was.
 *
 * Every function that can fail returns a weir_status; weir_last_error() then has the reason as one line. No exception
 * and no signal comes out of this interface, and nothing is printed. Handles may be NULL where that is an error: the
 * answer is WEIR_INVALID_ARGUMENT. Texts are UTF-8 and given with their length in bytes; they need not end with a zero.
 *
 * Threads: a model's functions may be called by several threads, but only one at a time may be in a call that computes
 * (append, generate, logits) on sessions of the same model. A session belongs to one thread at a time.
 *
 * Structs begin with `struct_bytes`, set to their size by the *_INIT macros: a program that was built with an older
 * header goes on working with a newer library.
 */
#ifndef WEIR_WEIR_H_
#define WEIR_WEIR_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define WEIR_API __attribute__((visibility("default")))
#else
#define WEIR_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_status {
  WEIR_OK = 0,
  WEIR_INVALID_ARGUMENT = 1, /* something was asked for that cannot be honoured */
  WEIR_NOT_FOUND = 2,        /* no such file or policy */
  WEIR_CORRUPT = 3,          /* a file whose bytes contradict themselves */
  WEIR_UNSUPPORTED = 4,      /* well-formed, but this build cannot do it */
  WEIR_OVER_BUDGET = 5,      /* the budget has not enough bytes, or a pot that may not forget is full */
  WEIR_IO = 6,               /* the operating system refused */
  WEIR_CANCELLED = 7,        /* a callback asked to stop */
  WEIR_INTERNAL = 8          /* a broken promise of the library's own, or no memory */
} weir_status;

/* Why the last call of this thread failed; "" when none did. Good until the thread's next call. Never NULL. */
WEIR_API const char* weir_last_error(void);
/* "0.2.0". */
WEIR_API const char* weir_version(void);

/* ---- models */

typedef struct weir_model weir_model;

typedef struct weir_model_options {
  size_t struct_bytes;
  int32_t n_threads;         /* 0: one for every usable core */
  const char* device;        /* "cpu"; "cuda"; "auto": a GPU where there is one, else the CPU; "ref": the slow scalar
                                reference. NULL: "cpu". WEIR_UNSUPPORTED for a GPU that this build or machine lacks */
  const char* mmproj;        /* the model's vision encoder, a GGUF file; NULL: no pictures */
  const char* chat_template; /* the name of a chat template; NULL: the file's, if it has one */
} weir_model_options;
#define WEIR_MODEL_OPTIONS_INIT \
  { sizeof(weir_model_options), 0, NULL, NULL, NULL }

/* Loads a GGUF file. `options` may be NULL. *model is the caller's to close, after all its sessions. A chat template in
 * the file that this build does not know is no error here; weir_session_ask() then is. */
WEIR_API weir_status weir_model_open(const char* path, const weir_model_options* options, weir_model** model);
/* NULL does nothing. */
WEIR_API void weir_model_close(weir_model* model);

typedef struct weir_model_info {
  size_t struct_bytes;
  int32_t n_vocab, n_embd, n_layers, n_ctx_train;
  int64_t weight_bytes;     /* that the weights hold in memory, the encoder's included */
  int32_t has_chat;         /* not 0: there is a chat template */
  int32_t has_vision;       /* not 0: there is a vision encoder */
  int32_t tokens_a_picture; /* at most; 0 without an encoder */
} weir_model_info;
#define WEIR_MODEL_INFO_INIT \
  { sizeof(weir_model_info), 0, 0, 0, 0, 0, 0, 0, 0 }
WEIR_API weir_status weir_model_describe(const weir_model* model, weir_model_info* info);

/* Text to token ids. Writes at most `capacity` of them; *n_ids is how many there are, so that a call with capacity 0
 * tells how much room is needed. add_special: begin-of-stream and end-of-stream where the file asks for them. */
WEIR_API weir_status weir_model_encode(const weir_model* model, const char* text, size_t n_bytes, int add_special,
                                       int32_t* ids, size_t capacity, size_t* n_ids);
/* Token ids to text, by the same rule; no zero is written at the end. */
WEIR_API weir_status weir_model_decode(const weir_model* model, const int32_t* ids, size_t n_ids, char* text,
                                       size_t capacity, size_t* n_bytes);

/* ---- sessions */

typedef struct weir_session weir_session;

typedef struct weir_session_options {
  size_t struct_bytes;
  const char* policy;   /* "NAME" or "NAME:key=value,..." of `weir policies`; NULL: "weir" */
  int32_t pot_tokens;   /* tokens kept per layer and head; 0: as many as budget_bytes holds, or 4096 at most */
  int64_t budget_bytes; /* 0: no limit but the pot */
  int32_t chunk_tokens; /* tokens read at once; 0: a quarter of the pot, at most 256 */
  int32_t never_forget; /* not 0: a full pot is WEIR_OVER_BUDGET */
  const char* prune;    /* "NAME" or "NAME:key=value,..." of `weir pruners`, which drops rows of pictures; NULL: none */
  int32_t picture_side; /* pictures are shrunk to so many pixels on their longer side; 0: 1024. Their memory is part of
                           the session's bytes where the model has an encoder */
} weir_session_options;
#define WEIR_SESSION_OPTIONS_INIT \
  { sizeof(weir_session_options), NULL, 0, 0, 0, 0, NULL, 0 }

/* `options` may be NULL. *session is the caller's to close. WEIR_OVER_BUDGET names the smallest budget that works. */
WEIR_API weir_status weir_session_open(weir_model* model, const weir_session_options* options, weir_session** session);
/* NULL does nothing. */
WEIR_API void weir_session_close(weir_session* session);

enum {
  WEIR_PINNED = 1,        /* these tokens are never forgotten */
  WEIR_END_OF_PROMPT = 2, /* an answer follows: policies that compress there do */
  WEIR_SPECIAL = 4        /* texts only: begin-of-stream where the file asks for it; the texts of control tokens are
                             recognised. For texts of your own, not for those of users. */
};
/* Reads any number of tokens. */
WEIR_API weir_status weir_session_append_tokens(weir_session* session, const int32_t* ids, size_t n_ids,
                                                uint32_t flags);
/* Reads a text of any length. */
WEIR_API weir_status weir_session_append_text(weir_session* session, const char* text, size_t n_bytes, uint32_t flags);

/* Logits of the next token; *n_logits is the size of the vocabulary. Good until the session's next call. */
WEIR_API weir_status weir_session_logits(weir_session* session, const float** logits, size_t* n_logits);

typedef struct weir_generate_options {
  size_t struct_bytes;
  int64_t max_tokens; /* -1: until the model ends its answer */
  float temperature;  /* 0: always the most likely token */
  int32_t top_k;      /* 0: all */
  float top_p;        /* 1: all */
  float min_p;        /* 0: all */
  uint64_t seed;
  int32_t ignore_end; /* not 0: go on after the model ends its answer */
} weir_generate_options;
#define WEIR_GENERATE_OPTIONS_INIT \
  { sizeof(weir_generate_options), -1, 0.8f, 40, 0.95f, 0.05f, 0, 0 }

/* Gets whole characters as they become complete, not ended by a zero. Not 0 stops the answer. */
typedef int (*weir_text_callback)(const char* text, size_t n_bytes, void* user);

typedef enum weir_end { WEIR_ENDED = 0, WEIR_MAX_TOKENS = 1, WEIR_STOPPED = 2, WEIR_POT_FULL = 3 } weir_end;

/* Continues the session. `options`, `on_text`, `n_tokens` (how many were generated) and `end` (why no more) may be
 * NULL. */
WEIR_API weir_status weir_session_generate(weir_session* session, const weir_generate_options* options,
                                           weir_text_callback on_text, void* user, size_t* n_tokens, weir_end* end);

/* ---- chats
 *
 * A session becomes a chat with its first call of this part, or of the next one. The words of the model's chat template
 * are then read by the library: what is appended as text, picture or video belongs to the user's turn, and
 * weir_session_ask() ends it. A model without a template gets plain words ("Question: ... Answer:").
 * weir_session_append_tokens(), weir_session_append_text() and weir_session_generate() stay what they are: they read
 * and write without any template, and have no place inside a chat. */

/* What stands before the first turn. Optional; the first call of a chat, WEIR_INVALID_ARGUMENT later. `system` may be
 * NULL with n_bytes 0. Flags: WEIR_PINNED. */
WEIR_API weir_status weir_session_begin_chat(weir_session* session, const char* system, size_t n_bytes, uint32_t flags);
/* Reads a text of any length as part of the user's turn. Flags: WEIR_PINNED. */
WEIR_API weir_status weir_session_say(weir_session* session, const char* text, size_t n_bytes, uint32_t flags);
/* Reads a question, which ends the turn, and writes the answer. The rest as weir_session_generate(). */
WEIR_API weir_status weir_session_ask(weir_session* session, const char* question, size_t n_bytes,
                                      const weir_generate_options* options, weir_text_callback on_text, void* user,
                                      size_t* n_tokens, weir_end* end);

/* ---- pictures and video, as part of the user's turn. WEIR_INVALID_ARGUMENT without an encoder.
 *
 * Files are decoded by `ffmpeg` in a process of its own, with limits on time and memory. Times are milliseconds of the
 * stream; a stream's clock never runs back. */

/* A picture from a file. Flags: WEIR_PINNED. */
WEIR_API weir_status weir_session_see_file(weir_session* session, const char* path, uint32_t flags);
/* A picture as pixels: `height` lines of `width` pixels, 3 bytes each (red, green, blue), without gaps. t_ms: -1 for a
 * picture by itself; otherwise it is a frame of a video, of that moment. A frame may be larger than picture_side by no
 * pixel: WEIR_UNSUPPORTED. Flags: WEIR_PINNED. */
WEIR_API weir_status weir_session_see_pixels(weir_session* session, const uint8_t* rgb, int32_t width, int32_t height,
                                             int64_t t_ms, uint32_t flags);
/* A video from a file, `frames_per_s` frames of each second. *n_frames (may be NULL): how many were read, before an
 * error as well. Flags: WEIR_PINNED. */
WEIR_API weir_status weir_session_see_video(weir_session* session, const char* path, double frames_per_s,
                                            uint32_t flags, int64_t* n_frames);

/* ---- what a session holds */

typedef struct weir_counters {
  size_t struct_bytes;
  int64_t seen;       /* tokens read or generated so far */
  int64_t kept;       /* of them, held in at least one layer and head */
  int64_t dropped;    /* seen - kept */
  int64_t selections; /* times the pot had to shrink */
  int64_t bytes;      /* of this session, from its first moment to its last */
} weir_counters;
#define WEIR_COUNTERS_INIT \
  { sizeof(weir_counters), 0, 0, 0, 0, 0 }
WEIR_API weir_status weir_session_counters(const weir_session* session, weir_counters* counters);

/* Forgets everything; the session is as new. */
WEIR_API weir_status weir_session_reset(weir_session* session);
/* The session as bytes, its chat and the frames that its encoder keeps included: writes at most `capacity` of them,
 * *n_bytes is how many there are (nothing is written when they do not fit; after an error they mean nothing). A session
 * of the same build, model and options that restores them continues with the same bytes. */
WEIR_API weir_status weir_session_save(const weir_session* session, uint8_t* bytes, size_t capacity, size_t* n_bytes);
/* WEIR_INVALID_ARGUMENT when the bytes are not from such a session, which then is as it was. */
WEIR_API weir_status weir_session_restore(weir_session* session, const uint8_t* bytes, size_t n_bytes);

#ifdef __cplusplus
}
#endif

#endif /* WEIR_WEIR_H_ */
