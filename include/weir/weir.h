/* SPDX-License-Identifier: Apache-2.0 */
/* The C API of Weir: a language model that reads an endless stream in a pot of fixed size.
 *
 * A model is loaded once and shared. A session is one stream with its own pot; its memory is reserved when the session
 * is opened and never grows. Input that does not fit is not refused: the session's policy drops older tokens to make
 * room, and weir_session_counters() reports how many.
 *
 * Every function that can fail returns a weir_status; weir_last_error() then returns the reason as one line. The
 * library throws no exception, raises no signal and prints nothing. A NULL handle gives WEIR_INVALID_ARGUMENT. Texts
 * are UTF-8, passed with their length in bytes; they need not be zero-terminated.
 *
 * Threads: a model's functions may be called from several threads, but for each model only one thread at a time may run
 * a call that computes on its sessions (append, generate, logits). A session must be used by one thread at a time.
 *
 * Structs begin with `struct_bytes`, which the *_INIT macros set to the struct's size: a program that was built with an
 * older header keeps working with a newer library. New fields come at the end, and zero is their default: an older
 * library takes the struct of a newer header as long as what it does not know is zero, and refuses it with
 * WEIR_INVALID_ARGUMENT otherwise.
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
  WEIR_INVALID_ARGUMENT = 1, /* the request cannot be honoured */
  WEIR_NOT_FOUND = 2,        /* no such file or policy */
  WEIR_CORRUPT = 3,          /* a file whose bytes contradict themselves */
  WEIR_UNSUPPORTED = 4,      /* well-formed, but this build cannot do it */
  WEIR_OVER_BUDGET = 5,      /* the budget is too small, or a pot that may not forget is full */
  WEIR_IO = 6,               /* the operating system reported an error */
  WEIR_CANCELLED = 7,        /* a callback asked to stop */
  WEIR_INTERNAL = 8          /* a bug in the library, or out of memory */
} weir_status;

/* Why this thread's last call failed; "" if it did not. Valid until the thread's next call. Never NULL. */
WEIR_API const char* weir_last_error(void);
/* "0.2.0". */
WEIR_API const char* weir_version(void);
/* Raised when a function or a struct changes in such a way that programs built with an older header stop working. A
 * caller that declares this header's functions itself compares weir_abi() with the WEIR_ABI that it was written for. */
#define WEIR_ABI 1
WEIR_API int32_t weir_abi(void);

/* ---- models */

typedef struct weir_model weir_model;

typedef struct weir_model_options {
  size_t struct_bytes;
  int32_t n_threads;         /* 0: one per usable core */
  const char* device;        /* "cpu"; "cuda"; "auto": a GPU if there is one, else the CPU; "ref": the slow scalar
                                reference. NULL: "cpu". WEIR_UNSUPPORTED for a GPU that this build or machine lacks */
  const char* mmproj;        /* path of the model's vision encoder, a GGUF file; NULL: no pictures */
  const char* chat_template; /* name of a chat template, or the text of a Jinja template; NULL: the model file's */
  const char* chat_template_kwargs; /* a JSON object that a Jinja template is given; NULL: nothing */
  const char* draft;  /* path of a draft model: a smaller one of the same vocabulary, which guesses what comes next so
                         that answers take fewer steps; no answer changes with it. NULL: none */
  const char* packed; /* folder for the weights as the CPU's kernels want them, as large as the model: a later
                         weir_model_open() maps them from there. They are written when nothing else is to be done, and
                         weir_model_close() waits for it; what fails there costs time alone. NULL: none */
} weir_model_options;
#define WEIR_MODEL_OPTIONS_INIT \
  { sizeof(weir_model_options), 0, NULL, NULL, NULL, NULL, NULL, NULL }

/* Loads a GGUF file. `options` may be NULL. The caller owns *model and closes it after all its sessions. If the file
 * has a chat template that cannot be used, loading succeeds, but weir_session_ask() fails. */
WEIR_API weir_status weir_model_open(const char* path, const weir_model_options* options, weir_model** model);
/* NULL does nothing. */
WEIR_API void weir_model_close(weir_model* model);

