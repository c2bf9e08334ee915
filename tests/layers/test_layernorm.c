/* Tests of LayerNorm; see norm_check.c. */
#include "norm_check.h"

#include <stddef.h>

int main(int argc, char **argv)
{
    static const char *const variants[] = {"",
                                           "zero_centered=1,eps=0.1",
                                           "no_beta=1",
                                           "no_gamma=1,no_beta=1",
                                           "no_beta=1,zero_centered=1",
                                           NULL};
    return norm_main(argc, argv, "layernorm", variants);
}
