/* Tensors of which each rank has a part: the file is that of the whole tensor, and each rank reads
 * its part.  Tests an internal function. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/checkpoint.h"
#include "state.h"

/* Two rounds of the last rank with a rest, and less than a block. */
enum { BLOCK = 4 << 18, LARGE = 10 * BLOCK + 77, SMALL = 5 };

/* A list of a value, a whole tensor and two that may be distributed. */
typedef struct parts {
    tutti_context *ctx;
    tutti_comm *comm;
    tutti_checkpoint *list;
    int64_t large[9], small[9]; /* bounds */
    float *data[3];
    int64_t first[3], count[3], step;
} parts;

/* Uneven on purpose: the last rank has most, and of three the middle one nothing. */
static void share_out(int64_t *bounds, int64_t blocks, int64_t count)
{
    const int ranks = rig_size();
    for (int r = 0; r <= ranks; r++) bounds[r] = r < ranks ? blocks * (r > 0) * BLOCK : count;
}

static void add(parts *p, int index, const char *name, const int64_t *bounds, int64_t count)
{
    const int rank = rig_rank();
    tutti_tensor tensor = tutti_tensor_1d(NULL, TUTTI_F32, count);
    p->first[index] = bounds ? bounds[rank] : 0;
    p->count[index] = bounds ? bounds[rank + 1] - bounds[rank] : count;
    CHECK_OK(tutti_alloc(p->ctx, (size_t)p->count[index] * sizeof(float), &tensor.data));
    p->data[index] = tensor.data;
    if (bounds)
        CHECK_OK(tutti__checkpoint_add_parts(p->list, name, &tensor, bounds));
    else
        CHECK_OK(tutti_checkpoint_add_state(p->list, NULL,
                                            &(tutti_state_tensor){name + 10, tensor, 0}));
}

static bool make(parts *p, bool shared_out)
{
    *p = (parts){.ctx = rig_context(), .step = 7};
    p->comm = rig_comm(p->ctx, TUTTI_TRANSPORT_AUTO, 0);
    if (!p->comm) return false;
    share_out(p->large, 2, LARGE);
    share_out(p->small, 0, SMALL);
    CHECK_OK(tutti_checkpoint_create(p->ctx, p->comm, &p->list));
    add(p, 0, "optimizer/large", shared_out ? p->large : NULL, LARGE);
    add(p, 1, "optimizer/whole", NULL, BLOCK + 3);
    add(p, 2, "optimizer/small", shared_out ? p->small : NULL, SMALL);
    CHECK_OK(tutti_checkpoint_add_int(p->list, "state/step", &p->step));
    return true;
}

static void drop(parts *p)
{
    tutti_checkpoint_destroy(&p->list);
    for (int i = 0; i < 3; i++) CHECK_OK(tutti_free(p->ctx, (void **)&p->data[i]));
    tutti_comm_destroy(&p->comm);
}

static float value_of(int index, int64_t element, int seed)
{
    return (float)((element * 31 + index * 7 + seed) % 65521);
}

/* Fills a list, or tells whether it is as filled. */
static bool visit(parts *p, int seed, bool fill)
{
    bool same = true;
    for (int index = 0; index < 3; index++) {
        const size_t bytes = (size_t)p->count[index] * sizeof(float);
        float *host = harness_calloc((size_t)p->count[index] + 1, sizeof *host);
        if (!fill) CHECK_OK(tutti_copy(p->ctx, host, p->data[index], bytes));
        CHECK_OK(tutti_context_synchronize(p->ctx));
        for (int64_t i = 0; i < p->count[index]; i++) {
            const float value = value_of(index, p->first[index] + i, seed);
            same = same && host[i] == value;
            host[i] = value;
        }
        if (fill) CHECK_OK(tutti_copy(p->ctx, p->data[index], host, bytes));
        CHECK_OK(tutti_context_synchronize(p->ctx));
        free(host);
    }
    return same;
}

