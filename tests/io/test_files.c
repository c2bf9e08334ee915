/* The file: the same bytes from any number of ranks, readable by any number of ranks, h5dump and
 * h5py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "state.h"

#ifdef SAVE_RANK
/* Saves or loads under mpirun; returns the exit code. */
static int run_ranks(int ranks, const char *what, const char *path)
{
    char command[1200];
    snprintf(command, sizeof command,
             "SAVE_BIG=1 SAVE_PATH='%s' SAVE_SEED=4 SAVE_KEEP=0 SAVE_STEP=never SAVE_VICTIM=0 "
             "timeout -k 5 60 '%s' %s %d %s '%s' --only %s >/dev/null 2>&1",
             path, MPIEXEC, MPIEXEC_NUMPROC, ranks, MPIEXEC_FLAGS, SAVE_RANK, what);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static const char *file_of(int ranks)
{
    char name[32];
    snprintf(name, sizeof name, "by%d", ranks);
    return in_folder(name);
}

static void test_equal_bytes(void)
{
    for (int ranks = 1; ranks <= 4; ranks++) {
        int code = run_ranks(ranks, "save", file_of(ranks));
        CHECK(code == 0, "%d ranks end with %d", ranks, code);
        CHECK(file_same(file_of(ranks), file_of(1)), "%d ranks write other bytes than one", ranks);
    }
    /* alone, without MPI, and twice */
    state *s = state_make(TUTTI_TRANSPORT_SELF, TUTTI_F32, true);
    state_fill(s, 4);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(tutti_checkpoint_save(s->checkpoint, in_folder("alone"), 0));
        CHECK(file_same(in_folder("alone"), file_of(1)), "one rank without MPI writes other bytes");
    }
    state_free(&s);
}

static void test_other_ranks_read(void)
{
    if (!file_exists(file_of(2))) CHECK(run_ranks(2, "save", file_of(2)) == 0, "no file");
    for (int ranks = 1; ranks <= 4; ranks++) {
        int code = run_ranks(ranks, "load", file_of(2));
        CHECK(code == 0, "%d ranks end with %d", ranks, code);
    }
}
#endif

/* Readers */

