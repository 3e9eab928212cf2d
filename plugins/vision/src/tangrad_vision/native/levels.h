/* A loop compiled once for each set of instructions; the loader takes the best that there is. */
#ifndef TANGRAD_VISION_LEVELS_H
#define TANGRAD_VISION_LEVELS_H

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define LEVELS __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define LEVELS
#endif

#endif