typedef struct weir_model_info {
  size_t struct_bytes;
  int32_t n_vocab, n_embd, n_layers, n_ctx_train;
  int64_t weight_bytes;     /* memory of the weights, including the encoder's and the draft's */
  int32_t has_chat;         /* non-zero: there is a chat template */
  int32_t has_vision;       /* non-zero: there is a vision encoder */
  int32_t tokens_a_picture; /* at most; 0 without an encoder */
  int32_t bos_id, eos_id;   /* begin and end of a stream; -1: the vocabulary has none */
  int32_t weights_mapped;   /* non-zero: from the folder `packed`, as an earlier start left them */
} weir_model_info;
#define WEIR_MODEL_INFO_INIT \
  { sizeof(weir_model_info), 0, 0, 0, 0, 0, 0, 0, 0, -1, -1, 0 }
WEIR_API weir_status weir_model_describe(const weir_model* model, weir_model_info* info);

/* Text to token ids. Writes at most `capacity` ids and sets *n_ids to the full number, so a call with capacity 0
 * returns the required size. add_special: adds begin-of-stream and end-of-stream tokens if the model file asks for
 * them. */
WEIR_API weir_status weir_model_encode(const weir_model* model, const char* text, size_t n_bytes, int add_special,
                                       int32_t* ids, size_t capacity, size_t* n_ids);
/* Token ids to text, by the same rule; the text is not zero-terminated. */
WEIR_API weir_status weir_model_decode(const weir_model* model, const int32_t* ids, size_t n_ids, char* text,
                                       size_t capacity, size_t* n_bytes);

/* ---- policies of your own: what stays when the pot is full, decided by a function of the caller's
 *
 * A policy sees the metadata of the pot and the statistics that it asked for, never keys or values. Slots of one
 * metadata group (the whole pot, a layer, or a KV head of a layer) share one decision. */

/* A stored token. 24 bytes, now and later. */
typedef struct weir_slot {
  int64_t seq;      /* its place in the stream; 0 is the first token ever read */
  int64_t t_ms;     /* its stream time */
  int32_t token_id; /* below 0: a row of a picture that has -token_id % 131072 columns; what is above that is, for a
                       frame of a video that stands behind the frame before it, 1 + its steps in time from there */
  uint8_t modality; /* 0 text, 1 picture, 2 frame of a video */
  uint8_t pinned;   /* non-zero: must be kept */
  uint16_t row;     /* its place in its picture or frame: seq - row is equal for all of these */
} weir_slot;

/* One group at a selection. The pointers are valid during the call; they point into the session's own memory. */
typedef struct weir_view {
  size_t struct_bytes;           /* of this library's struct: the fields that it knows */
  int32_t group, layer, head;    /* -1: the decision covers all layers, or all heads */
  int32_t n_layers, n_kv_heads;  /* layers that a policy chooses for; KV heads of this one, or the most of any */
  int32_t n_rows;                /* query rows that voted in `scores` since they were last reset: a mean's divisor */
  int32_t n_unscored;            /* the newest slots, read after `scores` were collected: theirs are 0 */
  int64_t n_seen;                /* tokens of the stream so far */
  int64_t n_seen_visual;         /* of these, rows of pictures */
  size_t n_slots;                /* in use; every array has so many entries */
  const weir_slot* slots;        /* oldest first */
  const float* scores;           /* the declared statistic, or NULL */
  const float* nll;              /* -log P of each token when it was read; +inf for the stream's first; or NULL */
  const float *novelty, *visual; /* further statistics that some built-in policies declare (`like`), or NULL */
  int32_t* keep; /* [n_slots] to be filled: the slots that stay, strictly ascending, every pinned one among them */
  size_t n_kept; /* to be set */
  const float* scenes; /* a further one: 0 for text, else the number of the scene that a picture's row belongs to,
                          negative where the scene's first frame showed the same; or NULL */
} weir_view;

/* Decides for all groups at once: on average n_keep slots may stay in each, and exactly that many in each unless
 * `like` names a policy whose heads share a budget. Must not call the session. Non-zero: the call that needed room
 * fails with WEIR_CANCELLED, and nothing was forgotten. */
typedef int (*weir_select_callback)(weir_view* const* views, size_t n_views, int32_t n_keep, void* user);
/* The pot holds n_slots and n_coming new tokens need room: how many slots to keep, from 0 to n_slots - n_coming. Fewer
 * make selections rarer and larger. */
