/* What passes between ranks of one host, with all of them on one GPU: copies by copy engines and by
 * a kernel, and words that one stream sets and another awaits. */
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "harness.h"

#define SECONDS_MAX 5.0

/* Copies */

enum { GUARD = 64 };
static const size_t sizes[] = {16, 4096, 48, 4112, 1 << 20, (5 << 20) + 16, 0, 16384, 32, 999984};

typedef tutti_status copying(int device, tutti__stream stream, const tutti__copy *copies,
                             int count);

static unsigned char byte_of(size_t i)
{
    return (unsigned char)(i * 7 + (i >> 9) + 1);
}

static void copy_with(copying *function, const char *name)
{
    const tutti_context *ctx = harness_context();
    const tutti__runtime *run = &ctx->backend->run;
    tutti__copy copies[HARNESS_COUNT(sizes)];
    size_t bytes = GUARD, wrong = 0;
    for (int i = 0; i < HARNESS_COUNT(sizes); i++) bytes += sizes[i] + GUARD;
    unsigned char *values = malloc(bytes), *got = malloc(bytes);
    void *src = NULL, *dst = NULL;
    CHECK_OK(run->alloc(ctx->device, bytes, &src));
    CHECK_OK(run->alloc(ctx->device, bytes, &dst));
    for (size_t i = 0; i < bytes; i++) values[i] = byte_of(i);
    CHECK_OK(run->copy(ctx->device, ctx->stream, src, values, bytes));
    CHECK_OK(run->zero(ctx->device, ctx->stream, dst, bytes));
    size_t at = GUARD;
    for (int i = 0; i < HARNESS_COUNT(sizes); i++) {
        copies[i] = (tutti__copy){(char *)dst + at, (char *)src + at, sizes[i]};
        at += sizes[i] + GUARD;
    }
    CHECK_OK(function(ctx->device, ctx->stream, copies, 1)); /* alone, and again with the others */
    CHECK_OK(function(ctx->device, ctx->stream, copies, HARNESS_COUNT(sizes) - 4));
    CHECK_OK(function(ctx->device, ctx->stream, copies + HARNESS_COUNT(sizes) - 3, 3));
    CHECK_OK(run->copy(ctx->device, ctx->stream, got, dst, bytes));
    CHECK_OK(run->stream_synchronize(ctx->device, ctx->stream));
    memset(values, 0, bytes); /* what is between stays 0 */
    at = GUARD;
    for (int i = 0; i < HARNESS_COUNT(sizes); i++) {
        for (size_t k = at; k < at + sizes[i]; k++) values[k] = byte_of(k);
        at += sizes[i] + GUARD;
    }
    for (size_t i = 0; i < bytes; i++) wrong += got[i] != values[i];
    CHECK(wrong == 0, "%s: %zu of %zu bytes are wrong", name, wrong, bytes);
    run->free(ctx->device, src);
    run->free(ctx->device, dst);
    free(values);
    free(got);
}

static void copies(void)
{
    const tutti__runtime *run = &harness_context()->backend->run;
    copy_with(run->copy_all, "copy_all");
    copy_with(run->push, "push");
}

/* Words */

static bool done_in(const tutti__runtime *run, int device, tutti__stream stream, double seconds)
{
    bool done = false;
    for (const double until = tutti__now() + seconds; !done && tutti__now() < until;)
        CHECK_OK(run->stream_query(device, stream, &done));
    return done;
}

static void words(void)
{
    enum { WORDS = TUTTI__WORDS_MAX, ROUNDS = 50 };
    const tutti_context *ctx = harness_context();
    const tutti__runtime *run = &ctx->backend->run;
    const int device = ctx->device;
    uint32_t *at[WORDS];
    tutti__stream sets, awaits;
    void *memory = NULL;
    CHECK_OK(run->host_alloc(device, WORDS * sizeof **at, &memory));
    CHECK_OK(run->stream_create(device, false, &sets));
    CHECK_OK(run->stream_create(device, false, &awaits));
    memset(memory, 0, WORDS * sizeof **at);
    for (int i = 0; i < WORDS; i++) at[i] = (uint32_t *)memory + i;
    /* of other numbers, whichever comes first; words are set first in the first round, since the
     * code of a kernel may not be loaded while another one waits, and always where a sanitizer may
     * be at work, under which no other kernel came to run beside one that waited */
    const bool alone = harness_quick();
    for (int round = 0; round < ROUNDS; round++) {
        const int count = 1 + round * 13 % WORDS;
        for (int turn = 0; turn < 2; turn++)
            CHECK_OK(turn == (alone ? 0 : round % 2) ? run->words_set(device, sets, at, count)
                                                     : run->words_await(device, awaits, at, count));
        if (!CHECK(done_in(run, device, awaits, SECONDS_MAX), "round %d does not end", round))
            break;
        for (int i = 0; i < WORDS; i++)
            CHECK(((volatile uint32_t *)memory)[i] == 0, "round %d: word %d is not clear", round,
                  i);
    }
    if (!alone) { /* all but one are not enough */
        CHECK_OK(run->words_await(device, awaits, at, WORDS));
        CHECK_OK(run->words_set(device, sets, at + 1, WORDS - 1));
        CHECK(done_in(run, device, sets, SECONDS_MAX), "words are not set");
        CHECK(!done_in(run, device, awaits, 0.1), "a word was not awaited");
        CHECK_OK(run->words_set(device, sets, at, 1));
        CHECK(done_in(run, device, awaits, SECONDS_MAX), "words that are set are awaited for ever");
    }
    *(volatile uint32_t *)at[2] = *(volatile uint32_t *)at[3] = 5;
    CHECK_OK(run->word_clear(device, sets, at[2]));
    CHECK(done_in(run, device, sets, SECONDS_MAX), "a word is not cleared");
    CHECK(*at[2] == 0 && *at[3] == 5, "words are %u and %u, want 0 and 5", *at[2], *at[3]);
    for (int i = 0; i < WORDS; i++) *(volatile uint32_t *)at[i] = 1; /* what still waits ends */
    CHECK_OK(run->stream_synchronize(device, awaits));
    run->stream_destroy(device, sets);
    run->stream_destroy(device, awaits);
    run->host_free(device, memory);
}

static const harness_test tests[] = {{"copies", copies}, {"words", words}};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, "peers' kernels", tests, HARNESS_COUNT(tests));
}
