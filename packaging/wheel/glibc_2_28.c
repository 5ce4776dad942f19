// SPDX-License-Identifier: Apache-2.0
// What the wheel's library and program call that glibc 2.28 does not have (scripts/build-wheel links against its symbols).
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

// glibc 2.32. Atomic operations are then always atomic, which is what they are without it.
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;

// glibc 2.36: 32 random bits for std::random_device.
__attribute__((visibility("hidden"))) uint32_t arc4random(void) {
  uint32_t out = 0;
  if (getentropy(&out, sizeof(out)) != 0) abort();  // as the real one
  return out;
}

// glibc 2.30: waits until a moment of a clock of the caller's choice. Here it becomes the same distance of the real-time
// clock, which is what the standard library did before: a clock that is set meanwhile moves the moment.
__attribute__((visibility("hidden"))) int pthread_cond_clockwait(pthread_cond_t* cond, pthread_mutex_t* mutex,
                                                                 clockid_t clock, const struct timespec* until) {
  struct timespec at = *until;
  if (clock != CLOCK_REALTIME) {
    struct timespec here, real;
    clock_gettime(clock, &here);
    clock_gettime(CLOCK_REALTIME, &real);
    at.tv_sec = real.tv_sec + (until->tv_sec - here.tv_sec);
    at.tv_nsec = real.tv_nsec + (until->tv_nsec - here.tv_nsec);
    for (; at.tv_nsec < 0; at.tv_nsec += 1000000000) --at.tv_sec;
    for (; at.tv_nsec >= 1000000000; at.tv_nsec -= 1000000000) ++at.tv_sec;
  }
  return pthread_cond_timedwait(cond, mutex, &at);
}

// glibc 2.34: the child closes every descriptor from this one on. Here those that are open now.
__attribute__((visibility("hidden"))) int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t* actions,
                                                                                   int from) {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == NULL) return 0;
  int error = 0;
  const int own = dirfd(folder);
  for (struct dirent* entry; error == 0 && (entry = readdir(folder)) != NULL;) {
    const int fd = atoi(entry->d_name);  // 0 for "." and ".."
    if (fd >= from && fd != own) error = posix_spawn_file_actions_addclose(actions, fd);
  }
  closedir(folder);
  return error;
}
