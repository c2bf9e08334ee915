#!/usr/bin/env python3
"""Times Tutti's layers beside NumPy, PyTorch, torch.compile, Triton's tutorials, Liger and QuACK.

usage: bench/compare.py [--backend host|cuda] [--layers A,B] [--dtype T] [--shapes RxC,…]
       [--peers A,B] [--repeats N] [--no-bars] [--least-share PCT] [--json FILE]
Same inputs, one run.  The table has each peer's time over Tutti's, and Tutti's speed beside a copy
of the same bytes or the bare products.  bench/compare_layers.py has the layers, compare_peers.py
the peers, compare_bars.py the bars.
Every element that the timed call of Tutti's writes is compared with PyTorch's in f64.
It takes the module `tutti` that Python finds, or else that of build/ (or of $TUTTI_BUILD_DIR).
Exit codes: 0; 1 if a bar is missed or a result is wrong; 2 if Tutti could not run, PyTorch is
missing or the file of --json could not be written; 64 for a wrong command line; 75 stopped by
SIGINT or SIGTERM; 141 if the reader of its lines goes and there is no --json.
"""

import contextlib
import operator
import os
import re
import statistics
import sys
import time

from compare_program import (Parser, count, positive, prepare_output, stop_in_order, tell,
                             write_rows)


def command_line():
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=("host", "cuda"))
    parser.add_argument("--layers")
    parser.add_argument("--shapes", help="ROWSxCOLS,…: each layer takes those with as many numbers "
                        "as it has")
    parser.add_argument("--dtype", choices=("f64", "f32", "tf32", "f16", "bf16"),
                        help="tf32: f32, products in TF32, Tutti's and PyTorch's; for --layers of "
                        "linear, mlp and matmul")
    parser.add_argument("--peers")
    parser.add_argument("--repeats", type=count, default=30)
    parser.add_argument("--no-bars", action="store_true", help="only wrong results fail")
    parser.add_argument("--least-share", type=positive, metavar="PCT",
                        help="of the speed of the copy or the bare products, in place of the "
                        "bars")
    parser.add_argument("--inject-fault", action="store_true",
                        help="alter an element of each result: the run must exit with 1")
    parser.add_argument("--json", metavar="FILE", help="written anew after each layer and shape")
    return parser, parser.parse_args()


# before PyTorch, which takes seconds to import and may be missing
stop_in_order()
PARSER, ARGS = command_line()
# Two libraries' threads: those that wait for work would keep the others' from it.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
BUILD = os.environ.get("TUTTI_BUILD_DIR") or os.path.join(os.path.dirname(__file__), "../build")
sys.path.append(os.path.abspath(os.path.join(BUILD, "python")))
try:
    import torch  # before tutti: docs/install.md, "Beside PyTorch"
    import tutti
except (ImportError, OSError) as missing:
    hint = {"tutti": f"; build Tutti, or set PYTHONPATH: {sys.path[-1]} has no module",
            "torch": "; Debian's package is python3-torch"}
    hint = hint.get(getattr(missing, "name", None), "")
    print(f"compare.py: {missing}{hint}", file=sys.stderr)
    sys.exit(2)

from compare_bars import missed
from compare_layers import ACTIVATIONS, KINDS, LAYERS, Case
from compare_peers import PEERS

HEAD_BYTES = 128 << 20  # of the copy in the table's head
NORM_SHAPES = ("32768x256,32768x1024,32768x4096,16384x8192,8192x16384,4096x32768,2048x131072,"
               "512x262144,4097x4099,50000x1536,512x200003,133x4096,1055x4096")
LOSS_SHAPES = "8192x4096,8192x32768,8192x50257,8192x50304,4096x128256"
LINEAR_SHAPES = "8192x4096x4096,8192x1024x4096"
MLP_SHAPES = "8192x4096x4096x4096,8192x1024x4096x1024"
MATMUL_SHAPES = "1x4096x4096x4096,512x512x512x64"
# what runs by default: {layer: shapes on a GPU, on the host}
DEFAULTS = {
    "layernorm": (NORM_SHAPES, "64x1024,8192x2048"),
    "rmsnorm": (NORM_SHAPES, "64x1024,8192x2048"),
    "softmax": (NORM_SHAPES, "64x1024,8192x2048"),
    "cross_entropy": (LOSS_SHAPES, "64x1024,8192x2048"),
    "dropout_gelu": ("16384x4096", "64x1024,8192x2048"),
    "dropout_squared_relu": ("16384x4096", "64x1024,8192x2048"),
    **{f"linear_{name}": (LINEAR_SHAPES, "256x784x256") for name in ACTIVATIONS},
    **{f"mlp_{name}": (MLP_SHAPES, "256x256x1024x256") for name in ACTIVATIONS},
    **{f"matmul_{a}{b}": (MATMUL_SHAPES, "8x128x128x128") for a in "nt" for b in "nt"},
    "glu_silu": ("16384x4096", "8192x2048"),
    "glu_gelu": ("16384x4096", "8192x2048"),
    "rope": ("32768x4096x128,65536x128x128", "8192x2048x128"),
    "embedding": ("16384x50257x1024,65536x50257x4096", "8192x50257x256"),
    "mse": ("32768x4096", "8192x2048"),
    "bce_with_logits": ("32768x4096", "8192x2048"),
}


