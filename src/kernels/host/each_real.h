/* Includes BODY, a body's file, for each REAL: first for float, then for double. */
#define REAL float
#define OF(name) name##_f32
#include BODY
#undef REAL
#undef OF
#define REAL double
#define OF(name) name##_f64
#include BODY
#undef REAL
#undef OF
#undef BODY
