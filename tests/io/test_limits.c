/* The limits of a file: a file beyond one is refused at once, with a message that has its size and
 * the limit, and is not written. */
#include <hdf5.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "state.h"

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* In the newest format, which allows many attributes and links. */
static hid_t open_file(const char *path)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_LATEST);
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, access);
    H5Pclose(access);
    CHECK(file >= 0, "%s does not open", path);
    return file;
}

/* A hard link costs less than a group and counts as much. */
static void add_links(hid_t file, const char *to, int count)
{
    char name[32];
    hid_t group = H5Gcreate2(file, "many", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%06d", i);
        CHECK(H5Lcreate_hard(file, to, group, name, H5P_DEFAULT, H5P_DEFAULT) >= 0, "no link");
    }
    H5Gclose(group);
}

static void make_group(hid_t file, const char *path)
{
    hid_t links = H5Pcreate(H5P_LINK_CREATE);
    H5Pset_create_intermediate_group(links, 1);
    hid_t group = H5Gcreate2(file, path, links, H5P_DEFAULT, H5P_DEFAULT);
    CHECK(group >= 0, "no group %s", path);
    H5Gclose(group);
    H5Pclose(links);
}

static void twenty_thousand(hid_t file)
{
    make_group(file, "empty");
    add_links(file, "empty", 20000);
}
static void too_many(hid_t file)
{
    make_group(file, "empty");
    add_links(file, "empty", 131072);
}
static void too_many_one_by_one(hid_t file)
{
    make_group(file, "half/half");
    for (int i = 0; i < 500; i++) {
        char name[32];
        snprintf(name, sizeof name, "half/half/%d", i);
        make_group(file, name);
    }
    add_links(file, "half", 300);
}
static void too_deep(hid_t file)
{
    make_group(file, "1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17");
}
static void too_long(hid_t file)
{
    char name[1025];
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = 0;
    make_group(file, name);
}
static void add_attributes(hid_t file, const char *path, int count, size_t bytes)
{
    static char text[4096];
    memset(text, 't', sizeof text);
    hid_t group = H5Gopen2(file, path, H5P_DEFAULT), type = H5Tcopy(H5T_C_S1);
    hid_t space = H5Screate(H5S_SCALAR);
    H5Tset_size(type, bytes);
    for (int i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "%d", i);
        hid_t attribute = H5Acreate2(group, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
        CHECK(H5Awrite(attribute, type, text) >= 0, "no attribute");
        H5Aclose(attribute);
    }
    H5Sclose(space);
    H5Tclose(type);
    H5Gclose(group);
}
static void too_many_attributes(hid_t file)
{
    add_attributes(file, "model", 257, 1);
}
static void too_much_text(hid_t file)
{
    make_group(file, "wordy");
    add_attributes(file, "wordy", 250, 4000);
    add_links(file, "wordy", 70);
}

static void test_reading(void)
{
    static const struct {
        void (*how)(hid_t file);
        const char *word; /* NULL: it is read */
        bool at_once;     /* otherwise after counting up to the limit */
    } cases[] = {
        {twenty_thousand, NULL, true},
        {too_many, " groups and datasets, want at most 131072", true},
        {too_many_one_by_one, " groups and datasets, want at most 131072", false},
        {too_deep, "has 17 parts in the path of a dataset, want at most 16", true},
        {too_long, "has 1024 bytes in the path of a group or dataset, want at most 1023", true},
        {too_many_attributes, "has 257 attributes of one group or dataset, want at most 256", true},
        {too_much_text, " bytes of names, shapes and attributes, want at most 67108864", false},
    };
    const char *path = in_folder("limit");
    for (int i = 0; i < HARNESS_COUNT(cases); i++) {
        state *s = state_saved(path);
        hid_t file = open_file(path);
        cases[i].how(file);
        CHECK(H5Fclose(file) >= 0, "%s does not close", path);
        harness_where("want '%s'", cases[i].word ? cases[i].word : "");
        double begin = now();
        if (cases[i].word)
            check_refused(s, TUTTI_ERR_DATA, cases[i].word, path);
        else
            CHECK_OK(tutti_checkpoint_load(s->checkpoint, path, 0));
        CHECK(!cases[i].at_once || now() - begin < 10, "it took %.1f s", now() - begin);
        state_free(&s);
    }
    harness_where(NULL);
}

/* Names of 16 parts, 15 of them unique, so that few names make many groups. */
static void add_names(tutti_checkpoint *list, int count, int64_t *value)
{
    for (int i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof name, "%d/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p", i);
        CHECK_OK(tutti_checkpoint_add_int(list, name, value));
    }
}

static void test_writing(void)
{
    const char *path = in_folder("written");
    state *s = state_saved(path);
    const char *const deep = "1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17";
    CHECK_FAILS(TUTTI_ERR_ARG, "has 17 parts, want at most 16",
                tutti_checkpoint_add_int(s->checkpoint, deep, &s->step));
    tutti_checkpoint *list = NULL;
    CHECK_OK(tutti_checkpoint_create(s->ctx, s->comm, &list));
    int64_t value = 7;
    add_names(list, 1000, &value);
    CHECK_OK(tutti_checkpoint_save(list, path, 0)); /* the deepest can be read back */
    value = 0;
    CHECK_OK(tutti_checkpoint_load(list, path, 0));
    CHECK(value == 7, "%lld was read", (long long)value);
    tutti_checkpoint_destroy(&list);
    CHECK_OK(tutti_checkpoint_create(s->ctx, s->comm, &list));
    add_names(list, 8192, &value); /* one more than allowed, with the root */
    static const char word[] = "makes 131073 groups and datasets, want at most 131072";
    CHECK_FAILS(TUTTI_ERR_ARG, word, tutti_checkpoint_save(list, in_folder("never"), 0));
    CHECK_FAILS(TUTTI_ERR_ARG, word, tutti_checkpoint_own(list, in_folder("never"), 0));
    CHECK(!file_exists(in_folder("never")), "it was written");
    tutti_checkpoint_destroy(&list);
    state_free(&s);
}

static const rig_test tests[] = {
    {"reading", test_reading, 0, 0, false},
    {"writing", test_writing, 0, 0, false},
};

int main(int argc, char **argv)
{
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    return rig_main(argc, argv, "limits of files", tests, HARNESS_COUNT(tests));
}
