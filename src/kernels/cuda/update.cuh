/* The update of elements, of a store's flat buffers and of tensors that lie apart. */
#ifndef TUTTI_KERNELS_CUDA_UPDATE_CUH
#define TUTTI_KERNELS_CUDA_UPDATE_CUH

#include "kernels/cuda/rows.cuh"
#include "ops/update.h"

enum { DECIDE_THREADS = 1024, UPDATE_THREADS = 256 };

/* The update's input besides the buffers: in scratch. */
struct update_decision {
    double factor, learning_rate; /* factor: on gradients */
    double unbias1, unbias2;      /* AdamW: 1 / (1 - beta^t) */
    int32_t skip;
};

/* factor: on gradients; t: the number of the update. */
__device__ static inline void decide_update(update_decision *decision, double factor,
                                            double learning_rate,
                                            const tutti__update_options &options, double t)
{
    decision->factor = factor;
    decision->learning_rate = learning_rate;
    decision->unbias1 = 1 / (1 - pow(options.beta1, t));
    decision->unbias2 = 1 / (1 - pow(options.beta2, t));
}

/* The sum of the squares of all runs, in thread 0 of a block of DECIDE_THREADS. */
__device__ static inline double sum_squares(const double *squares, int64_t runs)
{
    __shared__ block_team_slots<double, 1> slots;
    block_team<double, 1> team(slots, 1);
    double sum[1] = {0};
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < runs; i += DECIDE_THREADS) sum[0] += squares[i];
    team.reduce<row_add>(sum);
    return sum[0];
}

/* An element's new value from its gradient, of which factor and clipping are part. */
template<class T>
struct adamw_rule {
    static constexpr int STATES = 2;
    T unbias1, unbias2, beta1, rest1, beta2, rest2, eps;

    __device__ __forceinline__ adamw_rule(const tutti__update_options &options,
                                          const update_decision &decision)
        : unbias1((T)decision.unbias1), unbias2((T)decision.unbias2), beta1((T)options.beta1),
          rest1((T)(1 - options.beta1)), beta2((T)options.beta2), rest2((T)(1 - options.beta2)),
          eps((T)options.eps)
    {
    }
    __device__ __forceinline__ void apply(T &p, T g, T &m, T &v, T rate, T decay) const
    {
        m = beta1 * m + rest1 * g;
        v = beta2 * v + rest2 * (g * g);
        T step = m * unbias1 / (sqrt(v * unbias2) + eps);
        p -= rate * (step + decay * p);
    }
};
template<class T>
struct sgd_rule {
    static constexpr int STATES = 1;
    T momentum;
    bool nesterov;

    __device__ __forceinline__ sgd_rule(const tutti__update_options &options,
                                        const update_decision &)
        : momentum((T)options.beta1), nesterov(options.nesterov)
    {
    }
    __device__ __forceinline__ void apply(T &p, T g, T &velocity, T &, T rate, T decay) const
    {
        g += decay * p;
        velocity = momentum * velocity + g;
        p -= rate * (nesterov ? g + momentum * velocity : velocity);
    }
};

/* Where elements lie: their first ones. */
struct update_memory {
    void *master, *state[2], *working; /* working: or NULL */
    tutti_dtype working_dtype;
};

/* Updates N elements p from `at` on by their gradients g, of which only `count` are there; even: in
 * whole accesses. */
template<class T, template<class> class Rule, int N>
__device__ __forceinline__ void update_elements(const Rule<T> &rule, const update_memory &to,
                                                int64_t at, int count, bool even, const T (&g)[N],
                                                T factor, T rate, T decay, bool working, T (&p)[N])
{
    T state[2][N] = {};
    load_elements(p, (const T *)to.master + at, count, even);
#pragma unroll
    for (int s = 0; s < Rule<T>::STATES; s++)
        if (to.state[s]) load_elements(state[s], (const T *)to.state[s] + at, count, even);
#pragma unroll
    for (int e = 0; e < N; e++)
        rule.apply(p[e], g[e] * factor, state[0][e], state[1][e], rate, decay);
    store_elements((T *)to.master + at, p, count, even);
#pragma unroll
    for (int s = 0; s < Rule<T>::STATES; s++)
        if (to.state[s]) store_elements((T *)to.state[s] + at, state[s], count, even);
    if (to.working && working) store_any(to.working, to.working_dtype, at, p, count, even);
}

#endif
