/* Damaged and hostile files: seeded mutations of a good one.  Whatever the file, the reader returns
 * quickly, without much memory, with a status and a message that names the file; and what it
 * accepts is correct.
 *
 * Three files are mutated: what the library writes, whose metadata have checksums of HDF5's own;
 * the same with these checksums corrected, so that HDF5 accepts what it reads; and the same content
 * in HDF5's oldest format, which has none.  TUTTI_TEST_ROUNDS and TUTTI_TEST_SEED: number and seed
 * of the mutations. */
#include <string.h>

#include "mutate.h"
#include "state.h"

static state *shared;

/* Loading */

static bool try_load(const char *path, bool *taken)
{
    state_fill(shared, 2);
    harness_forget_error();
    tutti_status status = tutti_checkpoint_load(shared->checkpoint, path, 0);
    *taken = status == TUTTI_OK;
    if (*taken) {
        const char *what = "";
        return CHECK(state_is(shared, 1, &what), "a file whose %s is wrong was accepted", what);
    }
    return CHECK(status == TUTTI_ERR_DATA || status == TUTTI_ERR_IO, "status %d: %s", (int)status,
                 tutti_last_error()) &&
           mutate_refused(tutti_last_error(), path);
}

static const char *good_file(void)
{
    const char *path = in_folder("good");
    if (!shared) shared = state_make(TUTTI_TRANSPORT_SELF, TUTTI_F32, false);
    state_fill(shared, 1);
    CHECK_OK(tutti_checkpoint_save(shared->checkpoint, path, 0));
    return path;
}

static void test_as_written(void)
{
    mutate_run(good_file(), 25, NULL, try_load);
}

static void test_resealed(void)
{
    metadata_checksum checksum = mutate_checksum();
    if (!checksum) {
        harness_skip("this HDF5 does not show its checksum");
        return;
    }
    mutate_run(good_file(), 35, checksum, try_load);
}

static void test_oldest_format(void)
{
    const char *path = in_folder("oldest");
    mutate_oldest(good_file(), path);
    CHECK_OK(tutti_checkpoint_load(shared->checkpoint, path, 0));
    CHECK_STATE(shared, 1);
    mutate_run(path, 40, NULL, try_load);
}

static const rig_test tests[] = {
    {"as written", test_as_written, 0, 0, false},
    {"resealed", test_resealed, 0, 0, false},
    {"oldest format", test_oldest_format, 0, 0, false},
};

int main(int argc, char **argv)
{
    return rig_main(argc, argv, "mutated checkpoints", tests, HARNESS_COUNT(tests));
}
