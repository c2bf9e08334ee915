/* The frame of every test program: registers test functions with CUnit, selects the backend,
 * counts; and helpers that tests share (device buffers with guards, random numbers, comparisons).
 *
 * A program is an array of test functions and one line of main:
 *
 *     static const harness_test tests[] = {{"sum", test_sum}, {"odd shapes", test_odd}};
 *     int main(int argc, char **argv)
 *     {
 *         return harness_main(argc, argv, "reduce", tests, HARNESS_COUNT(tests));
 *     }
 *
 * Options: --backend host|cuda (host unless told), --quick (the smallest shape of each code path),
 * --only TEXT (the test functions whose name contains it).  TUTTI_TEST_QUICK=1 is --quick as well.
 * The last line on rank 0 is "tests: N passed, M failed, K skipped" and counts test functions. Exit
 * code: 1 if one failed, 77 if all were skipped, 0 otherwise.  Without a CUDA device the cuda
 * backend skips everything, or fails where TUTTI_TEST_REQUIRE_GPU=1. */
#ifndef TESTS_HARNESS_H
#define TESTS_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/tutti.h"

typedef struct harness_test {
    const char *name;
    void (*run)(void);
} harness_test;

#define HARNESS_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* Runs the tests and returns the exit code.  Does not touch MPI. */
int harness_main(int argc, char **argv, const char *suite, const harness_test *tests, int count);

/* For programs under mpirun, before harness_main: rank 0 prints, and each test's outcome (0 passed,
 * 1 skipped, 2 failed) is the worst over the ranks.  max_over_ranks replaces each value by its
 * maximum over all ranks. */
void harness_set_ranks(int rank, int world_size, void (*max_over_ranks)(int *values, int count));

/* The values of the options. */
tutti_backend harness_backend(void);
bool harness_quick(void);
/* Devices of the chosen backend. */
int harness_devices(void);

/* A context of the chosen backend on device 0 with one host thread, made on first use, destroyed at
 * the end. */
tutti_context *harness_context(void);
/* Another one, which the caller destroys. */
tutti_context *harness_new_context(int device, int threads);

/* Marks the running test as skipped; it should then return. */
void harness_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Records a failure of the running test unless ok.  Returns ok. */
bool harness_check(bool ok, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
bool harness_check_status(tutti_status got, const char *call, const char *file, int line);

/* condition, then a message as of printf */
#define CHECK(condition, ...) harness_check((condition), __FILE__, __LINE__, __VA_ARGS__)
/* The call succeeds. */
#define CHECK_OK(call) harness_check_status((call), #call, __FILE__, __LINE__)
/* The call fails with this status and a fresh message that contains `word`. */
#define CHECK_FAILS(wanted, word, call) \
    (harness_forget_error(),            \
     harness_check_failure((wanted), (word), (call), #call, __FILE__, __LINE__))
void harness_forget_error(void);
bool harness_check_failure(tutti_status wanted, const char *word, tutti_status got,
                           const char *call, const char *file, int line);

/* The number of failures recorded so far in the running test: loops may stop early. */
int harness_failures(void);

/* Text that precedes every message of CHECK from now on, such as "rows 3 cols 7 bf16"; NULL for
 * none. */
void harness_where(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Numbers.  Conversions share no code with the library: f32's are the compiler's casts, the others
 * go through double arithmetic. */
uint64_t harness_encode(tutti_dtype dtype, double value); /* bits, rounded to nearest even */
double harness_decode(tutti_dtype dtype, uint64_t bits);
/* count elements that lie one after the other */
void harness_encode_all(tutti_dtype dtype, void *elements, const double *values, int64_t count);
void harness_decode_all(tutti_dtype dtype, double *values, const void *elements, int64_t count);
double harness_round(tutti_dtype dtype, double value); /* the nearest value of the type */
/* Half the distance between 1 and the next value; 0 for integers. */
double harness_roundoff(tutti_dtype dtype);
/* The smallest positive value, a subnormal. */
double harness_tiny(tutti_dtype dtype);
/* The largest finite value. */
double harness_huge(tutti_dtype dtype);

typedef struct harness_rng {
    uint64_t state;
} harness_rng;
uint64_t harness_random(harness_rng *rng);
double harness_uniform(harness_rng *rng, double low, double high);
double harness_normal(harness_rng *rng);
/* count values of the type, roughly normal with this mean and deviation */
void harness_fill(harness_rng *rng, double *values, int64_t count, tutti_dtype dtype, double mean,
                  double deviation);

/* A tensor without gaps, in memory of the context's device, from and to values.  Both wait.  get:
 * values NULL: into new memory, to be released by free(); returns where they are. */
void harness_put(tutti_context *ctx, const tutti_tensor *tensor, const double *values);
double *harness_get(tutti_context *ctx, const tutti_tensor *tensor, double *values);

/* A matrix in device memory between two guard zones.  Guards and the gaps between rows hold NaN
 * (all bits one), so a read out of bounds spoils a result and a write out of bounds is detected.  A
 * copy on the host keeps what was put there last. */
typedef struct harness_buffer {
    void *base, *data; /* on the device */
    unsigned char *mirror;
    size_t bytes, offset; /* of the allocation; of data in it */
    tutti_dtype dtype;
    int64_t rows, cols, stride;
} harness_buffer;

/* rows x cols on the context, all poisoned; stride 0 means cols; misaligned: elements beyond a
 * 256-byte boundary. */
harness_buffer harness_buffer_make(tutti_context *ctx, tutti_dtype dtype, int64_t rows,
                                   int64_t cols, int64_t stride, int misaligned);
void harness_buffer_free(tutti_context *ctx, harness_buffer *buffer);
/* rows * cols values, rounded to the type */
void harness_buffer_put(tutti_context *ctx, harness_buffer *buffer, const double *values);
/* sets everything to NaN */
void harness_buffer_poison(tutti_context *ctx, harness_buffer *buffer);
void harness_buffer_get(tutti_context *ctx, const harness_buffer *buffer, double *values);
/* the same without conversion: rows * cols elements, dense */
void harness_buffer_get_raw(tutti_context *ctx, const harness_buffer *buffer, void *elements);
/* Guards and gaps are unchanged. */
bool harness_buffer_intact(tutti_context *ctx, const harness_buffer *buffer);
/* Every byte is unchanged. */
bool harness_buffer_unchanged(tutti_context *ctx, const harness_buffer *buffer);
/* A view [rows, cols] with the buffer's stride. */
tutti_tensor harness_buffer_tensor(const harness_buffer *buffer);

/* Compares got with want, element by element: |got - want| <= bound; a NaN wanted must be a NaN, an
 * infinity the same infinity.  Records one failure that names the worst element. */
bool harness_compare(const char *what, const double *got, const double *want, const double *bound,
                     int64_t count, const char *file, int line);
#define CHECK_CLOSE(what, got, want, bound, count) \
    harness_compare((what), (got), (want), (bound), (count), __FILE__, __LINE__)

/* At the result of the largest magnitude, would a change of 16 ulp of the type be seen? */
bool harness_is_sharp(const double *want, const double *bound, int64_t count, tutti_dtype dtype);

/* Whether a call waits for all that a GPU's stream has to do: it then takes longer than what is
 * left of the work, some 50 ms, that was enqueued before it.  Says so if it did three times. */
bool harness_waits(tutti_context *ctx, void (*call)(tutti_context *ctx, void *data), void *data);

/* Zeroed memory, to be released by free(); ends the program if there is none. */
void *harness_calloc(size_t count, size_t size);

#endif