static void test_file_of_the_whole(void)
{
    const char *names[] = {in_folder("whole"), in_folder("parts")};
    for (int saved = 0; saved < 2; saved++) {
        parts p;
        if (!make(&p, saved)) return;
        visit(&p, 1, true);
        CHECK_OK(tutti_checkpoint_save(p.list, names[saved], 0));
        drop(&p);
    }
    if (rig_rank() == 0) CHECK(file_same(names[0], names[1]), "the bytes differ");
    for (int loaded = 0; loaded < 4; loaded++) {
        parts p;
        if (!make(&p, loaded % 2)) return;
        visit(&p, 2, true);
        p.step = 0;
        CHECK_OK(tutti_checkpoint_load(p.list, names[loaded / 2], 0));
        CHECK(visit(&p, 1, false) && p.step == 7, "list %d of file %d", loaded % 2, loaded / 2);
        drop(&p);
    }
}

/* Damage in any part fails all ranks. */
static void test_damage(void)
{
    const char *path = in_folder("damaged");
    parts p;
    if (!make(&p, true)) return;
    visit(&p, 1, true);
    for (int where = 0; where < 2; where++) {
        CHECK_OK(tutti_checkpoint_save(p.list, path, 0));
        if (rig_rank() == 0) {
            size_t size;
            unsigned char *data = file_read(path, &size);
            const float value = value_of(0, where ? LARGE - 40 : 40, 1);
            unsigned char *at = data;
            for (; at + sizeof value <= data + size; at++) {
                float next[2] = {value, value_of(0, where ? LARGE - 39 : 41, 1)};
                if (memcmp(at, next, sizeof next) == 0) break;
            }
            at[1] ^= 4;
            file_write(path, data, size);
            free(data);
        }
        rig_barrier();
        CHECK_FAILS(TUTTI_ERR_DATA, "the checksum of optimizer/large",
                    tutti_checkpoint_load(p.list, path, 0));
    }
    drop(&p);
}

static void test_bad_bounds(void)
{
    parts p;
    if (!make(&p, true)) return;
    const int ranks = rig_size();
    float data[1];
    const tutti_tensor tensor = tutti_tensor_1d(data, TUTTI_F32, LARGE);
    for (int fault = 0; fault < 4; fault++) {
        int64_t bounds[9];
        memcpy(bounds, p.large, sizeof bounds);
        if (fault == 0) bounds[0] = BLOCK;
        if (fault == 1) bounds[ranks] = LARGE - 1;
        if (fault == 2 && ranks > 1) bounds[1] = BLOCK + 1;
        if (fault == 3 && ranks > 1) bounds[ranks - 1] = LARGE + 1;
        if (fault >= 2 && ranks == 1) continue;
        CHECK_FAILS(TUTTI_ERR_ARG, "bounds[",
                    tutti__checkpoint_add_parts(p.list, "optimizer/other", &tensor, bounds));
    }
    CHECK_FAILS(TUTTI_ERR_ARG, "is taken",
                tutti__checkpoint_add_parts(p.list, "optimizer/large", &tensor, p.large));
    drop(&p);
}

/* No other rank can write or read a rank's part: the save fails, and the old file stays. */
static void test_owner_elsewhere(void)
{
    char before[1024];
    parts p;
    if (!make(&p, true)) return;
    visit(&p, 1, true);
    CHECK_OK(tutti_checkpoint_save(p.list, in_folder("there"), 0));
    CHECK(getcwd(before, sizeof before), "no folder");
    CHECK(chdir(rig_rank() == rig_size() - 1 ? "/" : folder()) == 0, "no folder");
    CHECK_FAILS(TUTTI_ERR_IO, "alone has a part of optimizer/large",
                tutti_checkpoint_save(p.list, "there", 0));
    CHECK_FAILS(TUTTI_ERR_IO, "No such file", tutti_checkpoint_load(p.list, "there", 0));
    CHECK(chdir(before) == 0, "no folder");
    visit(&p, 2, true);
    CHECK_OK(tutti_checkpoint_load(p.list, in_folder("there"), 0));
    CHECK(visit(&p, 1, false), "the old file was changed");
    drop(&p);
}

static const rig_test tests[] = {
    {"file of the whole", test_file_of_the_whole, 0, 0, false},
    {"damage", test_damage, 0, 0, false},
    {"bad bounds", test_bad_bounds, 0, 0, false},
    {"owner elsewhere", test_owner_elsewhere, 2, 0, false},
};

int main(int argc, char **argv)
{
    return rig_main(argc, argv, "checkpoints of parts", tests, HARNESS_COUNT(tests));
}
