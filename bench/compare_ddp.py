#!/usr/bin/env python3
"""Times a training step of tutti-bench's residual blocks beside PyTorch's data-parallel training.

usage: bench/compare_ddp.py [--backend host|cuda] [--ranks N] [--models DIMxBLOCKSxROWS,…]
       [--peers A,B] [--steps N] [--leaves L] [--wire f32|bf16] [--no-slower PCT] [--json FILE]
A step is forward, backward, exchange, the gradients' norm and AdamW, of h + W2 gelu(W1 rmsnorm(h)),
the products in bf16 (host: f32).  Peers, bench/compare_ddp_peers.py: ddp_f32 and ddp_bf16, the type
of the gradients; zero, DDP with ZeroRedundancyOptimizer; fsdp, shard_grad_op with f32 gradients;
each also by torch.compile (ddp_f32+compile, not by default on the host).  Beside each step its time
without exchange, by the same code on the same ranks, in turns, and the share kept; and, of peers,
the step's time over that of Tutti's fast mode.
Exit codes: 0; 1 if --no-slower is given and ddp_f32's best step is shorter than PCT % of Tutti's;
2 if Tutti could not run, or with --no-slower ddp_f32 could not, or the file of --json could not be
written; 64 for a wrong command line; 75 stopped by SIGINT or SIGTERM; 141 if the reader of its
lines goes and there is no --json.
"""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time

from compare_program import (Parser, count, positive, prepare_output, stop_in_order, tell,
                             write_rows)

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = {"cuda": "2048x6x8192,1024x12x8192,4096x8x8192,1024x12x1024", "host": "128x2x256"}
PEERS = ("ddp_f32", "ddp_bf16", "zero", "fsdp")


def gpu_count():
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
        return listed.stdout.count("GPU ")
    except OSError:
        return 0


def tutti_steps(args, dim, blocks, rows):
    """[(who, ms without exchange, ms)] of Tutti's modes."""
    command = [os.path.join(HERE, "../launch/tutti-run"), "-np", str(args.ranks), "tutti-bench",
               "step", "--backend", args.backend, "--dim", dim, "--blocks", blocks, "--rows", rows,
               "--dtype", "bf16" if args.backend == "cuda" else "f32", "--steps", str(args.steps),
               "--shard", "--leaves", str(args.leaves), "--wire", args.wire]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    times = re.search(r"without exchange ([\d.]+) ms.*with exchange ([\d.]+) ms.*"
                      r"sharded ([\d.]+) ms.*leaves ([\d.]+) ms.*sums good", ran.stdout)
    if ran.returncode or not times:
        lines = (ran.stderr + ran.stdout).splitlines() or ["it ended without a word"]
        own = [line for line in lines if line.startswith("tutti-bench")]
        raise RuntimeError((own or lines[-1:])[0])
    alone, *steps = (float(time) for time in times.groups())
    wire = "" if args.wire == "f32" else f", {args.wire} wire"
    names = f"tutti{wire}", f"tutti sharded{wire}", f"tutti {args.leaves} leaves"
    return [(name, alone, step) for name, step in zip(names, steps)]


def peer_steps(args, dim, blocks, rows):
    """The same of the peers, and {peer: why it did not run}: one process a rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, os.path.join(HERE, "compare_ddp_peers.py"), args.backend, dim,
               blocks, rows, str(args.steps), ",".join(args.peers)]
    ranks, told = [], [(tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+"))
                       for _ in range(args.ranks)]
    env = dict(os.environ, WORLD_SIZE=str(args.ranks), MASTER_PORT=str(port),
               MASTER_ADDR="127.0.0.1", OMP_NUM_THREADS=os.environ.get("OMP_NUM_THREADS", "1"))
    codes, end = [None], time.monotonic() + args.timeout
    try:  # the others would wait for a rank that has failed
        for rank, (out, err) in enumerate(told):
            ranks.append(subprocess.Popen(command, env={**env, "RANK": str(rank)}, stdout=out,
                                          stderr=err))
        while None in codes and not any(codes) and time.monotonic() < end:
            codes = [rank.poll() for rank in ranks]
            time.sleep(0.05)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    if any(codes):
        error = told[[bool(code) for code in codes].index(True)][1]
        error.seek(0)
        lines = error.read().strip().splitlines()
        return [], {"all": lines[-1] if lines else "a rank ended with a signal"}
    if None in codes:
        return [], {"all": f"no end within {args.timeout} s"}
    told[0][0].seek(0)
    result = json.load(told[0][0])
    return [tuple(step) for step in result["steps"]], result["reasons"]


def report(args, model, steps, fast):
    """The rows of some steps; prints them.  fast: what a peer's time is divided by, or None."""
    rows = []
    for who, alone, step in steps:
        rows.append({"model": model, "ranks": args.ranks, "backend": args.backend, "who": who,
                     "alone_ms": alone, "step_ms": step, "kept": alone / step})
        ratio = f"{step / fast:9.2f}" if fast else ""
        tell(f"{model:>15} {who:25}{alone:11.3f}{step:11.3f}{alone / step:9.1%}{ratio}")
    return rows