typedef int32_t (*weir_target_callback)(int32_t n_slots, int32_t n_coming, void* user);
/* For policies like ones that drop tokens at the end of each prompt though the pot has room ("a_vl", "fastv"): any
 * number of slots may stay, and a different one in each group. Otherwise as weir_select_callback. */
typedef int (*weir_trim_callback)(weir_view* const* views, size_t n_views, void* user);

typedef enum weir_share { WEIR_ALL = 0, WEIR_LAYER = 1, WEIR_HEAD = 2 } weir_share; /* what shares a decision */
typedef enum weir_positions {
  WEIR_CACHE = 0, /* a token's position is its slot */
  WEIR_RESET = 1, /* the same, numbered anew by whole distillations: selections wait until the pot is full */
  WEIR_ABS = 2    /* its place in the stream; leaves the trained context on long streams */
} weir_positions;
typedef enum weir_rows {
  WEIR_NO_ROWS = 0,
  WEIR_LAST_ROWS = 1, /* the newest n_last rows of the latest prompt, or of the chunk that filled the pot */
  WEIR_ALL_ROWS = 2,  /* every row since a slot was stored */
  WEIR_PROBE_ROWS = 3 /* the rows of `probe`, a text that is read before each selection and removed again */
} weir_rows;
typedef enum weir_reduce { WEIR_SUM = 0, WEIR_MAX = 1, WEIR_MEAN = 2 } weir_reduce;
typedef enum weir_vector { WEIR_NO_VECTOR = 0, WEIR_KEY_DIFF = 1, WEIR_VALUE_NORM = 2 } weir_vector;

typedef struct weir_policy {
  size_t struct_bytes;
  const char* name; /* in messages and traces. A saved session goes on only under the same name */
  weir_select_callback select;
  weir_target_callback target; /* NULL: that of `like`, else a sixteenth of the pot is freed at once */
  void* user;                  /* handed to both; valid for as long as the session, and every fork of it */
  const char* like;   /* "NAME" or "NAME:key=value,...", a built-in policy: declares what follows in its stead, and says
                         when to select, and which of the stored slots a step reads. NULL: the fields below */
  int32_t share;      /* weir_share; attention and vectors need WEIR_LAYER or WEIR_HEAD */
  int32_t positions;  /* weir_positions */
  int32_t rows;       /* weir_rows: whose attention `scores` holds */
  int32_t n_last;     /* WEIR_LAST_ROWS */
  int32_t row_reduce; /* WEIR_SUM or WEIR_MAX over the rows */
  int32_t head_reduce;     /* WEIR_MEAN, WEIR_MAX or WEIR_SUM over the query heads of a group */
  int32_t vector;          /* weir_vector: in `scores` instead of attention */
  int32_t nll;             /* non-zero: the view has nll; 2: estimated, in a seventh of the time */
  const char* probe;       /* WEIR_PROBE_ROWS */
  int32_t min_tokens;      /* the smallest pot that it can work with; 0: 2 */
  weir_trim_callback trim; /* NULL: nothing is dropped at the end of a prompt, whatever `like` itself does there */
} weir_policy;
#define WEIR_POLICY_INIT \
  { sizeof(weir_policy), NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 1, 0, 2, 0, 0, NULL, 0, NULL }

/* ---- sessions */

typedef struct weir_session weir_session;