class Clock:
    """Measures functions in turn, each after 256 MiB are overwritten, so that caches are cold."""

    def __init__(self, backend, repeats):
        self.cuda, self.repeats = backend == "cuda", repeats
        self.device = "cuda" if self.cuda else "cpu"
        self.flush = torch.empty(256 << 20, dtype=torch.uint8, device=self.device)
        self.stream = None
        if self.cuda:  # one stream for all: autograd runs a backward on its forward's
            self.stream = torch.cuda.Stream()
            torch.cuda.set_stream(self.stream)

    def ready(self, function):
        """What to replay: on a GPU a graph, which leaves out the host's time."""
        for _ in range(3):
            function()
        if not self.cuda:
            return function
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            function()

        def replay(_kept=function):  # with the tensors that the graph reads and does not own
            graph.replay()

        return replay

    def times(self, replays):
        """{name: [milliseconds]}, in turns."""
        times = {name: [] for name in replays}
        for _ in range(self.repeats):
            for name, replay in replays.items():
                self.flush.zero_()
                times[name].append(self._once(replay))
        if self.cuda:
            torch.cuda.synchronize()
            times = {name: [a.elapsed_time(b) for a, b in pairs] for name, pairs in times.items()}
        return times

    def _once(self, replay):
        if not self.cuda:
            begin = time.perf_counter()
            replay()
            return (time.perf_counter() - begin) * 1e3
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        replay()
        end.record()
        return begin, end


