/* What the tests of checkpoints save and load; see state.h. */
#include "state.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t mix(uint64_t key)
{
    harness_rng rng = {key};
    return harness_random(&rng);
}

static void fill_bytes(unsigned char *bytes, size_t count, uint64_t seed, uint64_t number)
{
    harness_rng rng = {mix(seed * 1000 + number)};
    for (size_t i = 0; i < count; i += 8) {
        uint64_t word = harness_random(&rng);
        memcpy(bytes + i, &word, count - i < 8 ? count - i : 8);
    }
}

static tutti_tensor make_tensor(tutti_context *ctx, tutti_dtype dtype, int ndim,
                                const int64_t *dims)
{
    tutti_tensor shape = tutti_tensor_make(NULL, dtype, ndim, dims);
    size_t bytes = (size_t)tutti_tensor_count(&shape) * tutti_dtype_size(dtype);
    CHECK_OK(tutti_alloc(ctx, bytes, &shape.data));
    CHECK_OK(tutti_zero(ctx, shape.data, bytes));
    return shape;
}

static void add_params(state *s, tutti_dtype masters, bool big)
{
    static const char *const names[STATE_PARAMS] = {"embed/weight", "block0.norm/gamma",
                                                    "block0.up/weight", "head-1/bias_2"};
    /* several blocks of 4 MiB, and a rest that is not a multiple of a page */
    const int64_t large = big ? 3 * 1048576 + 12345 : 700;
    const int64_t dims[STATE_PARAMS][TUTTI_MAX_DIMS] = {{large}, {7}, {3, 5, 11}, {1}};
    static const int ndim[STATE_PARAMS] = {1, 1, 3, 1};
    tutti_params_desc desc = TUTTI_PARAMS_DESC_INIT;
    desc.master_dtype = masters;
    CHECK_OK(tutti_params_create(s->ctx, &desc, &s->params));
    for (int i = 0; i < STATE_PARAMS; i++) {
        tutti_dtype dtype = masters == TUTTI_F64 ? TUTTI_F64 : i % 2 ? TUTTI_BF16 : TUTTI_F32;
        snprintf(s->param[i].name, TUTTI_NAME_MAX, "%s", names[i]);
        s->param[i].value = tutti_tensor_make(NULL, dtype, ndim[i], dims[i]);
        s->param[i].weight_decay = s->param[i].lr_scale = 1;
        CHECK_OK(tutti_params_add_param(s->params, &s->param[i]));
    }
    CHECK_OK(tutti_params_build(s->params, s->ctx));
}

static void add_state(state *s, const char *name, const tutti_tensor *tensor, int like_store)
{
    const tutti_state_tensor added = {name, *tensor, like_store};
    CHECK_OK(tutti_checkpoint_add_state(s->checkpoint, like_store ? s->params : NULL, &added));
}

static void add_all(state *s)
{
    tutti_checkpoint *c = s->checkpoint;
    CHECK_OK(tutti_checkpoint_add_params(c, s->params));
    add_state(s, "m", &s->m, 1);
    add_state(s, "v", &s->v, 1);
    for (int i = 0; i < STATE_EXTRAS; i++) {
        char name[32];
        snprintf(name, sizeof name, "extra/%s", tutti_dtype_name(s->extra[i].dtype));
        add_state(s, name, &s->extra[i], 0);
    }
    CHECK_OK(tutti_checkpoint_add_int(c, "state/step", &s->step));
    CHECK_OK(tutti_checkpoint_add_real(c, "state/loss_scale", &s->scale));
    CHECK_OK(tutti_checkpoint_add_text(c, "config/activation", s->text, sizeof s->text));
    CHECK_OK(
        tutti_checkpoint_add_table(c, "history", s->table, STATE_COLS, STATE_ROWS_MAX, &s->rows));
}

state *state_make(tutti_transport transport, tutti_dtype masters, bool big)
{
    tutti_context *ctx = rig_context();
    tutti_comm *comm = rig_comm(ctx, transport);
    if (!comm) return NULL;
    state *s = harness_calloc(1, sizeof *s);
    s->ctx = ctx;
    s->comm = comm;
    add_params(s, masters, big);
    tutti_tensor flat;
    CHECK_OK(tutti_params_flat(s->params, TUTTI_PARAMS_MASTER, &flat));
    s->m = make_tensor(ctx, masters, 1, flat.dims);
    s->v = make_tensor(ctx, masters, 1, flat.dims);
    for (int i = 0; i < STATE_EXTRAS; i++)
        s->extra[i] = make_tensor(ctx, (tutti_dtype)(i + 1), 2, (const int64_t[]){i + 1, 13});
    CHECK_OK(tutti_checkpoint_create(ctx, comm, &s->checkpoint));
    add_all(s);
    return s;
}

void state_free(state **state)
{
    if (!*state) return;
    tutti_checkpoint_destroy(&(*state)->checkpoint);
    tutti_params_destroy(&(*state)->params);
    tutti_free((*state)->ctx, &(*state)->m.data);
    tutti_free((*state)->ctx, &(*state)->v.data);
    for (int i = 0; i < STATE_EXTRAS; i++) tutti_free((*state)->ctx, &(*state)->extra[i].data);
    tutti_comm_destroy(&(*state)->comm);
    free(*state);
    *state = NULL;
}