typedef struct weir_session_options {
  size_t struct_bytes;
  const char* policy;   /* "NAME" or "NAME:key=value,..." as in `weir policies`; NULL: "weir" */
  int32_t pot_tokens;   /* tokens kept per layer and head; 0: as many as fit in budget_bytes, at most 4096 */
  int64_t budget_bytes; /* 0: only the pot limits the session */
  int32_t chunk_tokens; /* tokens per forward pass; 0: a quarter of the pot, at most 256 */
  int32_t never_forget; /* non-zero: a full pot gives WEIR_OVER_BUDGET */
  const char* prune;    /* "NAME" or "NAME:key=value,..." as in `weir pruners`; drops rows of pictures; NULL: none */
  int32_t picture_side; /* pictures are shrunk to this many pixels on their longer side; 0: 1024. If the model has an
                           encoder, their memory is part of the session's bytes */
  const char* recall;   /* "NAME" or "NAME:key=value,..." as in `weir recall`: keeps everything read on disk and brings
                           back what a question is about (see "recall"); NULL or "off": nothing is kept */
  const char* recall_dir;    /* folder of the archive: new, empty, or the one of the session to be restored; NULL: files
                                without names in /var/tmp, gone with the session */
  int64_t recall_disk_bytes; /* the archive's largest size, beyond which its oldest part is deleted; 0: 2 GiB */
  int32_t recall_tokens;     /* room beside the pot for what is brought back; 0: a quarter of the pot */
  const weir_policy* own_policy; /* a policy of the caller's, copied; `policy` must then be NULL. NULL: none */
  int32_t likelihoods;           /* non-zero: weir_session_score() can be used; takes memory for it */
  const char *k_type, *v_type;   /* of stored keys and values, as --cache-type-k: "f16", "q8_0", "q4_0", "small" ...;
                                    NULL: "f16" */
  int32_t rule_tokens; /* slots beside the pot that are kept free for the question of a rule (see "rules"): the
                          tokens of the longest one, about 25 more than the rule's own words take. They are part
                          of the session's bytes; with recall, its room may be among them. 0: no rules */
  /* Several tokens a step: tokens that are guessed from the text, and by the model's draft, and read in one pass with a
   * token of an answer, at most; up to 64. Answers stay the same, and guesses that do not pay end by themselves. Each
   * takes memory for its logits; the draft has a pot of its own. */
  int32_t lookup;     /* from the text; 0: none */
  int32_t draft_most; /* by the draft; 0: 7 if the model has one; negative: none */
  int64_t
      form_bytes; /* memory for answers that are held to a form (weir_generate_options.json_schema and the others), a
                     part of the session's bytes: 16 MiB (16777216) are enough for most forms, 1 MiB is the
                     least. A form that does not fit is refused, and an answer whose form needs more ends with
                     WEIR_UNSUPPORTED. 0: no answer is held to a form */
  int32_t no_media_sandbox; /* ffmpeg reaches what this process reaches; 0: itself and the source alone, where the
                               kernel can do that. For one that cannot start so, as those of snap packages */
} weir_session_options;
#define WEIR_SESSION_OPTIONS_INIT \
  { sizeof(weir_session_options), NULL, 0, 0, 0, 0, NULL, 0, NULL, NULL, 0, 0, NULL, 0, NULL, NULL, 0, 0, 0, 0, 0 }

/* `options` may be NULL. The caller owns *session and closes it. With WEIR_OVER_BUDGET the error message gives the
 * smallest budget that works. */
WEIR_API weir_status weir_session_open(weir_model* model, const weir_session_options* options, weir_session** session);
/* NULL does nothing. */
WEIR_API void weir_session_close(weir_session* session);
/* Opens a second session with the first one's options and everything that it holds; from here on they differ. With
 * recall, the archive is copied: into `recall_dir`, a new or empty folder, or, if it is NULL, into files without names.
 * A trace stays with the first. */
WEIR_API weir_status weir_session_fork(weir_session* session, const char* recall_dir, weir_session** fork);

typedef struct weir_session_info {
  size_t struct_bytes;
  int32_t pot_tokens, chunk_tokens; /* as planned */
  int32_t n_layers, n_kv_heads;     /* layers that a policy chooses for; KV heads of each, the most where they differ */
  int32_t n_groups;                 /* of metadata: 1, the layers, or the KV heads of all layers */
  const char* policy;               /* with the effective value of every option; valid as long as the session */
} weir_session_info;
#define WEIR_SESSION_INFO_INIT \
  { sizeof(weir_session_info), 0, 0, 0, 0, 0, NULL }
WEIR_API weir_status weir_session_describe(const weir_session* session, weir_session_info* info);

/* Called after every chunk that a call of this session reads, with the tokens read so far by that call, and with the
 * same number again between parts of a check of rules. Non-zero: the call ends with WEIR_CANCELLED; what was read stays
 * read, and the session can go on. Between two tokens of an answer nothing is called. NULL: nothing is called from now
 * on. Must not call the session. */
typedef int (*weir_progress_callback)(int64_t n_tokens, void* user);
WEIR_API weir_status weir_session_on_progress(weir_session* session, weir_progress_callback on_progress, void* user);
/* Stream time of the text and the answers that are read from now on, in milliseconds. It never runs backwards: what
 * has a time before the newest token's gets that token's. */
WEIR_API weir_status weir_session_set_time(weir_session* session, int64_t t_ms);

