/* Writes a checkpoint as a hostile program might: foreign_run FILE.  It has all values of a run of
 * tutti-train, and every text is a terminal's control sequence. */
#include <stdint.h>
#include <stdio.h>

#include "tutti/tutti.h"

#define TRY(call)                                                   \
    do {                                                            \
        if ((call) != TUTTI_OK) return puts(tutti_last_error()), 2; \
    } while (0)

int main(int argc, char **argv)
{
    static const char *const texts[] = {"task", "data", "norm", "activation", "dtype"};
    static const char *const ints[] = {
        "config/width",    "config/depth",  "config/embedding",   "config/context",
        "config/batch",    "config/leaves", "config/seed",        "config/epochs",
        "config/warmup",   "state/step",    "state/epoch",        "state/epoch_step",
        "state/evaluated", "state/skipped", "state/samples_seen", "state/loss_scale_good"};
    static const char *const reals[] = {"config/lr", "config/weight_decay", "config/clip",
                                        "state/loss_scale"};
    enum {
        TEXTS = sizeof texts / sizeof *texts,
        INTS = sizeof ints / sizeof *ints,
        REALS = sizeof reals / sizeof *reals
    };
    char text[] = "\033[2J\n\x9b", name[64];
    int64_t number = 1, rows = 0;
    double real = 1, row[4] = {0};
    tutti_context *ctx;
    tutti_comm *comm;
    tutti_checkpoint *list;
    if (argc != 2) return 64;
    TRY(tutti_context_create(&(tutti_context_desc){.backend = TUTTI_BACKEND_HOST}, &ctx));
    TRY(tutti_comm_create(ctx, &(tutti_comm_desc){.transport = TUTTI_TRANSPORT_SELF, .timeout = 60},
                          &comm));
    TRY(tutti_checkpoint_create(ctx, comm, &list));
    for (int i = 0; i < TEXTS; i++) {
        snprintf(name, sizeof name, "config/%s", texts[i]);
        TRY(tutti_checkpoint_add_text(list, name, text, sizeof text));
    }
    for (int i = 0; i < INTS; i++) TRY(tutti_checkpoint_add_int(list, ints[i], &number));
    for (int i = 0; i < REALS; i++) TRY(tutti_checkpoint_add_real(list, reals[i], &real));
    TRY(tutti_checkpoint_add_table(list, "history", row, 4, 1, &rows));
    TRY(tutti_checkpoint_save(list, argv[1], 0));
    tutti_checkpoint_destroy(&list);
    tutti_comm_destroy(&comm);
    tutti_context_destroy(&ctx);
    return 0;
}
