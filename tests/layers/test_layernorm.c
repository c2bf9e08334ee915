/* Tests of LayerNorm; norm_check.c has them. */
#include "norm_check.h"

int main(int argc, char **argv)
{
    return norm_main(argc, argv, LAYERNORM);
}