enum {
  WEIR_PINNED = 1,        /* these tokens are never forgotten */
  WEIR_END_OF_PROMPT = 2, /* an answer follows; some policies compress at this point */
  WEIR_SPECIAL = 4        /* text only: adds begin-of-stream if the model file asks for it, and parses control tokens.
                             For your own text, never for user input. */
};
/* Reads any number of tokens. */
WEIR_API weir_status weir_session_append_tokens(weir_session* session, const int32_t* ids, size_t n_ids,
                                                uint32_t flags);
/* Reads a text of any length. */
WEIR_API weir_status weir_session_append_text(weir_session* session, const char* text, size_t n_bytes, uint32_t flags);
/* Reads tokens, and writes -log P of each one, given everything before it, to nll[n_ids]; 0 for the stream's first.
 * WEIR_INVALID_ARGUMENT unless weir_session_options.likelihoods was set. */
WEIR_API weir_status weir_session_score(weir_session* session, const int32_t* ids, size_t n_ids, uint32_t flags,
                                        float* nll);

/* Logits of the next token; *n_logits is the vocabulary size. Valid until the session's next call. */
WEIR_API weir_status weir_session_logits(weir_session* session, const float** logits, size_t* n_logits);

typedef struct weir_generate_options {
  size_t struct_bytes;
  int64_t max_tokens; /* -1: until the model ends its answer */
  float temperature;  /* 0: greedy, always the most likely token */
  int32_t top_k;      /* 0: all */
  float top_p;        /* 1: all */
  float min_p;        /* 0: all */
  uint64_t seed;
  int32_t ignore_end; /* non-zero: continue after the model ends its answer */
  /* What the answer must look like, at most one of four (docs/forms.md); NULL: anything. Only tokens that keep to it
   * are drawn. An answer that max_tokens, a stop text or the caller cuts short need not be whole. A form's memory is
   * not part of the session's bytes: states and masks, at most 48 MiB between two tokens and 112 MiB for a moment, and
   * a network of 600,000 nodes, until the answer ends; and a tree of the vocabulary (10 MiB for 150,000 tokens), which
   * the model keeps from its first form on. */
  const char* json_schema; /* the text of a JSON schema */
  const char* grammar;     /* a GBNF grammar */
  const char* regex;
  const char* const* choices; /* one of n_choices texts */
  size_t n_choices;
  const char* const* stop_texts; /* the answer ends before the first occurrence of any of n_stop_texts */
  size_t n_stop_texts;
} weir_generate_options;
#define WEIR_GENERATE_OPTIONS_INIT \
  { sizeof(weir_generate_options), -1, 0.8f, 40, 0.95f, 0.05f, 0, 0, NULL, NULL, NULL, NULL, 0, NULL, 0 }

/* Receives whole characters as they become complete, not zero-terminated. Return non-zero to stop the answer. */
typedef int (*weir_text_callback)(const char* text, size_t n_bytes, void* user);

typedef enum weir_end {
  WEIR_ENDED = 0,
  WEIR_MAX_TOKENS = 1,
  WEIR_STOPPED = 2,
  WEIR_POT_FULL = 3,
  WEIR_STOP_TEXT = 4
} weir_end;

/* Continues the session. `options`, `on_text`, `n_tokens` (tokens generated) and `end` (why generation stopped) may be
 * NULL. */
WEIR_API weir_status weir_session_generate(weir_session* session, const weir_generate_options* options,
                                           weir_text_callback on_text, void* user, size_t* n_tokens, weir_end* end);

/* The same token by token: begin, next until nothing more comes, end. Until it is ended, calls that read, generate,
 * save or fork give WEIR_INVALID_ARGUMENT; counters, slots and the like may be asked for at any time. */
WEIR_API weir_status weir_session_begin_answer(weir_session* session, const weir_generate_options* options);
/* Draws one token. *text, of *n_bytes, are the whole characters that became complete, valid until the session's next
 * call; often none. *more is zero when this was the last. After an error the answer can only be ended. */
WEIR_API weir_status weir_session_next(weir_session* session, const char** text, size_t* n_bytes, int* more);
/* The same of up to n tokens (1 to 1024) in one call, for callers to whom a call is dear. *text are the characters of
 * all of them, also of those that came before an error. */
WEIR_API weir_status weir_session_next_tokens(weir_session* session, int32_t n, const char** text, size_t* n_bytes,
                                              int* more);
