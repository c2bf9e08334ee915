/* Bad input for every public function: the exported symbols are compared with the cases to prove
 * that none is missing. */
#include <stdio.h>
#include <string.h>

#include "bad_input.h"

static tutti_context *foreign;

tutti_context *foreign_context(void)
{
    bool on_host = harness_backend() == TUTTI_BACKEND_HOST;
    tutti_backend other = on_host ? TUTTI_BACKEND_CUDA : TUTTI_BACKEND_HOST;
    int devices = 0;
    if (foreign) return foreign;
    if (tutti_device_count(other, &devices) != TUTTI_OK || devices == 0) return NULL;
    tutti_context_desc desc = TUTTI_CONTEXT_DESC_INIT;
    desc.backend = other;
    CHECK_OK(tutti_context_create(&desc, &foreign));
    return foreign;
}

enum { CASES_MAX = 200 };
static harness_test cases[CASES_MAX];
static int case_count;

static void add(const harness_test *more)
{
    for (; more->name && case_count < CASES_MAX; more++) cases[case_count++] = *more;
}

static bool has_case(const char *function)
{
    for (int i = 0; i < case_count; i++)
        if (strcmp(cases[i].name, function) == 0) return true;
    return false;
}

static void test_exports(void)
{
#ifdef TUTTI_STATIC
    (void)has_case;
    harness_skip("a static library has no exported symbols");
#else
    FILE *pipe = popen(TESTS_NM " -D --defined-only " TESTS_LIBRARY, "r");
    if (!CHECK(pipe, "%s does not start", TESTS_NM)) return;
    char line[512], symbol[256], kind;
    int functions = 0;
    while (fgets(line, sizeof line, pipe)) {
        if (sscanf(line, "%*s %c %255s", &kind, symbol) != 2) continue;
        if (kind == 'A') continue; /* the name of the symbols' version */
        symbol[strcspn(symbol, "@")] = 0;
        bool public = strncmp(symbol, "tutti_", 6) == 0 && strncmp(symbol, "tutti__", 7) != 0;
        CHECK(public, "the library exports %s", symbol);
        if (!public) continue;
        functions++;
        const char *end = strstr(symbol, "_desc_default"); /* takes nothing */
        CHECK((end && strcmp(end, "_desc_default") == 0) || has_case(symbol),
              "%s has no bad-input case", symbol);
    }
    CHECK(pclose(pipe) == 0, "%s failed", TESTS_NM);
    CHECK(functions > 80, "only %d functions are exported", functions);
#endif
}

int main(int argc, char **argv)
{
    add(bad_core);
    add(bad_param);
    add(bad_params);
    add(bad_adamw);
    add(bad_sgd);
    add(bad_update);
    add(bad_layers);
    add(bad_kinds);
    add(bad_comm);
    add(bad_grad_sync);
    add(bad_interop);
    add(bad_io);
    cases[case_count++] = (harness_test){"exports", test_exports};
    int code = harness_main(argc, argv, "bad input", cases, case_count);
    tutti_context_destroy(&foreign);
    return code;
}