/* Calls visit for all tensors, numbered, in the file's order. */
typedef bool (*visitor)(state *s, void *device, size_t bytes, uint64_t seed, uint64_t number);

static bool visit_all(state *s, uint64_t seed, visitor visit, const char **what)
{
    tutti_tensor flat;
    CHECK_OK(tutti_params_flat(s->params, TUTTI_PARAMS_MASTER, &flat));
    size_t size = tutti_dtype_size(flat.dtype);
    for (int i = 0; i < STATE_PARAMS; i++) {
        const tutti_tensor *master = &s->param[i].master;
        size_t bytes = (size_t)tutti_tensor_count(master) * size;
        size_t at = (size_t)((char *)master->data - (char *)flat.data);
        *what = s->param[i].name;
        if (!visit(s, master->data, bytes, seed, 10 + (uint64_t)i) ||
            !visit(s, (char *)s->m.data + at, bytes, seed, 20 + (uint64_t)i) ||
            !visit(s, (char *)s->v.data + at, bytes, seed, 30 + (uint64_t)i))
            return false;
    }
    for (int i = 0; i < STATE_EXTRAS; i++) {
        const tutti_tensor *extra = &s->extra[i];
        *what = tutti_dtype_name(extra->dtype);
        if (!visit(s, extra->data,
                   (size_t)tutti_tensor_count(extra) * tutti_dtype_size(extra->dtype), seed,
                   40 + (uint64_t)i))
            return false;
    }
    return true;
}

static bool put(state *s, void *device, size_t bytes, uint64_t seed, uint64_t number)
{
    unsigned char *host = harness_calloc(1, bytes);
    fill_bytes(host, bytes, seed, number);
    CHECK_OK(tutti_copy(s->ctx, device, host, bytes));
    CHECK_OK(tutti_context_synchronize(s->ctx));
    free(host);
    return true;
}

static bool same(state *s, void *device, size_t bytes, uint64_t seed, uint64_t number)
{
    unsigned char *host = harness_calloc(2, bytes);
    fill_bytes(host, bytes, seed, number);
    CHECK_OK(tutti_copy(s->ctx, host + bytes, device, bytes));
    CHECK_OK(tutti_context_synchronize(s->ctx));
    bool equal = memcmp(host, host + bytes, bytes) == 0;
    free(host);
    return equal;
}

static int64_t rows_of(uint64_t seed)
{
    return (int64_t)(seed % (STATE_ROWS_MAX + 1));
}

void state_fill(state *s, uint64_t seed)
{
    const char *what;
    visit_all(s, seed, put, &what);
    CHECK_OK(tutti_params_refresh(s->params, s->ctx));
    s->step = (int64_t)mix(seed);
    s->scale = (double)(mix(seed + 1) >> 8) / 3;
    s->rows = rows_of(seed);
    snprintf(s->text, sizeof s->text, "%.*s", (int)(seed % 30),
             "gelu, swiglu, or whatever there is");
    for (int i = 0; i < STATE_ROWS_MAX * STATE_COLS; i++) s->table[i] = (double)seed + i / 7.0;
}

/* The padding between the parameters in a flat buffer is zero. */
static bool padding_is_zero(state *s, const tutti_tensor *flat)
{
    size_t size = tutti_dtype_size(flat->dtype), bytes = (size_t)flat->dims[0] * size;
    tutti_tensor masters;
    unsigned char *host = harness_calloc(1, bytes);
    CHECK_OK(tutti_params_flat(s->params, TUTTI_PARAMS_MASTER, &masters));
    CHECK_OK(tutti_copy(s->ctx, host, flat->data, bytes));
    CHECK_OK(tutti_context_synchronize(s->ctx));
    for (int i = 0; i < STATE_PARAMS; i++) {
        const tutti_tensor *master = &s->param[i].master;
        memset(host + ((char *)master->data - (char *)masters.data), 0,
               (size_t)tutti_tensor_count(master) * size);
    }
    bool zero = true;
    for (size_t i = 0; i < bytes; i++) zero = zero && host[i] == 0;
    free(host);
    return zero;
}

/* The working values are the masters', rounded. */
static bool working_is_fresh(state *s)
{
    bool fresh = true;
    for (int i = 0; i < STATE_PARAMS; i++) {
        const tutti_param *p = &s->param[i];
        int64_t count = tutti_tensor_count(&p->value);
        if (p->value.dtype == p->master.dtype) continue;
        size_t bytes = (size_t)count * tutti_dtype_size(p->value.dtype);
        float *masters = harness_calloc((size_t)count, sizeof *masters);
        unsigned char *want = harness_calloc(2, bytes);
        CHECK_OK(tutti_copy(s->ctx, masters, p->master.data, (size_t)count * sizeof *masters));
        CHECK_OK(tutti_copy(s->ctx, want + bytes, p->value.data, bytes));
        CHECK_OK(tutti_context_synchronize(s->ctx));
        CHECK_OK(tutti_convert(want, p->value.dtype, masters, TUTTI_F32, count));
        fresh = fresh && memcmp(want, want + bytes, bytes) == 0;
        free(masters);
        free(want);
    }
    return fresh;
}