/* Ends the answer, whether it is complete or not. `n_tokens` and `end` may be NULL. */
WEIR_API weir_status weir_session_end_answer(weir_session* session, size_t* n_tokens, weir_end* end);

/* ---- chats
 *
 * A session becomes a chat with its first call to a function of this section or the next. The library then applies the
 * model's chat template: text, pictures and video that you append become part of the user's turn, and
 * weir_session_ask() ends the turn. A model without a template gets plain words ("Question: ... Answer:").
 * weir_session_append_tokens(), weir_session_append_text() and weir_session_generate() apply no template; do not mix
 * them with a chat. */

/* Reads the system message. Optional; must be the first call of a chat, WEIR_INVALID_ARGUMENT later. `system` may be
 * NULL with n_bytes 0. Flags: WEIR_PINNED. */
WEIR_API weir_status weir_session_begin_chat(weir_session* session, const char* system, size_t n_bytes, uint32_t flags);
/* Reads a text of any length as part of the user's turn. Flags: WEIR_PINNED. */
WEIR_API weir_status weir_session_say(weir_session* session, const char* text, size_t n_bytes, uint32_t flags);
/* The same of text that is tokens already. */
WEIR_API weir_status weir_session_say_tokens(weir_session* session, const int32_t* ids, size_t n_ids, uint32_t flags);
/* Reads a question, ends the user's turn and generates the answer. Otherwise like weir_session_generate(). */
WEIR_API weir_status weir_session_ask(weir_session* session, const char* question, size_t n_bytes,
                                      const weir_generate_options* options, weir_text_callback on_text, void* user,
                                      size_t* n_tokens, weir_end* end);
/* Reads the question; the answer comes by weir_session_next(), as after weir_session_begin_answer(). */
WEIR_API weir_status weir_session_begin_ask(weir_session* session, const char* question, size_t n_bytes,
                                            const weir_generate_options* options);

/* ---- pictures and video, as part of the user's turn. WEIR_INVALID_ARGUMENT without an encoder.
 *
 * Files are decoded by `ffmpeg` in a separate process, with limits on time and memory. Times are milliseconds of stream
 * time, which never runs backwards. */

/* A picture from a file. Flags: WEIR_PINNED. */
WEIR_API weir_status weir_session_see_file(weir_session* session, const char* path, uint32_t flags);
/* A picture as pixels: `height` lines of `width` pixels, 3 bytes each (red, green, blue), without padding. t_ms: -1 for
 * a single picture; otherwise the time of this frame of a video. A frame with a side longer than picture_side gives
 * WEIR_UNSUPPORTED. Flags: WEIR_PINNED. */
WEIR_API weir_status weir_session_see_pixels(weir_session* session, const uint8_t* rgb, int32_t width, int32_t height,
                                             int64_t t_ms, uint32_t flags);
/* A video from a file, sampled at `frames_per_s`. *n_frames (may be NULL) receives the number of frames read, also
 * after an error. Flags: WEIR_PINNED. */
WEIR_API weir_status weir_session_see_video(weir_session* session, const char* path, double frames_per_s,
                                            uint32_t flags, int64_t* n_frames);

/* ---- rules, for chats of sessions opened with weir_session_options.rule_tokens; otherwise WEIR_INVALID_ARGUMENT.
 *
 * A rule is something to be told about when it is true of the stream (docs/watch.md): a condition, "a parcel lies at
 * the door", or a question and the answer that counts, "What colour is the light? => red". After weir_session_say(),
 * _say_tokens(), _see_file(), _see_pixels(), and after every frame of _see_video(), all rules are asked aside: their
 * questions are read on top of what the pot holds, the odds of their answers are noted, and nothing of it stays in the
 * stream. An event is told when a rule begins to hold and when it ceases. Rules are saved and restored with their
 * session and what they learned, copied by weir_session_fork(), and removed by weir_session_reset().
 *
 * A call whose check is stopped or fails returns that status: what it read stays read, and its moment was not checked.
 */

