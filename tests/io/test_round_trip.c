/* Checkpoints in and out: everything comes back, on any number of ranks, and equal states are equal bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"

/* A communicator of the usual kind, and a state on it; NULL where there is none here. */
static state *begin(tutti_dtype masters, bool big)
{
    tutti_comm *comm = rig_comm(rig_context(), TUTTI_TRANSPORT_AUTO, 0);
    return comm ? state_make(rig_context(), comm, masters, big) : NULL;
}

static void end(state **s)
{
    if (!*s) return;
    tutti_comm *comm = (*s)->comm;
    state_free(s);
    tutti_comm_destroy(&comm);
}

static void check_round_trip(tutti_dtype masters, bool big)
{
    state *s = begin(masters, big);
    if (!s) return;
    const char *path = in_folder("round");
    for (uint64_t seed = 1; seed <= (big ? 1 : 3); seed++) {
        state_fill(s, seed);
        CHECK_OK(tutti_checkpoint_save(s->checkpoint, path, 0));
        state_fill(s, seed + 100);
        CHECK_OK(tutti_checkpoint_load(s->checkpoint, path, 0));
        CHECK_STATE(s, seed);
    }
    CHECK(!file_exists(in_folder("round.tmp")), "the temporary file is still there");
    end(&s);
}

static void test_f32(void)
{
    check_round_trip(TUTTI_F32, false);
}
static void test_f64(void)
{
    check_round_trip(TUTTI_F64, false);
}
static void test_several_blocks(void)
{
    check_round_trip(TUTTI_F32, true);
}

static void test_save_load_save(void)
{
    state *s = begin(TUTTI_F32, true);
    if (!s) return;
    const char *first = in_folder("first"), *second = in_folder("second");
    state_fill(s, 5);
    CHECK_OK(tutti_checkpoint_save(s->checkpoint, first, 0));
    state_fill(s, 6);
    CHECK_OK(tutti_checkpoint_load(s->checkpoint, first, 0));
    CHECK_OK(tutti_checkpoint_save(s->checkpoint, second, 0));
    if (rig_rank() == 0) CHECK(file_same(first, second), "equal states are not equal bytes");
    end(&s);
}

static const rig_test tests[] = {
    {"f32 masters", test_f32, 0, 0, false},
    {"f64 masters", test_f64, 0, 0, false},
    {"several blocks", test_several_blocks, 0, 0, false},
    {"save, load, save", test_save_load_save, 0, 0, false},
};

int main(int argc, char **argv)
{
    return rig_main(argc, argv, "checkpoints", tests, HARNESS_COUNT(tests));
}
