// SPDX-License-Identifier: Apache-2.0
// A plugin of qemu's user-mode emulation that counts the A64 instructions a program runs:
//   gcc -O2 -shared -fPIC -o count.so tools/arm/count.c && qemu-aarch64 -plugin ./count.so PROGRAM
// With -plugin ./count.so,out=FILE also each block's address, instructions, vector instructions and dot products.
// It declares what it uses of qemu-plugin.h (API 1), which Debian does not install. Exact for one thread.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct qemu_plugin_tb;
struct qemu_plugin_insn;
extern void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t, void (*)(uint64_t, struct qemu_plugin_tb*));
extern void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb*, int, void*, uint64_t);
extern void qemu_plugin_register_atexit_cb(uint64_t, void (*)(uint64_t, void*), void*);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb*);
extern uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb*);
extern struct qemu_plugin_insn* qemu_plugin_tb_get_insn(const struct qemu_plugin_tb*, size_t);
extern const void* qemu_plugin_insn_data(const struct qemu_plugin_insn*);
int qemu_plugin_version = 1;

enum { kAll, kVector, kDot, kKinds };
struct Block {
  uint64_t runs, address, n[kKinds];
  struct Block* next;
};
static struct Block* blocks;
static const char* out;

static void Translated(uint64_t id, struct qemu_plugin_tb* tb) {
  struct Block* b = calloc(1, sizeof *b);
  b->address = qemu_plugin_tb_vaddr(tb), b->n[kAll] = qemu_plugin_tb_n_insns(tb), b->next = blocks, blocks = b;
  for (size_t i = 0; i < b->n[kAll]; ++i) {
    uint32_t w;
    memcpy(&w, qemu_plugin_insn_data(qemu_plugin_tb_get_insn(tb, i)), 4);
    b->n[kVector] += (w >> 25 & 7) == 7;  // vector and floating-point arithmetic
    // sdot and udot, the same by lane, smmla
    b->n[kDot] += (w & 0x9fe0fc00) == 0x0e809400 || (w & 0x9f00f400) == 0x0f00e000 || (w & 0xdfe0f400) == 0x4e80a400;
  }
  qemu_plugin_register_vcpu_tb_exec_inline(tb, 0 /* add */, &b->runs, 1);
}

static void Ended(uint64_t id, void* unused) {
  uint64_t sum[kKinds] = {0};
  FILE* file = out != NULL ? fopen(out, "w") : NULL;
  for (const struct Block* b = blocks; b != NULL; b = b->next) {
    for (int k = 0; k < kKinds; ++k) sum[k] += b->runs * b->n[k];
    if (file == NULL || b->runs == 0) continue;
    fprintf(file, "%lx %lu %lu %lu\n", b->address, b->runs * b->n[0], b->runs * b->n[1], b->runs * b->n[2]);
  }
  if (file != NULL) fclose(file);
  fprintf(stderr, "instructions %lu vector %lu dot %lu\n", sum[kAll], sum[kVector], sum[kDot]);
}

__attribute__((visibility("default"))) int qemu_plugin_install(uint64_t id, const void* info, int argc, char** argv) {
  for (int i = 0; i < argc; ++i) {
    if (strncmp(argv[i], "out=", 4) == 0) out = strdup(argv[i] + 4);
  }
  qemu_plugin_register_vcpu_tb_trans_cb(id, Translated);
  qemu_plugin_register_atexit_cb(id, Ended, NULL);
  return 0;
}
