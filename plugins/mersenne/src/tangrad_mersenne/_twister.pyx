# cython: language_level=3
"""The Mersenne Twister and the numbers made of its words, written into arrays."""

from cpython.buffer cimport (PyBUF_C_CONTIGUOUS, PyBUF_WRITABLE, PyBuffer_Release,
                             PyObject_GetBuffer)
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcpy

cdef extern from "twister.h":
    enum: TG_TWISTER_WORDS
    ctypedef struct tg_twister:
        uint32_t words[624]
        int position
        int has_normal
        double normal
    void tg_twister_seed(tg_twister* t, uint32_t seed)
    void tg_twister_words(tg_twister* t, uint32_t* out, size_t n)
    void tg_twister_uniform(tg_twister* t, float* out, size_t n, float range, float low)
    void tg_twister_uniform_wide(tg_twister* t, double* out, size_t n, double range, double low)
    void tg_twister_blocks(float* x, size_t n, float mean, float std)
    void tg_twister_blocks_wide(double* x, size_t n, double mean, double std)
    void tg_twister_pairs(tg_twister* t, double* out, size_t n, double mean, double std)
    void tg_twister_exponential(tg_twister* t, double* out, size_t n, double rate)
    void tg_twister_cauchy(tg_twister* t, double* out, size_t n, double median, double sigma)
    void tg_twister_log_normal(tg_twister* t, double* out, size_t n, double mean, double std)
    void tg_twister_geometric(tg_twister* t, double* out, size_t n, double p)
    void tg_twister_permutation(tg_twister* t, int64_t* out, size_t n)
    void tg_twister_gamma(tg_twister* t, double* out, const double* alpha, size_t n, int narrow)
    void tg_twister_poisson(tg_twister* t, double* out, const double* mean, size_t n)
    void tg_twister_binomial(tg_twister* t, double* out, const double* count, const double* prob,
                             size_t n, int narrow)


cdef class Twister:
    """A Mersenne Twister.

    Each method named after a distribution fills an array, contiguous and of the dtype that it
    states: float64 where none is.

    Args:
        seed: 32 bits.
    """

    cdef tg_twister t

    def __cinit__(self, uint32_t seed):
        tg_twister_seed(&self.t, seed)

    def state(self):
        """Return the words as bytes, the position, and the normal number that is kept or None."""
        kept = self.t.normal if self.t.has_normal else None
        return (<char*>self.t.words)[:sizeof(self.t.words)], self.t.position, kept

    def set_state(self, bytes words, int position, kept):
        """Continue from what `state` returned.

        Raises:
            ValueError: it is no such state.
        """
        if len(words) != sizeof(self.t.words) or not 0 <= position <= TG_TWISTER_WORDS:
            raise ValueError("not a state of a Mersenne Twister")
        memcpy(self.t.words, <const char*>words, sizeof(self.t.words))
        self.t.position = position
        self.t.has_normal = kept is not None
        self.t.normal = 0.0 if kept is None else kept

    def words(self, out):
        """Fill an array of uint32."""
        cdef Py_buffer view
        PyObject_GetBuffer(out, &view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
        tg_twister_words(&self.t, <uint32_t*>view.buf, view.len // 4)
        PyBuffer_Release(&view)

    def uniform(self, out, double low, double high):
        """Fill an array of float32 or float64 by `u * (high - low) + low`, rounded once."""
        cdef Py_buffer view
        PyObject_GetBuffer(out, &view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
        if view.itemsize == 4:
            tg_twister_uniform(
                &self.t, <float*>view.buf, view.len // 4, <float>high - <float>low, low)
        else:
            tg_twister_uniform_wide(&self.t, <double*>view.buf, view.len // 8, high - low, low)
        PyBuffer_Release(&view)

    def blocks(self, out, double mean, double std, bint drawn_for_whole):
        """Fill an array of float32 or float64, of at least 16 numbers, by blocks of 16.

        The last 16 are made anew where some are left over.

        Args:
            drawn_for_whole: no uniform numbers are drawn for what is left over.
        """
        cdef Py_buffer view
        cdef size_t n, whole, drawn
        PyObject_GetBuffer(out, &view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
        n = view.len // view.itemsize
        whole = n - n % 16
        drawn = whole if drawn_for_whole else n
        if view.itemsize == 4:
            self._narrow_blocks(<float*>view.buf, drawn, whole, mean, std)
            if whole < n:
                self._narrow_blocks(<float*>view.buf + n - 16, 16, 16, mean, std)
        else:
            self._wide_blocks(<double*>view.buf, drawn, whole, mean, std)
            if whole < n:
                self._wide_blocks(<double*>view.buf + n - 16, 16, 16, mean, std)
        PyBuffer_Release(&view)

    cdef void _narrow_blocks(self, float* x, size_t drawn, size_t whole, float mean, float std):
        tg_twister_uniform(&self.t, x, drawn, 1, 0)
        tg_twister_blocks(x, whole, mean, std)

    cdef void _wide_blocks(self, double* x, size_t drawn, size_t whole, double mean, double std):
        tg_twister_uniform_wide(&self.t, x, drawn, 1, 0)
        tg_twister_blocks_wide(x, whole, mean, std)

    def draw(self, out, str kind, double first, double second=0):
        """Fill an array by "pairs", "exponential", "cauchy", "log_normal" or "geometric".

        Args:
            first, second: the parameters of the distribution.
        """
        cdef Py_buffer view
        PyObject_GetBuffer(out, &view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
        cdef double* x = <double*>view.buf
        cdef size_t n = view.len // 8
        if kind == "pairs":
            tg_twister_pairs(&self.t, x, n, first, second)
        elif kind == "exponential":
            tg_twister_exponential(&self.t, x, n, first)
        elif kind == "cauchy":
            tg_twister_cauchy(&self.t, x, n, first, second)
        elif kind == "log_normal":
            tg_twister_log_normal(&self.t, x, n, first, second)
        else:
            tg_twister_geometric(&self.t, x, n, first)
        PyBuffer_Release(&view)

    def permutation(self, out):
        """Fill an array of int64 by the numbers below its length, in a random order."""
        cdef Py_buffer view
        PyObject_GetBuffer(out, &view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
        tg_twister_permutation(&self.t, <int64_t*>view.buf, view.len // 8)
        PyBuffer_Release(&view)

    def reject(self, out, str kind, first, second, bint narrow):
        """Fill an array by "gamma", "poisson" or "binomial" numbers.

        Args:
            first, second: arrays of the parameters, as long as `out`; the second one is read for
                "binomial" alone.
            narrow: whether the parameters were float32.
        """
        cdef Py_buffer view, a, b
        PyObject_GetBuffer(out, &view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
        PyObject_GetBuffer(first, &a, PyBUF_C_CONTIGUOUS)
        PyObject_GetBuffer(second, &b, PyBUF_C_CONTIGUOUS)
        cdef double* x = <double*>view.buf
        cdef size_t n = view.len // 8
        if kind == "gamma":
            tg_twister_gamma(&self.t, x, <double*>a.buf, n, narrow)
        elif kind == "poisson":
            tg_twister_poisson(&self.t, x, <double*>a.buf, n)
        else:
            tg_twister_binomial(&self.t, x, <double*>a.buf, <double*>b.buf, n, narrow)
        PyBuffer_Release(&b)
        PyBuffer_Release(&a)
        PyBuffer_Release(&view)