typedef struct weir_rule_options {
  size_t struct_bytes;
  const char* id;      /* 1 to 64 letters, digits, - and _; NULL: "r1", "r2", ... */
  double on, off;      /* scores at which an event may begin, and below which it may end: how far the log-odds are above
                          the rule's usual ones, in units of their spread */
  double least;        /* log-odds below which none begins; where they are 3 lower, it may end, too */
  int32_t n_begin;     /* checks in a row that it takes to begin */
  int32_t n_end;       /* and to end */
  int32_t n_calibrate; /* first checks, which only teach the rule what is usual; at most 64 */
  int64_t cooldown_ms; /* stream time after an event in which none begins */
} weir_rule_options;
#define WEIR_RULE_OPTIONS_INIT \
  { sizeof(weir_rule_options), NULL, 3, 1.5, 1.5, 2, 2, 8, 0 }

/* Adds a rule, and begins the chat if it has not begun. `options` may be NULL. At most 64 rules, of at most 1,000 bytes
 * each. WEIR_INVALID_ARGUMENT for an id that is taken and for a question that may need more than rule_tokens;
 * WEIR_UNSUPPORTED for a condition where the vocabulary has no words for yes and no, and for an encoder that reads
 * frames together. */
WEIR_API weir_status weir_session_add_rule(weir_session* session, const char* when, size_t n_bytes,
                                           const weir_rule_options* options);
/* WEIR_NOT_FOUND if there is none of that id. The event that it is in, if any, gets no end. */
WEIR_API weir_status weir_session_remove_rule(weir_session* session, const char* id);

typedef enum weir_rule_state { WEIR_LEARNS = 0, WEIR_WATCHES = 1, WEIR_HOLDS = 2 } weir_rule_state;
typedef struct weir_rule {
  size_t struct_bytes;
  const char *id, *when; /* valid until the session's next call */
  int32_t state;         /* weir_rule_state */
  int32_t asked;         /* non-zero: it was checked, and the next two are those of the last check */
  double score, log_odds;
} weir_rule;
#define WEIR_RULE_INIT \
  { sizeof(weir_rule), NULL, NULL, 0, 0, 0, 0 }
/* The i-th rule, in the order in which they were added. WEIR_NOT_FOUND if there are not as many. */
WEIR_API weir_status weir_session_rule(const weir_session* session, size_t i, weir_rule* rule);

/* A rule began to hold, or ceased. Everything is valid during the call. */
typedef struct weir_event {
  size_t struct_bytes;          /* of this library's struct: the fields that it knows */
  int64_t id;                   /* 1, 2, ... within the stream; never given twice */
  int64_t began_id;             /* of the event that this one ends; its own id if it begins */
  const char *rule, *when;      /* the rule's id and words */
  int32_t began;                /* zero: it ended */
  int64_t t_ms;                 /* stream time of this check */
  int64_t since_ms;             /* and of the first check at which it held */
  double score, log_odds;       /* at this check */
  double peak;                  /* the event's largest score so far */
  int64_t from_token, to_token; /* the part of the stream that speaks for it: places of tokens */
  const int64_t* frames_ms; /* [n_frames] times of the pictures in it that are still held, oldest first; at most 32 */
  size_t n_frames;
  const char* text; /* the last of its words that are still held, at most 1,024 bytes; not zero-terminated */
  size_t n_bytes;
} weir_event;
/* Called for each event, within the call that brought it. Must not call the session. Non-zero: that call ends with
 * WEIR_CANCELLED when all events of the check are told. */
typedef int (*weir_event_callback)(const weir_event* event, void* user);
/* Who is told from now on; NULL: nobody. A fork is not told until it asks for it. */
WEIR_API weir_status weir_session_on_event(weir_session* session, weir_event_callback on_event, void* user);

typedef struct weir_rule_cost {
  size_t struct_bytes;
  int64_t n_checks; /* of all rules, since the session was opened */
  int64_t n_tokens; /* read aside for them */
  double seconds;   /* that this took */
} weir_rule_cost;
#define WEIR_RULE_COST_INIT \
  { sizeof(weir_rule_cost), 0, 0, 0 }
WEIR_API weir_status weir_session_rule_cost(const weir_session* session, weir_rule_cost* cost);

/* ---- recall, for sessions opened with weir_session_options.recall; otherwise WEIR_INVALID_ARGUMENT.
 *
 * Everything that such a session reads is kept on disk, too. weir_session_ask() looks up what the question is about,
 * reads the passages again in front of it, and removes them after the answer: nothing is forgotten for them. Passages
 * that the pot holds close by are not brought back, nor are ones that match too little. Text only. If the disk fails or
 * is full, the session goes on without keeping more (weir_session_flush() says so). */