bool state_is(state *s, uint64_t seed, const char **what)
{
    if (!visit_all(s, seed, same, what)) return false;
    tutti_tensor flat;
    CHECK_OK(tutti_params_flat(s->params, TUTTI_PARAMS_MASTER, &flat));
    *what = "padding";
    if (!padding_is_zero(s, &flat) || !padding_is_zero(s, &s->m) || !padding_is_zero(s, &s->v))
        return false;
    *what = "a working value";
    if (!working_is_fresh(s)) return false;
    *what = "step";
    if (s->step != (int64_t)mix(seed)) return false;
    *what = "scale";
    if (s->scale != (double)(mix(seed + 1) >> 8) / 3) return false;
    char text[sizeof s->text];
    snprintf(text, sizeof text, "%.*s", (int)(seed % 30), "gelu, swiglu, or whatever there is");
    *what = "text";
    if (strcmp(s->text, text) != 0) return false;
    *what = "table";
    if (s->rows != rows_of(seed)) return false;
    for (int i = 0; i < (int)s->rows * STATE_COLS; i++)
        if (s->table[i] != (double)seed + i / 7.0) return false;
    return true;
}

/* Files */

static char folder_path[64];
static pid_t folder_owner; /* its children do not remove it */

static void remove_folder(void)
{
    DIR *files = getpid() == folder_owner ? opendir(folder_path) : NULL;
    if (!files) return;
    for (struct dirent *entry; (entry = readdir(files));) {
        char name[512];
        snprintf(name, sizeof name, "%s/%s", folder_path, entry->d_name);
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) remove(name);
    }
    closedir(files);
    rmdir(folder_path);
}

const char *folder(void)
{
    if (folder_path[0]) return folder_path;
    int id = 0, made = 0;
    if (rig_rank() == 0) { /* a killed run may have left its folder */
        for (id = (int)getpid(); !made; id += !made) {
            snprintf(folder_path, sizeof folder_path, "/tmp/tutti-io-%d", id);
            made = mkdir(folder_path, 0755) == 0;
            if (!made && errno != EEXIST) break;
        }
        CHECK(made, "mkdir %s failed", folder_path);
        folder_owner = getpid();
        atexit(remove_folder);
    }
    id = rig_worst(id);
    snprintf(folder_path, sizeof folder_path, "/tmp/tutti-io-%d", id);
    return folder_path;
}

const char *in_folder(const char *name)
{
    static char paths[32][128];
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder(), name);
    int i = 0;
    while (i < 31 && paths[i][0] && strcmp(paths[i], path) != 0) i++;
    return strcpy(paths[i], path);
}

const char *small_disk(void)
{
    const char *disk = in_folder("disk");
    int mounted = 0;
    if (rig_rank() == 0)
        mounted = mkdir(disk, 0755) == 0 && mount("tmpfs", disk, "tmpfs", 0, "size=1m") == 0;
    if (rig_worst(mounted)) return disk;
    harness_skip("a small tmpfs cannot be mounted: %s", strerror(errno));
    return NULL;
}

void small_disk_remove(void)
{
    const char *disk = in_folder("disk");
    rig_barrier();
    if (rig_rank() == 0) CHECK(umount(disk) == 0, "umount: %s", strerror(errno));
    if (rig_rank() == 0) rmdir(disk);
}

unsigned char *file_read(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file);
    rewind(file);
    unsigned char *data = harness_calloc(*bytes + 1, 1);
    CHECK(fread(data, 1, *bytes, file) == *bytes, "%s cannot be read", path);
    fclose(file);
    return data;
}

void file_write(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    if (!CHECK(file, "%s cannot be written", path)) return;
    CHECK(fwrite(data, 1, bytes, file) == bytes, "%s cannot be written", path);
    fclose(file);
}

bool file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

bool file_same(const char *a, const char *b)
{
    size_t a_bytes = 0, b_bytes = 0;
    unsigned char *x = file_read(a, &a_bytes), *y = file_read(b, &b_bytes);
    bool equal = x && y && a_bytes == b_bytes && memcmp(x, y, a_bytes) == 0;
    free(x);
    free(y);
    return equal;
}

state *state_saved(const char *path)
{
    state *s = state_make(TUTTI_TRANSPORT_AUTO, TUTTI_F32, false);
    if (!s) return NULL;
    state_fill(s, 1);
    CHECK_OK(tutti_checkpoint_save(s->checkpoint, path, 0));
    return s;
}

void check_refused(state *s, tutti_status wanted, const char *word, const char *path)
{
    harness_forget_error();
    tutti_status status = tutti_checkpoint_load(s->checkpoint, path, 0);
    CHECK(status == wanted, "status '%s' (%s), want '%s'", tutti_status_string(status),
          tutti_last_error(), tutti_status_string(wanted));
    CHECK(strstr(tutti_last_error(), path) && strstr(tutti_last_error(), word),
          "'%s' does not name %s and '%s'", tutti_last_error(), path, word);
    rig_barrier();
}
