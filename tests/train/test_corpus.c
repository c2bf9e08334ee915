/* The corpus of the bytes task and the order of its samples: reads across files' borders, refused
 * files, and permutations of every length. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/exit_code.h"
#include "common/report.h"
#include "harness.h"
#include "tutti-train/bytes_order.h"
#include "tutti-train/corpus.h"

enum { PATHS = 5, PATH_SIZE = 128 };

/* A test's own folder, with files whose bytes count on from one to the next. */
typedef struct scene {
    char folder[PATH_SIZE], paths[PATHS][PATH_SIZE];
    const char *list[PATHS];
} scene;

static const char *const names[PATHS] = {"b", "a", "Z", "link", "sub"};
static const int sizes[3] = {1, 300, 7};

static void write_file(const char *path, int first, int size)
{
    FILE *file = fopen(path, "wb");
    for (int i = 0; file && i < size; i++) putc((first + i) & 0xff, file);
    CHECK(file && fclose(file) == 0, "%s cannot be written", path);
}

/* The regular files b, a, Z of 1, 300 and 7 bytes, the symbolic link `link` to a, and the folder
 * `sub`. */
static void set_up(scene *s)
{
    char folder[] = "corpus-XXXXXX";
    CHECK(mkdtemp(folder) != NULL, "no folder for the test");
    memcpy(s->folder, folder, sizeof folder);
    for (int i = 0; i < PATHS; i++) {
        snprintf(s->paths[i], PATH_SIZE, "%s/%s", folder, names[i]);
        s->list[i] = s->paths[i];
    }
    for (int i = 0, first = 0; i < 3; first += sizes[i++]) write_file(s->paths[i], first, sizes[i]);
    CHECK(symlink("a", s->paths[3]) == 0 && mkdir(s->paths[4], 0700) == 0, "no link or folder");
}

static void tear_down(scene *s)
{
    for (int i = 0; i < 4; i++) unlink(s->paths[i]);
    rmdir(s->paths[4]);
    rmdir(s->folder);
}

static void test_files_in_order(void)
{
    scene s;
    corpus c;
    uint8_t got[308];
    set_up(&s);
    CHECK(corpus_open(&c, s.list, 3) == APP_OK, "%s", app_failure());
    CHECK(c.count == 3 && c.bytes == 308, "%lld bytes", (long long)c.bytes);
    for (int first = 0; first < 308; first++) {
        for (int count = 1; first + count <= 308; count += first < 3 || first > 298 ? 1 : 97) {
            memset(got, 0xee, sizeof got);
            corpus_read(&c, first, count, got);
            int wrong = 0;
            for (int i = 0; i < count; i++) wrong += got[i] != ((first + i) & 0xff);
            CHECK(wrong == 0, "%d of %d bytes from %d", wrong, count, first);
            CHECK(count == 308 || got[count] == 0xee, "more than %d bytes from %d", count, first);
        }
    }
    corpus_close(&c);
    corpus_close(&c);
    tear_down(&s);
}

/* A link named on the command line is followed, and a file may come twice. */
static void test_named_link(void)
{
    scene s;
    corpus c;
    uint8_t byte = 0;
    set_up(&s);
    const char *const list[] = {s.list[2], s.list[3], s.list[2]};
    CHECK(corpus_open(&c, list, 3) == APP_OK, "%s", app_failure());
    CHECK(c.bytes == 314, "%lld bytes", (long long)c.bytes);
    corpus_read(&c, 7, 1, &byte);
    CHECK(byte == 1, "byte 7 is %d", byte);
    corpus_close(&c);
    tear_down(&s);
}

/* By name, capitals before small letters; no links, no folders. */
static void test_folder(void)
{
    scene s;
    corpus c;
    uint8_t got[308];
    set_up(&s);
    CHECK(corpus_open_folder(&c, s.folder) == APP_OK, "%s", app_failure());
    CHECK(c.count == 3 && c.bytes == 308, "%lld files", (long long)c.count);
    corpus_read(&c, 0, 308, got);
    CHECK(got[0] == (301 & 0xff) && got[7] == 1 && got[307] == 0, "%d %d %d", got[0], got[7],
          got[307]);
    corpus_close(&c);
    tear_down(&s);
}

static void check_refused(const char *const *paths, int count, const char *name, const char *word)
{
    corpus c;
    CHECK(corpus_open(&c, paths, count) == APP_FAILED, "%s was accepted", name);
    CHECK(strstr(app_failure(), name) && strstr(app_failure(), word),
          "'%s' does not say '%s' of %s", app_failure(), word, name);
    corpus_close(&c);
}