def compare(args, model, rows):
    """Adds the rows of a model; whether ddp_f32 is faster than it may be."""
    sizes = model.split("x")
    steps = tutti_steps(args, *sizes)
    fast = steps[0][2]
    rows += report(args, model, steps, None)
    peers, reasons = peer_steps(args, *sizes) if args.peers else ([], {})
    rows += report(args, model, peers, fast)
    for who, reason in reasons.items():
        tell(f"{model:>15} {who:25}{'–':>11}{'–':>11}{'–':>9}  {reason}")
    best = min((step for who, _, step in peers if who.split("+")[0] == "ddp_f32"), default=None)
    if best is None and args.no_slower:
        raise RuntimeError("--no-slower: ddp_f32 did not run")
    slow = best is not None and best < fast * args.no_slower / 100
    if slow:
        tell(f"{model:>15} ddp_f32 takes {best / fast:.1%} of tutti's time, "
             f"want {args.no_slower:g} %")
    return slow


def arguments():
    parser = Parser(description=__doc__.splitlines()[0])
    gpus = gpu_count()
    parser.add_argument("--backend", choices=("host", "cuda"), default="cuda" if gpus else "host")
    parser.add_argument("--ranks", type=count, default=gpus or 2)
    parser.add_argument("--models", help="DIMxBLOCKSxROWS,…: rows of a rank")
    parser.add_argument("--peers", help=f"of {', '.join(PEERS)}, each with +compile too; none: ''")
    parser.add_argument("--steps", type=count, default=20)
    parser.add_argument("--leaves", type=count, default=8)
    parser.add_argument("--wire", choices=("f32", "bf16"), default="f32",
                        help="what travels of Tutti's gradients, but for those of leaves")
    parser.add_argument("--timeout", type=positive, default=600, help="of a model's peers, s")
    parser.add_argument("--no-slower", type=positive, metavar="PCT", default=0)
    parser.add_argument("--json", metavar="FILE", help="written anew after each model")
    args = parser.parse_args()
    every = [peer + how for peer in PEERS for how in ("", "+compile")]
    usual = every if args.backend == "cuda" else PEERS
    args.peers = list(usual) if args.peers is None else [p for p in args.peers.split(",") if p]
    for peer in set(args.peers) - set(every):
        parser.error(f"there is no {peer!r}; peers: {', '.join(every)}")
    args.models = (args.models or MODELS[args.backend]).split(",")
    for model in args.models:
        if not re.fullmatch(r"[1-9]\d{0,9}(x[1-9]\d{0,9}){2}", model):
            parser.error(f"--models has {model!r}, want DIMxBLOCKSxROWS")
    prepare_output(args.json)
    return args


def main():
    stop_in_order()
    args, rows, slow = arguments(), [], False
    tell(f"{'model':>15} {'who':25}{'alone ms':>11}{'step ms':>11}{'kept':>9}{'of tutti':>9}")
    for model in args.models:
        try:
            try:
                slow |= compare(args, model, rows)
            finally:
                if args.json:
                    write_rows(args.json, rows)
        except (RuntimeError, OSError) as refusal:
            print(f"compare_ddp.py: {model}: {refusal}", file=sys.stderr)
            return 2
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