typedef struct weir_recall_report {
  size_t struct_bytes;
  int64_t n_passages; /* brought back for the last question */
  int64_t n_tokens;   /* that they took */
  double best_score;  /* of everything found, 0 to 1; also of what was not brought back */
  int32_t held;       /* non-zero: the pot holds the best match itself */
  int32_t gated;      /* non-zero: something was found, but it matches too little */
} weir_recall_report;
#define WEIR_RECALL_REPORT_INIT \
  { sizeof(weir_recall_report), 0, 0, 0, 0, 0 }
/* What was brought back for the last weir_session_ask(); all zero before the first. */
WEIR_API weir_status weir_session_recalled(const weir_session* session, weir_recall_report* report);

typedef struct weir_passage {
  size_t struct_bytes;
  int64_t seq, end; /* its tokens' places in the stream: from seq, before end */
  int64_t t_ms;     /* its stream time */
  double score;     /* how much of the question it matches, 0 to 1 */
  const char* text; /* not zero-terminated; valid until the session's next ask, reset or restore */
  size_t n_bytes;
} weir_passage;
#define WEIR_PASSAGE_INIT \
  { sizeof(weir_passage), 0, 0, 0, 0, NULL, 0 }
/* The i-th of them, in the order of the stream. WEIR_INVALID_ARGUMENT if there are not as many. */
WEIR_API weir_status weir_session_recalled_passage(const weir_session* session, size_t i, weir_passage* passage);

/* Hands everything read so far to the operating system, so that it survives the death of the process; asking and
 * closing do so as well. WEIR_IO if the archive was turned off: weir_last_error() says why; the session goes on. */
WEIR_API weir_status weir_session_flush(weir_session* session);
/* Copies the archive, as it is now, into a new or empty folder: a second session, opened with it as recall_dir, can
 * then restore what this one saved. */
WEIR_API weir_status weir_session_copy_archive(weir_session* session, const char* folder);

/* ---- what a session holds */

typedef struct weir_counters {
  size_t struct_bytes;
  int64_t seen;                   /* tokens read or generated so far */
  int64_t kept;                   /* of these, held in at least one layer and head */
  int64_t dropped;                /* seen - kept */
  int64_t selections;             /* times the pot had to shrink */
  int64_t bytes;                  /* memory of this session; constant for its lifetime */
  int64_t guessed, guessed_right; /* tokens that were read in advance, and how many of them came */
} weir_counters;
#define WEIR_COUNTERS_INIT \
  { sizeof(weir_counters), 0, 0, 0, 0, 0, 0, 0 }
WEIR_API weir_status weir_session_counters(const weir_session* session, weir_counters* counters);

/* The slots of one metadata group (weir_session_info.n_groups), oldest first. Valid until the session's next call. */
WEIR_API weir_status weir_session_slots(const weir_session* session, int32_t group, const weir_slot** slots,
                                        size_t* n_slots);
/* Writes what is forgotten from now on to a file, in the format that `weir trace` and `weir remembers` read; the file
 * is complete when the trace or the session ends. NULL ends a trace. WEIR_INVALID_ARGUMENT if one is being written. */
WEIR_API weir_status weir_session_trace(weir_session* session, const char* path);

/* Forgets everything, and deletes what its archive holds; the session is then like a new one. */
WEIR_API weir_status weir_session_reset(weir_session* session);
/* Serialises the session, including its chat and the frames that its encoder keeps. Sets *n_bytes to the size and
 * writes the bytes only if they fit in `capacity`; after an error their content is undefined. A session of the same
 * build, model and options that restores them continues with identical output. With recall, the bytes say how far the
 * archive goes but do not contain it: everything read so far is written to disk first. */
WEIR_API weir_status weir_session_save(const weir_session* session, uint8_t* bytes, size_t capacity, size_t* n_bytes);
/* WEIR_INVALID_ARGUMENT if the bytes do not come from such a session; the session is then unchanged. With recall, the
 * archive must hold what the saved session had read: the session's own, or the same folder, or a copy
 * (weir_session_copy_archive()). What it holds beyond that place is deleted. */
WEIR_API weir_status weir_session_restore(weir_session* session, const uint8_t* bytes, size_t n_bytes);

#ifdef __cplusplus
}
#endif

#endif /* WEIR_WEIR_H_ */