static void test_bad_files(void)
{
    scene s;
    corpus c;
    char empty[PATH_SIZE], pipe[PATH_SIZE];
    set_up(&s);
    snprintf(empty, sizeof empty, "%.40s/empty", s.folder);
    snprintf(pipe, sizeof pipe, "%.40s/pipe", s.folder);
    write_file(empty, 0, 0);
    CHECK(mkfifo(pipe, 0600) == 0, "no pipe");
    check_refused((const char *const[]){s.list[0], empty}, 2, "/empty", "is empty");
    check_refused((const char *const[]){s.list[0], pipe, s.list[1]}, 3, "/pipe", "not a regular");
    check_refused((const char *const[]){s.list[4]}, 1, "/sub", "is a folder");
    check_refused((const char *const[]){"nowhere/at/all"}, 1, "nowhere/at/all", "No such file");
    CHECK(corpus_open_folder(&c, "nowhere") == APP_FAILED && strstr(app_failure(), "nowhere: "),
          "%s", app_failure());
    corpus_close(&c);
    CHECK(corpus_open_folder(&c, s.list[4]) == APP_FAILED && strstr(app_failure(), "no regular"),
          "%s", app_failure());
    corpus_close(&c);
    unlink(empty);
    unlink(pipe);
    tear_down(&s);
}

/* Every sample once an epoch, and none beyond the training part: the rest is held out. */
static void test_order_is_a_permutation(void)
{
    const int64_t counts[] = {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1000, 4097, 213572};
    for (int k = 0; k < HARNESS_COUNT(counts); k++) {
        const int64_t count = counts[k];
        uint8_t *seen = harness_calloc((size_t)count, 1);
        for (int64_t epoch = 1; epoch <= 3; epoch++) {
            const bytes_order order = bytes_order_make(count, 7, epoch);
            int64_t fresh = 0;
            for (int64_t i = 0; i < count; i++) {
                const int64_t at = bytes_order_at(&order, i);
                if (at < 0 || at >= count || seen[at] == epoch) continue;
                seen[at] = (uint8_t)epoch;
                fresh++;
            }
            CHECK(fresh == count, "%lld of %lld in epoch %lld", (long long)fresh, (long long)count,
                  (long long)epoch);
        }
        free(seen);
    }
}

/* Places where two orders agree. */
static int64_t agreements(const bytes_order *a, const bytes_order *b)
{
    int64_t equal = 0;
    for (int64_t i = 0; i < 10000; i++) equal += bytes_order_at(a, i) == bytes_order_at(b, i);
    return equal;
}

static void test_order_depends_on_seed_and_epoch(void)
{
    const bytes_order a = bytes_order_make(10000, 1, 1), same = bytes_order_make(10000, 1, 1);
    const bytes_order seed = bytes_order_make(10000, 2, 1), epoch = bytes_order_make(10000, 1, 2);
    CHECK(agreements(&a, &same) == 10000, "the order changes by itself");
    /* one agreement on average between random orders */
    CHECK(agreements(&a, &seed) < 10, "%lld with another seed", (long long)agreements(&a, &seed));
    CHECK(agreements(&a, &epoch) < 10, "%lld in another epoch", (long long)agreements(&a, &epoch));
}

/* Neighbours in the order are not neighbours in the corpus, and each tenth of an epoch sees all of
 * it. */
static void test_order_mixes(void)
{
    const int64_t count = 100000;
    const bytes_order order = bytes_order_make(count, 1, 1);
    int hits[10][10] = {{0}};
    double step = 0.0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = bytes_order_at(&order, i);
        hits[i * 10 / count][at * 10 / count]++;
        if (i > 0)
            step += llabs(at - bytes_order_at(&order, i - 1)) / (double)count / (double)count;
    }
    /* 1000 expected, with a deviation of 30; a third of the corpus between random neighbours */
    for (int i = 0; i < 100; i++)
        CHECK(abs(hits[i / 10][i % 10] - 1000) < 200, "%d in cell %d", hits[i / 10][i % 10], i);
    CHECK(step > 0.32 && step < 0.35, "mean step %f", step);
}

/* Lengths for which a table would be larger than memory. */
static void test_order_of_huge_corpora(void)
{
    for (int bits = 33; bits <= 62; bits++) {
        const int64_t count = (INT64_C(1) << bits) - 12345;
        const bytes_order order = bytes_order_make(count, 3, 1);
        for (int64_t i = 0; i < 100; i++) {
            const int64_t at = bytes_order_at(&order, count / 100 * i);
            CHECK(at >= 0 && at < count, "place %lld of %lld", (long long)at, (long long)count);
        }
    }
}

static const harness_test tests[] = {
    {"files in order", test_files_in_order},
    {"named link", test_named_link},
    {"folder", test_folder},
    {"bad files", test_bad_files},
    {"order is a permutation", test_order_is_a_permutation},
    {"order depends on seed and epoch", test_order_depends_on_seed_and_epoch},
    {"order mixes", test_order_mixes},
    {"order of huge corpora", test_order_of_huge_corpora},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, "corpus", tests, HARNESS_COUNT(tests));
}