def copies(size, device):
    """Copies that read and write so many bytes in all.  On the host a plain loop over all threads,
    without streaming stores, of memory as the layers have it; on a GPU also the driver's, since
    either may be slow."""
    source = torch.ones(max(size // 8, 1), dtype=torch.int32, device=device)
    to = torch.empty_like(source)
    loop = {"roof": lambda: torch.bitwise_or(source, 0, out=to)}
    return loop if device == "cpu" else {**loop, "driver's copy": lambda: to.copy_(source)}


def roofs(case, passes, size):
    """The call's bare products, or copies of its bytes."""
    bare = case.bare(passes)
    return {"roof": bare} if bare else copies(size, case.device)


def check_peer(case, result, name, expected):
    """Raises ArithmeticError if a peer's main result is not there or wrong; dropout's is random.  A
    peer may round between its steps."""
    if case.kind == "dropout":
        return
    found = [torch.as_tensor(t) for t in (result if isinstance(result, tuple) else (result,))
             if getattr(t, "shape", None) == expected[name].shape]
    if not found or case.wrong({name: found[0]}, expected, 4):
        raise ArithmeticError("its result is wrong")


def measure(clock, case, passes, call, size, peers, reasons, expected):
    """Medians of the roof, of Tutti and of the peers, the share of the roof's speed, and the replay
    of Tutti's call.  The share is the median of the turns': the memory's speed may change from
    second to second, but the roof and Tutti are beside each other in a turn."""
    replays = {}

    @contextlib.contextmanager
    def named(who):  # whatever a peer raises is its refusal, named at the end
        try:
            yield
        except Exception as refusal:
            why = (str(refusal).splitlines() or [""])[0][:90]
            reasons.setdefault(f"{who}: {type(refusal).__name__}: {why}",
                               f"{case.kind} {case.rows} rows of {case.sizes}")

    with named("roof"):  # PyTorch 1.13 has no products of f16 on the host
        replays.update((name, clock.ready(run))
                       for name, run in roofs(case, passes, size).items())
    if clock.cuda:
        call.plan()
    replays["tutti"] = clock.ready(call)
    for peer in peers:
        with named(peer):
            run = PEERS[peer](case, passes)
            check_peer(case, run(), case.main(passes), expected)
            replays[peer] = clock.ready(run)
    times = clock.times(replays)
    if "driver's copy" in times:
        times["roof"] = min(times["roof"], times.pop("driver's copy"), key=statistics.median)
    share = None
    if "roof" in times:
        share = statistics.median(map(operator.truediv, times["roof"], times["tutti"]))
    return ({name: statistics.median(values) for name, values in times.items()}, share,
            replays["tutti"])


def compare(clock, ctx, args, layer, shape, reasons):
    """A row for each pass."""
    case = Case(ctx, clock.device, layer, [int(size) for size in shape.split("x")], args.dtype)
    calls = case.calls()
    for call, _, _ in calls.values():
        call()
    ctx.check()
    expected, found = case.expected(), []
    main = expected[case.main("forward")]
    for passes, (call, results, size) in calls.items():
        times, share, replay = measure(clock, case, passes, call, size, args.peers, reasons,
                                       expected)
        for result in results.values():
            result.fill_(float("nan"))
        replay()
        if args.inject_fault:
            for result in results.values():
                result.view(-1)[-1] += 1
        errors = case.wrong(results, expected)
        if args.inject_fault:
            replay()
        row = {"layer": layer, "pass": passes, "shape": shape, "rows": case.rows,
               "cols": main.shape[-1], "dtype": args.dtype, "backend": args.backend,
               "bytes": main.numel() * case.x.element_size(), "ms": times,
               "share": share, "failed": errors}
        if not args.no_bars:
            row["failed"] = row["failed"] + missed(row, args.least_share)
        ratios = [f"{times[peer] / times['tutti']:9.2f}" if peer in times else f"{'–':>9}"
                  for peer in args.peers]
        share = "–" if share is None else f"{share:.1%}"
        tell(f"{layer:21}{passes:9}{shape:>18} {times['tutti'] * 1e3:11.1f}{share:>8}", *ratios,
             "  " + "; ".join(row["failed"]))
        found.append(row)
    return found


def wanted(args):
    """[(layer, shape)]: of those given, each layer takes those with as many numbers as it has."""
    place, found = ("cuda", "host").index(args.backend), []
    for layer in args.layers:
        sizes = 1 + len(KINDS[LAYERS[layer][0]].sizes)
        like = next((name for name in DEFAULTS if LAYERS[name][0] == LAYERS[layer][0]))
        shapes = args.shapes or DEFAULTS.get(layer, DEFAULTS[like])[place]
        found += [(layer, shape) for shape in shapes.split(",") if shape.count("x") + 1 == sizes]
    return found


def complete(args):
    """Adds the defaults, and refuses names and shapes that there are not."""
    args.backend = args.backend or ("cuda" if torch.cuda.is_available() else "host")
    cuda = args.backend == "cuda"
    args.dtype = args.dtype or ("bf16" if cuda else "f32")
    args.peers = (args.peers or ("torch,compile,triton,liger,quack" if cuda else
                                 "torch,numpy")).split(",")
    args.layers = list(DEFAULTS) if args.layers is None else args.layers.split(",")
    for name in (set(args.peers) - set(PEERS)) | (set(args.layers) - set(LAYERS)):
        PARSER.error(f"there is no {name!r}; layers: {', '.join(LAYERS)}; "
                     f"peers: {', '.join(PEERS)}")
    shape = r"[1-9]\d{0,9}(x[1-9]\d{0,9})+"
    if not re.fullmatch(f"{shape}(,{shape})*", args.shapes or "1x1"):
        PARSER.error(f"--shapes is {args.shapes!r}, want ROWSxCOLS,…")
    if not wanted(args):
        PARSER.error(f"--shapes is {args.shapes!r}: no layer has as many sizes")
    prepare_output(args.json)


def main():
    args, reasons, rows = ARGS, {}, []
    complete(args)
    load = os.getloadavg()[0]  # of others, who take a core from a layer, but little from a copy
    try:
        clock = Clock(args.backend, args.repeats)
        if not clock.cuda and "OMP_NUM_THREADS" not in os.environ:  # Debian's PyTorch takes one
            torch.set_num_threads(len(os.sched_getaffinity(0)))
        torch.backends.cuda.matmul.allow_tf32 = args.dtype == "tf32"
        ctx = tutti.Context(args.backend, stream=clock.stream,
                            threads=0 if clock.cuda else torch.get_num_threads())
    except (tutti.Error, RuntimeError, AssertionError) as refusal:
        print(f"compare.py: {refusal}", file=sys.stderr)
        return 2
    times = clock.times({name: clock.ready(run)
                         for name, run in copies(HEAD_BYTES, clock.device).items()})
    speed = HEAD_BYTES / 1e6 / min(map(statistics.median, times.values()))
    tell(f"{args.backend}, {args.dtype}; PyTorch {torch.__version__}"
         f"{'' if clock.cuda else f', {torch.get_num_threads()} threads, load {load:.1f}'}; "
         f"a copy that reads and writes {HEAD_BYTES >> 20} MiB: {speed:.1f} GB/s")
    tell(f"{'layer':21}{'pass':9}{'shape':>18} {'us':>11}{'roof':>8}",
         *(f"{peer:>9}" for peer in args.peers))
    for layer, shape in wanted(args):
        try:
            rows += compare(clock, ctx, args, layer, shape, reasons)
            if args.json:
                write_rows(args.json, rows)
        except (tutti.Error, RuntimeError, ArithmeticError, OSError) as refusal:
            print(f"compare.py: {layer} {shape}: {refusal}", file=sys.stderr)
            return 2
    for reason, first in reasons.items():
        tell(f"– {reason} (first: {first})")
    return int(any(row["failed"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
