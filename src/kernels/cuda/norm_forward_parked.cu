/* LayerNorm and RMSNorm, forward: rows parked in shared memory, of a block or of a cluster. */
#include "kernels/cuda/norm_forward_parked.cuh"

/* As few as there may be without spills on the way of usual rows. */
constexpr int parked_registers(bool centered, bool edges, bool residual, bool cluster)
{
    return !edges ? residual ? 48 : 40 : residual ? 56 : !cluster ? 48 : centered ? 64 : 56;
}

template<class T, bool CENTERED, bool EDGES, bool RESIDUAL, bool CLUSTER>
__global__ void __maxnreg__(bound_registers(parked_registers(CENTERED, EDGES, RESIDUAL, CLUSTER)))
    norm_forward_parked_kernel(tutti__norm_args args, norm_forward_even even, int vecs, int cluster)
{
    extern __shared__ __align__(PARKED_ALIGNMENT) uint4 shared[];
    using norm = parked_norm<T, CENTERED, EDGES, RESIDUAL, CLUSTER>;
    __shared__ parked_exchange<norm::VALUES> space;
    norm_team<norm::VALUES, CLUSTER> team = {{space, cluster}};
    norm own(args, even, shared, team.blocks.rank, vecs,
             CLUSTER ? blockIdx.x / cluster : blockIdx.x);
    prefetch_params(args, own.park.first * norm::N, vecs * (int)blockDim.x * norm::N);
    own.fetch();
    const row_statistics found = own.statistics(team);
    if (team.blocks.rank == 0 && threadIdx.x == 0) save<CENTERED>(args, own.row, found);
    own.write(found);
}

/* Host side */

template<class T, bool CENTERED, bool WHOLE, bool RESIDUAL>
static tutti_status launch_parked(tutti_context *ctx, const tutti__norm_args *args,
                                  const norm_forward_even &even, const parked_plan &plan)
{
    auto kernel = plan.cluster > 1
                      ? norm_forward_parked_kernel<T, CENTERED, !WHOLE, RESIDUAL, true>
                      : norm_forward_parked_kernel<T, CENTERED, !WHOLE, RESIDUAL, false>;
    return parked_launch("norm_forward", kernel, plan, (unsigned)(args->rows * plan.cluster),
                         ctx->device, tutti__cuda_stream(ctx), *args, even, plan.vecs,
                         plan.cluster);
}

tutti_status tutti__cuda_norm_forward_parked(tutti_context *ctx, const tutti__norm_args *args,
                                             const norm_forward_even &even, bool whole,
                                             const parked_plan &plan)
{
    auto launch = [&](auto type, auto centered, auto wholly) {
        using T = typename decltype(type)::type;
        constexpr bool CENTERED = decltype(centered)::value, WHOLE = decltype(wholly)::value;
        return args->residual.data
                   ? launch_parked<T, CENTERED, WHOLE, true>(ctx, args, even, plan)
                   : launch_parked<T, CENTERED, WHOLE, false>(ctx, args, even, plan);
    };
    auto of_type = [&](auto type) {
        if (args->centered)
            return whole ? launch(type, std::true_type(), std::true_type())
                         : launch(type, std::true_type(), std::false_type());
        return whole ? launch(type, std::false_type(), std::true_type())
                     : launch(type, std::false_type(), std::false_type());
    };
    return args->x.dtype == TUTTI_F16    ? of_type(tutti__type<__half>{})
           : args->x.dtype == TUTTI_BF16 ? of_type(tutti__type<__nv_bfloat16>{})
                                         : of_type(tutti__type<float>{});
}
