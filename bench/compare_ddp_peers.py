"""A rank of bench/compare_ddp.py's peers: BACKEND DIM BLOCKS ROWS STEPS PEERS.

Rank 0 prints {"steps": [[peer, ms without exchange, ms]], "reasons": {peer: why it did not run}}.
"""

import contextlib
import json
import statistics
import sys
import time

try:
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn import functional
    from torch.nn.parallel import DistributedDataParallel

    from compare_torch import rms_norm
except ImportError as missing:
    sys.exit(str(missing))


class Norm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return rms_norm(x, self.weight.to(x.dtype), 1e-6)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.up = Norm(dim), nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x):
        return x + self.down(functional.gelu(self.up(self.norm(x)), approximate="tanh"))


class Trainer:
    """A model of a peer's types, exchanged or not, and one step of it; the learning rate is 0."""

    def __init__(self, args, peer, exchanged):
        kind, _, how = peer.partition("+")
        self.device, self.kind, self.whole = args.device, kind, exchanged
        torch.manual_seed(0)
        with args.device if args.cuda else contextlib.nullcontext():  # drawn there, in no time
            model = nn.Sequential(*(Block(args.dim) for _ in range(args.blocks)))
        dtype = torch.bfloat16 if args.device != "cpu" else torch.float32
        self.cast = contextlib.nullcontext
        if kind == "ddp_bf16":
            model, dtype = model.bfloat16(), torch.bfloat16
        elif args.device != "cpu" and (kind != "fsdp" or not exchanged):
            # masters and gradients in f32
            self.cast = lambda: torch.autocast("cuda", torch.bfloat16)
        if exchanged:
            model = self.exchange(args, model, dtype)
        settings = {"lr": 0.0, "weight_decay": 0.01}
        if args.device != "cpu":
            settings["fused"] = True
        if exchanged and kind == "zero":
            from torch.distributed.optim import ZeroRedundancyOptimizer
            self.optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW,
                                                     **settings)
        else:
            self.optimizer = torch.optim.AdamW(model.parameters(), **settings)
        self.parameters = list(model.parameters())
        self.model = torch.compile(model, dynamic=False) if how else model
        self.x = torch.randn(args.rows, args.dim, device=args.device).to(dtype)

    def exchange(self, args, model, dtype):
        if self.kind == "fsdp":
            from torch.distributed import fsdp
            from torch.distributed.fsdp.wrap import ModuleWrapPolicy
            kept = fsdp.MixedPrecision(param_dtype=dtype, reduce_dtype=torch.float32)
            return fsdp.FullyShardedDataParallel(
                model, sharding_strategy=fsdp.ShardingStrategy.SHARD_GRAD_OP, mixed_precision=kept,
                auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True,
                device_id=None if args.device == "cpu" else args.device)
        return DistributedDataParallel(model, gradient_as_bucket_view=True,
                                       device_ids=None if args.device == "cpu" else [args.device])

    def norm(self):
        """The norm of all gradients, not read by the host, as in Tutti's step."""
        grads = [p.grad for p in self.parameters if p.grad is not None and p.grad.numel()]
        if hasattr(nn.utils, "get_total_norm"):
            norm = nn.utils.get_total_norm(grads).float()
        else:
            norm = torch.stack([grad.float().norm() for grad in grads]).norm()
        if self.kind == "fsdp" and self.whole:
            norm = norm.square()
            dist.all_reduce(norm)
            norm = norm.sqrt()
        return norm

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        with self.cast():
            y = self.model(self.x)
        y.backward(self.x.to(y.dtype))
        norm = self.norm()
        self.optimizer.step()
        return norm


IN_A_ROW = 4  # steps, as tutti-bench step makes without waiting for them


def seconds(trainer):
    """The slowest rank's time of a step."""
    wait = (lambda: None) if trainer.device == "cpu" else torch.cuda.synchronize
    wait()
    dist.barrier()
    wait()
    start = time.perf_counter()
    for _ in range(IN_A_ROW):
        norm = trainer.step()
    wait()
    took = torch.tensor([(time.perf_counter() - start) / IN_A_ROW, 0.0 if norm.isfinite() else 1.0],
                        dtype=torch.float64, device=trainer.device)
    dist.all_reduce(took, op=dist.ReduceOp.MAX)
    if took[1] != 0:
        raise ArithmeticError("the norm of the gradients is not finite")
    return took[0].item()


def measure(args, peer):
    """[peer, ms without exchange, ms]: medians of steps in turns, after some to warm up."""
    trainers = [Trainer(args, peer, exchanged) for exchanged in (False, True)]
    times = [[], []]
    for step in range(-5, args.steps):
        for trainer, kept in zip(trainers, times):
            took = seconds(trainer)
            if step >= 0:
                kept.append(1e3 * took)
    return [peer] + [statistics.median(kept) for kept in times]


class Arguments:
    def __init__(self, backend, dim, blocks, rows, steps, peers):
        self.dim, self.blocks, self.rows, self.steps = int(dim), int(blocks), int(rows), int(steps)
        self.peers, self.cuda = peers.split(","), backend == "cuda"


def main():
    args, steps, reasons = Arguments(*sys.argv[1:]), [], {}
    dist.init_process_group("nccl" if args.cuda else "gloo")
    args.device = "cpu"
    if args.cuda:
        args.device = torch.device("cuda", dist.get_rank())
        torch.cuda.set_device(args.device)
    for peer in args.peers:
        try:
            steps.append(measure(args, peer))
        except (ImportError, AttributeError, ValueError, TypeError, NotImplementedError,
                ArithmeticError, RuntimeError) as refusal:
            reasons[peer] = (str(refusal).strip() or type(refusal).__name__).splitlines()[0][:120]
        if args.cuda:
            torch.cuda.empty_cache()
        if hasattr(torch, "compiler") and hasattr(torch.compiler, "reset"):
            torch.compiler.reset()
    if dist.get_rank() == 0:
        print(json.dumps({"steps": steps, "reasons": reasons}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
