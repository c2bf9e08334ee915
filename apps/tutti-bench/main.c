/* tutti-bench: times the layers, the optimizer, or what several ranks cost. */
#include <string.h>

#include "common/exit_code.h"
#include "common/program.h"
#include "common/report.h"
#include "common/signals.h"
#include "options.h"

static const struct {
    const char *word;
    const app_command *command;
} commands[] = {{"adamw", &bench_adamw_command},
                {"step", &bench_step_command},
                {"checkpoint", &bench_checkpoint_command},
                {"exchange", &bench_exchange_command}};

int main(int argc, char **argv)
{
    const app_command *command = NULL;
    signals_install();
    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(argv[1], commands[i].word) == 0) command = commands[i].command;
    if (!command) {
        const app_command *layers = bench_layers_command();
        if (layers) return app_main(layers, argc, argv);
        app_complain("the layers' tables are too long for --help");
        return APP_FAILED;
    }
    char name[64];
    snprintf(name, sizeof name, "%s", command->program);
    argv[1] = name; /* argp prints it before its messages */
    return app_main(command, argc - 1, argv + 1);
}