/* Runs a command; returns its output and exit code. */
static int ask(const char *command, char *output, size_t size)
{
    FILE *pipe = popen(command, "r");
    if (!CHECK(pipe, "popen fails")) return -1;
    size_t used = fread(output, 1, size - 1, pipe);
    output[used] = 0;
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Numbers written in every float type: 1/3 shows the rounding, 100000.0 the range of the
 * exponent. */
static const double numbers[] = {1, -2.5, 0.15625, 1.0 / 3, 100000, -0.0009765625};
enum { NUMBERS = 6 };

static const char *write_numbers(void)
{
    static const tutti_dtype types[] = {TUTTI_F32, TUTTI_F64, TUTTI_F16, TUTTI_BF16};
    const char *path = in_folder("numbers");
    tutti_context *ctx = rig_context();
    tutti_comm *comm = rig_comm(ctx, TUTTI_TRANSPORT_SELF);
    tutti_checkpoint *list = NULL;
    tutti_params *empty = NULL;
    tutti_tensor tensors[4];
    int64_t step = 123456789012345, rows = 1;
    double scale = 65536, table[2] = {0.5, 2.25};
    char text[] = "gelu";
    CHECK_OK(tutti_params_create(ctx, NULL, &empty));
    CHECK_OK(tutti_params_build(empty, ctx));
    CHECK_OK(tutti_checkpoint_create(ctx, comm, &list));
    for (int i = 0; i < 4; i++) {
        tensors[i] = tutti_tensor_2d(NULL, types[i], 2, NUMBERS / 2);
        char bytes[NUMBERS * sizeof(double)];
        CHECK_OK(tutti_convert(bytes, types[i], numbers, TUTTI_F64, NUMBERS));
        CHECK_OK(tutti_alloc(ctx, sizeof bytes, &tensors[i].data));
        CHECK_OK(tutti_copy(ctx, tensors[i].data, bytes, NUMBERS * tutti_dtype_size(types[i])));
        const tutti_state_tensor state = {tutti_dtype_name(types[i]), tensors[i], 0};
        CHECK_OK(tutti_checkpoint_add_state(list, empty, &state));
    }
    CHECK_OK(tutti_checkpoint_add_int(list, "state/step", &step));
    CHECK_OK(tutti_checkpoint_add_real(list, "state/loss_scale", &scale));
    CHECK_OK(tutti_checkpoint_add_text(list, "config/activation", text, sizeof text));
    CHECK_OK(tutti_checkpoint_add_table(list, "history", table, 2, 1, &rows));
    CHECK_OK(tutti_checkpoint_save(list, path, 0));
    for (int i = 0; i < 4; i++) CHECK_OK(tutti_free(ctx, &tensors[i].data));
    tutti_checkpoint_destroy(&list);
    tutti_params_destroy(&empty);
    tutti_comm_destroy(&comm);
    return path;
}

static void test_h5dump(void)
{
    static char output[65536];
    char command[400];
    if (ask("h5dump --version 2>&1", output, sizeof output) != 0) {
        harness_skip("no h5dump (Debian: hdf5-tools)");
        return;
    }
    static const struct {
        const char *name, *want;
    } cases[] = {
        {"/optimizer/f32", "1 -2.5 0.15625 0.333333343 100000 -0.0009765625 "},
        {"/optimizer/f64", "1 -2.5 0.15625 0.333333333 100000 -0.0009765625 "},
        {"/optimizer/f16", "1 -2.5 0.15625 0.333251953 inf -0.0009765625 "},
        {"/optimizer/bf16", "1 -2.5 0.15625 0.333984375 99840 -0.0009765625 "},
        {"/state/step", "123456789012345 "},
        {"/state/loss_scale", "65536 "},
        {"/config/activation", "\"gelu\" "},
        {"/history", "0.5 2.25 "},
    };
    const char *path = write_numbers();
    for (int i = 0; i < HARNESS_COUNT(cases); i++) {
        snprintf(
            command, sizeof command,
            "h5dump -y -m %%.9g -d %s %s | sed -n '/ DATA {/,/}/p' | sed '1d;$d' | tr -d ',\\n' | "
            "tr -s ' ' | sed '1s/^ //'",
            cases[i].name, path);
        /* attributes come after the data */
        ask(command, output, sizeof output);
        CHECK(strncmp(output, cases[i].want, strlen(cases[i].want)) == 0, "%s is '%s', want '%s'",
              cases[i].name, output, cases[i].want);
    }
    snprintf(command, sizeof command, "h5dump -A %s", path);
    CHECK(ask(command, output, sizeof output) == 0, "h5dump fails");
    CHECK(strstr(output, "tutti-checkpoint") && strstr(output, "bf16"), "no attributes:\n%s",
          output);
}

static const char script[] =
    "import sys, h5py, numpy as np\n"
    "f = h5py.File(sys.argv[1], 'r')\n"
    "want = np.array([1, -2.5, 0.15625, 1/3, 100000, -0.0009765625]).reshape(2, 3)\n"
    "with np.errstate(over='ignore'):\n"
    "    half = want.astype(np.float16)\n"
    "bits = want.astype(np.float32).view(np.uint32)\n"
    "bf16 = ((bits + 0x7fff + (bits >> 16 & 1)) >> 16 << 16).view(np.float32)\n"
    "for name, value in [('f64', want), ('f32', want.astype(np.float32)), ('f16', half), ('bf16', "
    "bf16)]:\n"
    "    data = f['optimizer/' + name]\n"
    "    assert data.shape == (2, 3) and (data[...].astype(float) == value.astype(float)).all(), "
    "(name, data[...])\n"
    "    assert data.attrs['dtype'] in (name, name.encode()), data.attrs['dtype']\n"
    "    assert int(data.attrs['checksum']) > 0\n"
    "assert f['state/step'][()] == 123456789012345 and f['state/loss_scale'][()] == 65536\n"
    "assert f['config/activation'][()] in (b'gelu', 'gelu')\n"
    "assert (f['history'][...] == [[0.5, 2.25]]).all()\n"
    "assert f.attrs['format'] in (b'tutti-checkpoint', 'tutti-checkpoint') and f.attrs['complete'] "
    "== 1\n"
    "assert list(f.attrs['format_version']) == [1, 0]\n"
    "print('good')\n";

static void test_h5py(void)
{
    static const char *const pythons[] = {"python3", "/usr/bin/python3"};
    static char output[65536];
    char command[400];
    const char *path = write_numbers(), *file = in_folder("read.py");
    file_write(file, script, sizeof script - 1);
    for (int i = 0; i < HARNESS_COUNT(pythons); i++) {
        snprintf(command, sizeof command, "%s -c 'import h5py, numpy' 2>/dev/null", pythons[i]);
        if (ask(command, output, sizeof output) != 0) continue;
        snprintf(command, sizeof command, "%s %s %s 2>&1", pythons[i], file, path);
        CHECK(ask(command, output, sizeof output) == 0 && strstr(output, "good"), "%s", output);
        return;
    }
    harness_skip("no h5py (Debian: python3-h5py)");
}

static const rig_test tests[] = {
#ifdef SAVE_RANK
    {"equal bytes at 1 to 4 ranks", test_equal_bytes, 0, 0, false},
    {"other ranks read", test_other_ranks_read, 0, 0, false},
#endif
    {"h5dump", test_h5dump, 0, 0, false},
    {"h5py", test_h5py, 0, 0, false},
};

int main(int argc, char **argv)
{
    return rig_main(argc, argv, "checkpoint files", tests, HARNESS_COUNT(tests));
}
