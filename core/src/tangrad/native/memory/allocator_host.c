/* The host's memory as a driver of the caching allocator. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* MAP_ANONYMOUS, madvise */
#endif
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "allocator.h"

#define HUGE_PAGE ((size_t)2 << 20)
#define SMALL_ALIGNMENT ((size_t)32768) /* the largest alignment an allocator may ask for */

/* Maps one huge page more than asked for and cuts the ends off, so that the rest is aligned. */
static void *map_aligned(size_t nbytes) {
  char *start = mmap(NULL, nbytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                     -1, 0);
  if (start == MAP_FAILED) return NULL;
  size_t before = -(uintptr_t)start & (HUGE_PAGE - 1);
  if (before) munmap(start, before);
  munmap(start + before + nbytes, HUGE_PAGE - before);
#ifdef MADV_HUGEPAGE
  madvise(start + before, nbytes, MADV_HUGEPAGE);
#endif
  return start + before;
}

static size_t whole_pages(size_t nbytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return (nbytes + page - 1) / page * page;
}

static int host_allocate(void *ctx, size_t nbytes, tg_handle *out) {
  (void)ctx;
  void *memory = NULL;
  if (nbytes >= HUGE_PAGE)
    memory = map_aligned(whole_pages(nbytes));
  else if (posix_memalign(&memory, SMALL_ALIGNMENT, nbytes))
    memory = NULL;
  *out = (tg_handle)(uintptr_t)memory;
  return memory ? TG_OK : TG_ENOMEM;
}

static void host_release(void *ctx, tg_handle handle, size_t nbytes) {
  (void)ctx;
  void *memory = (void *)(uintptr_t)handle;
  if (nbytes >= HUGE_PAGE)
    munmap(memory, whole_pages(nbytes));
  else
    free(memory);
}

tg_driver tg_host_driver(void) {
  return (tg_driver){.allocate = host_allocate, .release = host_release};
}

/* Returns SIZE_MAX where there is no such file or no limit in it. */
static size_t read_bytes(const char *path) {
  unsigned long long bytes = 0;
  FILE *file = fopen(path, "r");
  if (!file) return SIZE_MAX;
  int found = fscanf(file, "%llu", &bytes);
  fclose(file);
  return found == 1 && bytes < SIZE_MAX ? (size_t)bytes : SIZE_MAX;
}

size_t tg_host_cache_bytes(void) {
  static const char *const limits[] = {"/sys/fs/cgroup/memory.max",
                                       "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
  long pages = sysconf(_SC_PHYS_PAGES);
  size_t memory = pages > 0 ? (size_t)pages * (size_t)sysconf(_SC_PAGESIZE) : (size_t)4 << 30;
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    size_t bytes = read_bytes(limits[i]);
    if (bytes < memory) memory = bytes;
  }
  return memory / 4;
}
