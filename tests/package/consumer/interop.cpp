// The same, compiled as C++.
#include "interop.c"
