/* A state with everything that a checkpoint can hold, for the tests of checkpoints. */
#ifndef TESTS_IO_STATE_H
#define TESTS_IO_STATE_H

#include "rig.h"

enum { STATE_PARAMS = 4, STATE_EXTRAS = 6, STATE_ROWS_MAX = 12, STATE_COLS = 3 };

typedef struct state {
    tutti_context *ctx;
    tutti_comm *comm;
    tutti_params *params;
    tutti_param param[STATE_PARAMS];
    tutti_tensor m, v;                /* laid out as the store */
    tutti_tensor extra[STATE_EXTRAS]; /* one of each type, f32 first */
    int64_t step, rows;
    double scale;
    char text[40];
    double table[STATE_ROWS_MAX * STATE_COLS];
    tutti_checkpoint *checkpoint;
} state;

/* On its own communicator; NULL, with the test marked as skipped, if the transport is not
 * available.  big: a parameter of several blocks and an odd rest. */
state *state_make(tutti_transport transport, tutti_dtype masters, bool big);
void state_free(state **state);
/* Sets everything to the values of this seed, equal on all ranks. */
void state_fill(state *state, uint64_t seed);
/* True if everything has the values of this seed, working values included; otherwise `what` names
 * what differs. */
bool state_is(state *state, uint64_t seed, const char **what);
#define CHECK_STATE(state, seed)                                                              \
    do {                                                                                      \
        const char *what_ = "";                                                               \
        CHECK(state_is((state), (seed), &what_), "%s is not of seed %d", what_, (int)(seed)); \
    } while (0)

/* A folder for this program's files, the same on all ranks; rank 0 removes it at exit. */
const char *folder(void);
/* folder/name; the text is valid for the next 32 calls. */
const char *in_folder(const char *name);

/* A disk of 1 MB at folder/disk on rank 0; NULL, with the test marked as skipped, if it cannot be
 * mounted. */
const char *small_disk(void);
void small_disk_remove(void);

/* A file's content; NULL if there is no file.  The caller frees it. */
unsigned char *file_read(const char *path, size_t *bytes);
void file_write(const char *path, const void *data, size_t bytes);
bool file_exists(const char *path);
bool file_same(const char *a, const char *b);

/* A state of seed 1, saved at path. */
state *state_saved(const char *path);
/* Checks that loading fails on all ranks with the status and a message that has the file and the
 * word. */
void check_refused(state *s, tutti_status wanted, const char *word, const char *path);

#endif
