# What the processor says of itself: Linux leaves some features out of /proc/cpuinfo.

cdef extern from *:
    """
    #if defined(__x86_64__) || defined(__i386__)
    #include <cpuid.h>
    static int tgc_cpuid(unsigned leaf, unsigned subleaf, unsigned *words)
    {
        return __get_cpuid_count(leaf, subleaf, words, words + 1, words + 2, words + 3);
    }
    #else
    static int tgc_cpuid(unsigned leaf, unsigned subleaf, unsigned *words)
    {
        (void)leaf, (void)subleaf, (void)words;
        return 0;
    }
    #endif
    """
    int tgc_cpuid(unsigned leaf, unsigned subleaf, unsigned* words)


def cpuid(unsigned int leaf, unsigned int subleaf=0):
    """Return the registers eax, ebx, ecx and edx of an x86 CPUID leaf; zeros where there is none."""
    cdef unsigned int words[4]
    if not tgc_cpuid(leaf, subleaf, words):
        return 0, 0, 0, 0
    return words[0], words[1], words[2], words[3]
